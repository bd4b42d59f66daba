"""A signal while the store is away: a process that is told to end does so soon, and says what it could not store."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from keepstate.allowance import LAST_WORDS
from tests.support.ports import free_port
from tests.support.postgres import postgres_server
from tests.support.programs import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.programs import Programs

SOON = LAST_WORDS + 4
"""Seconds: the last words, a try that had begun, and a slow machine."""

COMMAND = """
    import signal, sys, time
    from pathlib import Path

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(int(sys.argv[1])))
    Path("ready").touch()
    time.sleep(60)
"""

TASK = """
    import time
    from pathlib import Path
    from keepstate import dag_run, task

    @task(retries=3)
    def load(task_state_store):
        for page in task_state_store.checkpoint(range(10), every=100):
            if page == 5:
                Path("ready").touch()
                time.sleep(60)

    with dag_run("nightly"):
        load()
"""


class Server:
    """`keepstate serve` over a file, as a process of its own."""

    def __init__(self, programs: Programs) -> None:
        home = programs.folder / "server"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "keepstate", "serve", "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
            env={**programs.environment, "KEEPSTATE_HOME": str(home)},
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"serving .* at (http://\S+)", line):
                self.url = found[1]
            if "within 10 minutes" in line:
                break
        self.environment = {
            "KEEPSTATE_URL": self.url,
            "KEEPSTATE_TOKEN": (home / "admin-token").read_text().strip(),
        }

    def leave(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Let it answer no more, though its port still takes connections."""
        self.process.send_signal(signal.SIGSTOP)


@pytest.fixture
def server(programs: Programs) -> Iterator[Server]:
    """A server, of which nothing is left afterwards."""
    server = Server(programs)
    yield server
    server.leave()
    assert server.process.stderr is not None
    server.process.stderr.close()


def told_to_end(
    programs: Programs, command: list[str], gone: Callable[[], None], number: int
) -> tuple[int, float, str]:
    """Start a command, take its store away once it is ready, signal it; return its code, how long it took, and its stderr."""
    with programs.started(command) as process:
        until(programs.file("ready").exists)
        gone()
        began = time.monotonic()
        process.send_signal(number)
        _, err = process.communicate(timeout=SOON * 4)
        return process.returncode, time.monotonic() - began, err


def keepstate_run(programs: Programs, code: int) -> list[str]:
    """Return the command that supervises one which ends with ``code`` when it is told to."""
    child = programs.python(COMMAND, code)
    return [sys.executable, "-m", "keepstate", "run", "--retries", "9", "--", *child]


def handles(pid: int, number: signal.Signals) -> bool:
    """Say whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = re.search(r"SigCgt:\s*(\w+)", status)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("how", ["leave", "freeze"])
def test_a_supervisor_whose_server_is_away(programs: Programs, server: Server, how: str) -> None:
    """It ends with its command's code, all it had to record tried for a few seconds together, and says what is not stored."""
    programs.environment |= server.environment
    code, took, err = told_to_end(programs, keepstate_run(programs, 5), getattr(server, how), signal.SIGTERM)
    assert code == 5, err
    assert took < SOON, err
    assert re.search(
        r"The end of job\.py / \S+ / job\.py could not be stored: the store \S+ could not be", err
    )
    assert re.search(r"The end of job\.py / \S+ \(failed\) was not stored: no time is left", err)
    assert "stopped by SIGTERM: no further attempt" in err


def test_a_supervisor_whose_command_succeeds_as_its_database_is_away(programs: Programs) -> None:
    """That it succeeded is not known to anybody then: the code is the one of an unreachable store."""
    with postgres_server() as postgres:
        programs.environment["KEEPSTATE_URL"] = postgres.url
        code, took, err = told_to_end(programs, keepstate_run(programs, 0), postgres.crash, signal.SIGTERM)
    assert code == 69, err
    assert took < SOON, err
    assert "could not be reached in the time left to a process that ends" in err


def test_a_supervisor_that_waits_for_its_store(programs: Programs) -> None:
    """Before anything began, a signal ends it as soon, with the signal's code."""
    programs.environment["KEEPSTATE_URL"] = f"http://127.0.0.1:{free_port()}"
    with programs.started(keepstate_run(programs, 0)) as process:
        # until it handles signals itself, they end it anyway
        until(lambda: handles(process.pid, signal.SIGTERM))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=SOON)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "could not be reached in the time left to a process that ends" in err


def test_an_interrupted_run_of_tasks(programs: Programs, server: Server) -> None:
    """A position that is held back, the attempt's end and the run's end share the few seconds."""
    programs.environment |= server.environment
    code, took, err = told_to_end(programs, programs.python(TASK), server.leave, signal.SIGINT)
    assert code == -signal.SIGINT, err
    assert took < SOON, err
    assert re.search(r"The end of nightly / \S+ / load could not be stored", err)
    assert re.search(r"The end of nightly / \S+ could not be stored", err)
