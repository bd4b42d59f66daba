"""Other processes of a test: forked ones that run a function, and clean ones that run this module's commands."""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
NOBODY = 65534
PATIENCE = 60.0
"""Seconds after which a child that says nothing counts as hanging."""


class Child:
    """A forked child that runs a function. It never returns into the test, whatever happens."""

    def __init__(self, function: Callable[[], Any], *, user: int | None = None) -> None:
        """Fork; with ``user``, the child gives up root's rights first."""
        self._answer, answer = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(answer)
            return
        outcome: tuple[bool, Any]
        try:
            os.close(self._answer)
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            outcome = (True, function())
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the test hears of it
            outcome = (False, exc)
        try:
            text = pickle.dumps(outcome)
        except Exception:  # noqa: BLE001
            text = pickle.dumps((False, AssertionError(traceback.format_exc())))
        with suppress(OSError), os.fdopen(answer, "wb") as pipe:
            pipe.write(text)
        os._exit(0)

    def result(self) -> Any:
        """Return what the function returned, or raise what it raised; a child that hangs is killed."""
        with os.fdopen(self._answer, "rb") as pipe:
            said = b""
            while True:
                ready, _, _ = select.select([pipe], [], [], PATIENCE)
                if not ready:
                    os.kill(self.pid, signal.SIGKILL)
                    os.waitpid(self.pid, 0)
                    raise AssertionError(f"the child said nothing for {PATIENCE} s")
                part = os.read(pipe.fileno(), 65536)
                if not part:
                    break
                said += part
        os.waitpid(self.pid, 0)
        fine, outcome = pickle.loads(said)
        if fine:
            return outcome
        raise outcome


def in_child(function: Callable[[], Any], *, user: int | None = None) -> Any:
    """Run ``function`` in a forked child and return what it returned, or raise what it raised."""
    return Child(function, user=user).result()


def as_nobody(function: Callable[[], Any]) -> Any:
    """Run ``function`` as a user whom file permissions bind: in a child, where the test itself is run by root."""
    return in_child(function, user=NOBODY if os.geteuid() == 0 else None)


def python(code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a clean Python that runs ``code`` from the root of the repository, with pipes to talk to it."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_until(condition: Callable[[], Any], *, patience: float = PATIENCE) -> Any:
    """Return what ``condition`` returns once it is true."""
    import time

    deadline = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < deadline, "what was waited for did not come about"
        time.sleep(0.002)
    return found
