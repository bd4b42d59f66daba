"""Runs the command line on a terminal of its own."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time


def on_terminal(*argv: str, answer: str = "", columns: int = 100, **environment: str) -> tuple[int, str]:
    """Run a command on a pseudo-terminal, type ``answer``, and return its exit code and all that it printed."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "keepstate", *argv],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), **environment},
        start_new_session=True,
    )
    os.close(theirs)
    if answer:
        os.write(ours, answer.encode())
    printed = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ready, _, _ = select.select([ours], [], [], 1)
        try:
            chunk = os.read(ours, 65_536) if ready else b""
        except OSError:
            # the other end is closed
            break
        if ready and not chunk:
            break
        printed += chunk
    os.close(ours)
    return child.wait(timeout=60), printed.decode()
