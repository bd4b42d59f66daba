"""`keepstate serve` as people start it, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.contenders import ContenderError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE = 60.0
_SERVING = re.compile(r"serving .* at (http://\S+)")


@dataclass(frozen=True)
class Served:
    """Where the server is, and a token of an administrator's."""

    url: str
    token: str


@contextmanager
def serving(store: str, home: Path) -> Iterator[Served]:
    """Serve the store of that URL until the block is left. ``home`` is an empty folder."""
    log = home / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("keepstate"), "serve", "--port", "0", "--no-access-log"],
            env={**os.environ, "KEEPSTATE_URL": store, "KEEPSTATE_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield Served(_address(process, log), (home / "admin-token").read_text(encoding="ascii").strip())
    finally:
        process.terminate()
        process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        found = _SERVING.search(log.read_text(encoding="utf-8"))
        if found:
            return found[1]
        time.sleep(0.02)
    raise ContenderError(f"keepstate serve did not start: {log.read_text(encoding='utf-8')[-500:]}")
