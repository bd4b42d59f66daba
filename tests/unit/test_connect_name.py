"""`keepstate.connect` is a function, and the module it lives in has the same name."""

from __future__ import annotations

import subprocess
import sys

import pytest

CALL = "import keepstate; keepstate.connect(f'sqlite:///{sys.argv[1]}').close()"


@pytest.mark.parametrize(
    "code",
    [
        f"import sys; {CALL}",
        f"import sys; import keepstate.connect; {CALL}",
        f"import sys; from keepstate.connect import connect; {CALL}",
        f"import sys; {CALL}; import keepstate.connect; {CALL}",
        "import sys; from keepstate import connect; connect(f'sqlite:///{sys.argv[1]}').close()",
    ],
)
def test_connect_can_be_called_whoever_imported_its_module(code: str, tmp_path) -> None:
    """Importing the module first, as other parts of keepstate do, does not take the function's place."""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.db")], check=True, timeout=60)
