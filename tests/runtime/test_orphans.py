"""A supervisor that is killed: its command ends with it, and no other attempt begins beside the remains."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.programs import is_alive, until

if TYPE_CHECKING:
    from keepstate import StateStore
    from tests.support.programs import Programs

RUN = ("--dag-id", "nightly", "--run-id", "1", "--task-id", "load")

# Notes when it begins and, as long as it lives, that it does.
ALIVE = """
    import os, sys, time
    from pathlib import Path

    me = os.environ["KEEPSTATE_TRY_NUMBER"]
    with open("log", "a", buffering=1) as log:
        log.write(f"{me} begins {os.getpid()}\\n")
        for turn in range(int(sys.argv[1])):
            log.write(f"{me} lives\\n")
            time.sleep(0.001)
        log.write(f"{me} ends\\n")
"""


def overlapping(lines: list[str]) -> list[str]:
    """Return the lines that an attempt wrote after a later one had begun."""
    late, current = [], 0
    for line in lines:
        number = int(line.split()[0])
        if "begins" in line:
            current = max(current, number)
        elif number < current:
            late.append(line)
    return late


def test_the_command_ends_with_its_supervisor(programs: Programs, store: StateStore) -> None:
    """Killed by SIGKILL, the supervisor takes the command and what it runs in the foreground with it."""
    script = "sleep 301 & echo $$ $! > pids.new; mv pids.new pids; wait"
    with programs.started(programs.supervised(["sh", "-c", script], *RUN)) as supervisor:
        until(programs.file("pids").exists)
        pids = [int(pid) for pid in programs.file("pids").read_text().split()]
        assert all(map(is_alive, pids))
        supervisor.kill()
        until(lambda: not any(map(is_alive, pids)))
    assert store.attempts("nightly", "1", "load")[0].state == "running"


def test_what_is_to_outlive_it_does(programs: Programs) -> None:
    """A job that the command started with nohup or setsid lives on when the supervisor is killed."""
    script = (
        "nohup sleep 302 >/dev/null 2>&1 & echo $! > pids.new; setsid sleep 303 & echo $! >> pids.new;"
        "sleep 0.3; mv pids.new pids; sleep 304"
    )
    with programs.started(programs.supervised(["sh", "-c", script], *RUN)) as supervisor:
        until(programs.file("pids").exists)
        pids = [int(pid) for pid in programs.file("pids").read_text().split()]
        supervisor.kill()
        time.sleep(0.5)
        assert all(map(is_alive, pids))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def test_no_attempt_begins_beside_an_orphan(programs: Programs, store: StateStore) -> None:
    """Started again at once after the supervisor's death, many times: attempts never overlap."""
    rounds = 5
    for number in range(1, rounds + 1):
        command = programs.supervised(programs.python(ALIVE, 100_000), *RUN)
        # of this attempt: the one before may yet write a line while it is being ended
        begins = f"{number} begins "
        with programs.started(command, KEEPSTATE_HEARTBEAT="600") as supervisor:
            until(lambda begins=begins: any(line.startswith(begins) for line in programs.lines("log")))
            time.sleep(random.uniform(0, 0.05))
            supervisor.kill()
    done = programs.run(programs.supervised(programs.python(ALIVE, 1), *RUN), KEEPSTATE_HEARTBEAT="600")
    assert done.returncode == 0, done.stderr
    lines = programs.lines("log")
    assert overlapping(lines) == []
    assert lines[-1] == f"{rounds + 1} ends"
    states = [attempt.state for attempt in store.attempts("nightly", "1", "load")]
    assert states == ["success"] + ["lost"] * rounds


def test_killed_at_any_moment_it_leaves_nothing(programs: Programs) -> None:
    """However early: a command whose supervisor is gone before it could begin does not begin, or ends."""
    command = programs.supervised(programs.python(ALIVE, 100_000), *RUN)
    rounds = 8
    for turn in range(rounds):
        with programs.started(command) as supervisor:
            time.sleep(0.05 + 0.4 * turn / rounds)
            supervisor.kill()
    time.sleep(0.5)
    pids = [int(line.split()[2]) for line in programs.lines("log") if "begins" in line]
    until(lambda: not any(map(is_alive, pids)), 10)
    quiet = programs.lines("log")
    time.sleep(0.3)
    assert programs.lines("log") == quiet
    assert overlapping(quiet) == []


def test_a_killed_command_is_started_again(programs: Programs, store: StateStore) -> None:
    """The supervisor survives its command's SIGKILL, and begins the next attempt."""
    command = programs.supervised(programs.python(ALIVE, 700), *RUN, "--retries", 3)
    with programs.started(command) as supervisor:
        for number in (1, 2):
            begun = until(lambda number=number: [x for x in programs.lines("log") if f"{number} begins" in x])
            os.kill(int(begun[0].split()[2]), signal.SIGKILL)
        assert supervisor.wait(60) == 0
    states = [attempt.state for attempt in store.attempts("nightly", "1", "load")]
    assert states == ["success", "up_for_retry", "up_for_retry"]
    assert overlapping(programs.lines("log")) == []


def test_a_guard_that_was_killed(programs: Programs, store: StateStore) -> None:
    """Without its guard the supervisor goes on, and says what that means."""
    script = "touch begun; while ! [ -e go ]; do sleep 0.01; done"
    with programs.started(programs.supervised(["sh", "-c", script], *RUN)) as supervisor:
        until(programs.file("begun").exists)
        (guard,) = [pid for pid in children(supervisor.pid) if "trap" in command_line(pid)]
        os.kill(guard, signal.SIGKILL)
        programs.file("go").touch()
        _, errors = supervisor.communicate(timeout=30)
    assert supervisor.returncode == 0
    assert "guard" in errors
    assert store.attempts("nightly", "1", "load")[0].state == "success"


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in found for child in file.read_text().split()]


def command_line(pid: int) -> str:
    """Return the command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_text()
