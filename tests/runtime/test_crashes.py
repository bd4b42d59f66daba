"""Killed by SIGKILL at random moments, a task never loses a checkpoint, nor repeats more than the item in flight."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.programs import until

if TYPE_CHECKING:
    from keepstate import StateStore
    from tests.support.programs import Programs

# Three tasks over a hundred items each, in one run: a plain one, an asynchronous one, and an operator.
JOB = """
    import asyncio, os, sys, time
    from keepstate import BaseOperator, dag_run, task

    ITEMS = 100
    ledger = os.open("ledger", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(name, item):
        os.write(ledger, f"{name} {item}\\n".encode())
        time.sleep(0.004)

    @task
    def plain(task_state_store=None):
        for item in task_state_store.checkpoint(range(ITEMS)):
            note("plain", item)
        return ITEMS

    @task
    async def coroutine(task_state_store=None):
        async for item in task_state_store.acheckpoint(range(ITEMS)):
            note("coroutine", item)
            await asyncio.sleep(0)

    class Operator(BaseOperator):
        def execute(self, context):
            for item in context["task_state_store"].checkpoint(lambda start: range(start, ITEMS)):
                note("operator", item)

    def main():
        assert plain() == ITEMS
        asyncio.run(coroutine())
        Operator(task_id="operator")
        os.write(ledger, b"done 0\\n")

    if "KEEPSTATE_DAG_ID" in os.environ:
        main()
    else:
        with dag_run("nightly", "1"):
            main()
"""


def check(lines: list[str], kills: int) -> None:
    """Items come in order; one comes again only directly after itself, and not more often than there were kills."""
    again = 0
    seen: list[tuple[str, int]] = []
    for line in lines:
        name, number = line.split()
        item = (name, int(number))
        if seen and item == seen[-1]:
            again += 1
            continue
        expected = seen[-1][1] + 1 if seen and seen[-1][0] == name else 0
        assert item[1] == expected, f"{item} after {seen[-1:]}"
        seen.append(item)
    assert again <= kills
    assert seen == [
        *((name, item) for name in ("plain", "coroutine", "operator") for item in range(100)),
        ("done", 0),
    ]


def killed_and_started_again(programs: Programs, kills: int) -> None:
    """Start the program, kill it, and start it again, so often; then let it finish."""
    command = programs.python(JOB)
    done = 0
    while done < kills:
        with programs.started(command) as process:
            try:
                process.wait(random.uniform(0.1, 0.1 + 5 / kills))
            except subprocess.TimeoutExpired:
                process.kill()
                done += 1
            else:
                assert process.returncode == 0, process.communicate()[1]
                break
    assert programs.run(command).returncode == 0
    lines = programs.lines("ledger")
    while lines.count("done 0") > 1:
        lines.remove("done 0")
    check(lines, done)


def killed_under_a_supervisor(programs: Programs, kills: int) -> int:
    """Kill the command of a supervisor, so often; then let it finish. Return how many times it was killed."""
    pid = programs.file("pid")
    job = ["sh", "-c", 'echo $$ > pid.new; mv pid.new pid; exec "$@"', "sh", *programs.python(JOB)]
    done = 0
    with programs.started(
        programs.supervised(job, "--dag-id", "nightly", "--run-id", "1", "--retries", 500)
    ) as it:
        while done < kills and it.poll() is None:
            time.sleep(random.uniform(0.1, 0.1 + 5 / kills))
            if pid.exists() and it.poll() is None:
                target = int(pid.read_text())
                pid.unlink()
                try:
                    os.kill(target, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                done += 1
        assert it.wait(100) == 0, it.communicate()[1]
    check(programs.lines("ledger"), done)
    return done


def test_started_again_by_hand(programs: Programs, store: StateStore) -> None:
    """A program with a named run, killed and started again."""
    killed_and_started_again(programs, 8)
    assert {attempt.state for attempt in store.attempts("nightly", "1")} <= {"success", "lost"}


def test_started_again_by_a_supervisor(programs: Programs, store: StateStore) -> None:
    """A supervised program, killed: the supervisor starts it again."""
    kills = killed_under_a_supervisor(programs, 8)
    states = [attempt.state for attempt in store.attempts("nightly", "1", "sh")]
    assert states[0] == "success"
    assert set(states[1:]) == {"up_for_retry"}
    # the last kill may have hit a program that had just ended
    assert len(states) - 1 in {kills, kills - 1}


@pytest.mark.slow
def test_fifty_kills_by_hand(programs: Programs) -> None:
    """The same, fifty times."""
    killed_and_started_again(programs, 50)


@pytest.mark.slow
def test_fifty_kills_under_a_supervisor(programs: Programs) -> None:
    """The same, fifty times, under a supervisor."""
    killed_under_a_supervisor(programs, 50)


def test_both_die_together(programs: Programs, store: StateStore) -> None:
    """Supervisor and command killed at once, as by a power cut: the next start goes on."""
    command = programs.supervised(programs.python(JOB), "--dag-id", "nightly", "--run-id", "1")
    kills = 4
    for _ in range(kills):
        before = len(programs.lines("ledger"))
        with programs.started(command) as supervisor:
            until(lambda before=before: len(programs.lines("ledger")) > before)
            supervisor.kill()
    assert programs.run(command).returncode == 0
    check(programs.lines("ledger"), kills)
