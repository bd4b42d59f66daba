"""Exceptions that come from outside in the middle of a write: Ctrl-C, a signal handler that raises."""

from __future__ import annotations

import gc
import random
import signal
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest

import keepstate

if TYPE_CHECKING:
    from pathlib import Path

_ROUNDS = 250


class _TimeIsUpError(Exception):
    """What a timeout's signal handler raises."""


# the test needs the alarm clock that the time limit of tests would use
@pytest.mark.timeout(60, method="thread")
def test_a_write_cut_short_leaves_the_file_unlocked(tmp_path: Path) -> None:
    """Whatever statement the exception met, other processes can write once it was handled."""

    def raise_it(*_: object) -> None:
        raise _TimeIsUpError

    before = signal.signal(signal.SIGALRM, raise_it)
    heard = 0
    other = sqlite3.connect(tmp_path / "keepstate.db", isolation_level=None, timeout=0)
    try:
        with keepstate.connect(f"sqlite:///{tmp_path / 'keepstate.db'}") as store:
            tss = store.task("etl", "r1", "load", try_number=1)
            for _ in range(_ROUNDS):
                # Python may drop an exception that a handler raises, in a finalizer: then the round ends by itself
                end = time.monotonic() + 0.05
                try:
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.003))
                    while time.monotonic() < end:
                        tss.set("page", 1)
                        tss.increment("count")
                except _TimeIsUpError:
                    heard += 1
                try:
                    other.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError:
                    # once in thousands it comes between a call and what would undo it: then the collector unlocks the file
                    gc.collect()
                    other.execute("BEGIN IMMEDIATE")
                other.execute("ROLLBACK")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        other.close()
    assert heard > _ROUNDS // 2


@pytest.mark.parametrize("url", ["sqlite", "postgres"])
def test_ids_of_full_length_work(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """250 characters of four bytes each, in every id at once, that no compression makes shorter."""
    place = (
        f"sqlite:///{tmp_path / 'keepstate.db'}"
        if url == "sqlite"
        else request.getfixturevalue("postgres_url")
    )
    letters = random.Random(1)
    dag, run, task = ("".join(chr(letters.randrange(0x20000, 0x2A6D0)) for _ in range(250)) for _ in range(3))
    key = "".join(chr(letters.randrange(0x20000, 0x2A6D0)) for _ in range(512))
    with keepstate.connect(place) as store:
        store.task(dag, run, task, try_number=1).set(key, 1)
        assert store.task(dag, run, task).get(key) == 1
        assert [info.scope.task_id for info in store.task_instances(dag, run)] == [task]
        assert store.delete_run(dag, run) == 1
