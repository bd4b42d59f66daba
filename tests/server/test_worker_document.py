"""Schemathesis makes requests of the worker API from its description, good and bad, and holds the answers to it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from keepstate.wire import VERBS

if TYPE_CHECKING:
    from pathlib import Path

    from keepstate.store import StateStore
    from tests.support.served import Served

CONFIG = """
[checks]
# What schemas can't say may be refused: that a text is no JSON, that a key is named twice, that an attempt is late.
positive_data_acceptance.expected-statuses = ["2xx", "404", "409", "422"]
# A list that is too long may be refused for its bytes before it is read.
negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "408", "409", "413", "415", "422"]
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2])
def test_schemathesis_finds_nothing(
    monkeypatch: pytest.MonkeyPatch, store: StateStore, served: Served, tmp_path: Path, seed: int
) -> None:
    """No answer that the document does not have, no fault of the server's, no bad request that is taken."""
    # it tries wrong tokens for each operation, which after some would be 429
    monkeypatch.setattr("keepstate.server.failures.ALLOWED", 1_000_000)
    store.task("etl", "r", "t", try_number=1).set("k", 1)
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    options = {
        "--config-file": str(tmp_path / "schemathesis.toml"),
        "run": f"{served.url}/openapi.json",
        "--header": f"Authorization: Bearer {served.token()}",
        "--include-path-regex": "^/api/keepstate/",
        "--phases": "coverage,fuzzing",
        "--max-examples": "60",
        "--seed": str(seed),
        "--workers": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *(part for pair in options.items() for part in pair)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "160", "NO_COLOR": "1"},
        cwd=tmp_path,
    )
    assert done.returncode == 0, f"{done.stdout[:20_000]}\n{done.stderr[-5_000:]}"
    assert f"Tested: {len(VERBS)}" in done.stdout
