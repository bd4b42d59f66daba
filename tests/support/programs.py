"""Small programs for tests: written to a folder, started as real processes, watched and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0


def clean_environment(**more: str) -> dict[str, str]:
    """Return this environment without any setting of keepstate's, and with the tests and examples importable."""
    own = ("KEEPSTATE_", "AIRFLOW__STATE_STORE__")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more}


class Programs:
    """Programs in a folder, with a store of their own beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.environment = clean_environment(KEEPSTATE_HOME=str(self.home), KEEPSTATE_HEARTBEAT="0.2")

    def write(self, text: str, name: str = "job.py") -> Path:
        """Write a program and return where it is."""
        path = self.folder / name
        path.write_text(textwrap.dedent(text))
        path.chmod(0o755)
        return path

    def python(self, text: str, *arguments: object, name: str = "job.py") -> list[str]:
        """Write a Python program and return the command that runs it."""
        return [sys.executable, str(self.write(text, name)), *map(str, arguments)]

    def supervised(self, command: list[str], *options: object) -> list[str]:
        """Return the command that supervises ``command``; its events go to ``events`` in the folder, one JSON a line."""
        supervisor = [
            sys.executable,
            "-m",
            "tests.support.supervise",
            "--events",
            str(self.folder / "events"),
        ]
        return [*supervisor, *map(str, options), "--", *command]

    def run(self, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            command,
            env={**self.environment, **more},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE * 2,
            check=False,
        )

    @contextmanager
    def started(self, command: list[str], **more: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command in a process group of its own; what is left of the group is killed on leaving."""
        with subprocess.Popen(
            command,
            env={**self.environment, **more},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def file(self, name: str) -> Path:
        """Return a file in the folder."""
        return self.folder / name

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file, none if it is not there yet."""
        try:
            return self.file(name).read_text().splitlines()
        except FileNotFoundError:
            return []


def until(condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Wait until a condition holds and return what it returned; fail when it does not come to."""
    deadline = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
    return found


def is_alive(pid: int) -> bool:
    """Say whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}
