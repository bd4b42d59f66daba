"""What the tests of the pages need beside Python: a Chromium, and the rules of accessibility.

``python -m tests.support.browser`` gets both where they are missing: the system's Chromium, and axe-core as npm has it, at
the version and with the hash below. `make test` does that.
"""

from __future__ import annotations

import base64
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.support.packages import install

ROOT = Path(__file__).parents[2]
AXE_VERSION = "4.14.1"
AXE_SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
AXE = ROOT / ".cache" / "axe-core" / AXE_VERSION / "axe.min.js"

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Return where Chromium is. Raises ``FileNotFoundError`` saying how to get it."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise FileNotFoundError(
            "there is no Chromium; `make test` installs one, or: apt-get install chromium"
        )
    return found


def axe() -> str:
    """Return the script that judges a page. Raises ``FileNotFoundError`` where it was not fetched."""
    if not AXE.is_file():
        raise FileNotFoundError(f"{AXE} is missing; `make test` fetches it")
    return AXE.read_text(encoding="utf-8")


def _fetch_axe() -> None:
    if not shutil.which("npm"):
        install("npm")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", "--silent", f"axe-core@{AXE_VERSION}"],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        packed = next(Path(folder).glob("*.tgz")).read_bytes()
    found = base64.b64encode(hashlib.sha512(packed).digest()).decode()
    if found != AXE_SHA512:
        sys.exit(f"axe-core {AXE_VERSION} has the hash {found}, and {AXE_SHA512} was expected")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        AXE.parent.mkdir(parents=True, exist_ok=True)
        beside = AXE.with_suffix(".part")
        beside.write_bytes(member.read())
    beside.replace(AXE)


def main() -> None:
    """Get what is missing."""
    try:
        chromium()
    except FileNotFoundError:
        install("chromium")
    if not AXE.is_file():
        _fetch_axe()


if __name__ == "__main__":
    main()
