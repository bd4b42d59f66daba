"""Running an example under `keepstate run`, and killing it in the middle."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.programs import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from keepstate import StateStore
    from keepstate.scope import Attempt
    from tests.support.programs import Programs

KEEPSTATE = str(Path(sys.executable).with_name("keepstate"))


def keepstate_run(*command: object, retries: int = 5) -> list[str]:
    """Return the command line, with retries that follow at once."""
    options = ["--dag-id", "example", "--retries", str(retries), "--retry-delay", "0s"]
    return [KEEPSTATE, "run", *options, "--", sys.executable, *map(str, command)]


class Supervised:
    """An example that runs under `keepstate run`, as one task."""

    def __init__(self, process: subprocess.Popen[str], store: StateStore, task_id: str) -> None:
        self.process = process
        self.store = store
        self.task_id = task_id

    @property
    def run_id(self) -> str:
        """The run that the supervisor has begun."""
        run_id: str = until(lambda: self.store.runs("example"))[0].run_id
        return run_id

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts of the task, newest first."""
        return self.store.attempts("example", self.run_id, self.task_id)

    def stored(self, key: str) -> Any:
        """Return what the task has stored."""
        return self.store.task("example", self.run_id, self.task_id).get(key)

    def kill(self) -> bool:
        """Kill the program, but not its supervisor; return whether there was one."""
        attempts = self.attempts
        if not attempts or attempts[0].state != "running" or attempts[0].pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(attempts[0].pid, signal.SIGKILL)
            return True
        return False

    def finish(self) -> str:
        """Wait for the end, which must be good, and return what was printed."""
        output, errors = self.process.communicate(timeout=100)
        assert self.process.returncode == 0, errors
        return output


@contextmanager
def supervised(
    programs: Programs, store: StateStore, task_id: str, *command: object, retries: int = 5
) -> Iterator[Supervised]:
    """Start an example under `keepstate run`."""
    with programs.started(keepstate_run(*command, retries=retries)) as process:
        yield Supervised(process, store, task_id)


def killed_once(example: Supervised, key: str) -> str:
    """Kill an example when it has stored ``key`` and waits, and return what it printed until its good end."""
    until(lambda: example.stored(key) is not None)
    time.sleep(0.3)
    assert example.kill()
    output = example.finish()
    assert [attempt.state for attempt in example.attempts] == ["success", "lost"]
    return output
