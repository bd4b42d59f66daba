"""Threads that wait for one of a few places are served in the order in which they came."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from keepstate.backends.sql.turnstile import Turnstile
from tests.backends.children import wait_until
from tests.backends.stores import open_file, task

if TYPE_CHECKING:
    from pathlib import Path


def test_who_came_first_goes_first() -> None:
    """A place that is given up goes to who has waited longest, and to nobody who comes along."""
    turnstile = Turnstile(1)
    assert turnstile.enter(0)
    served: list[int] = []

    def wait(number: int) -> None:
        assert turnstile.enter(60)
        served.append(number)
        # still within: nobody overtakes
        turnstile.leave()

    threads = []
    for number in range(10):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        wait_until(lambda number=number: len(turnstile._waiting) == number + 1)
    assert not turnstile.enter(0)
    turnstile.leave()
    for thread in threads:
        thread.join()
    assert served == list(range(10))
    assert turnstile.enter(0)


def test_there_are_as_many_places_as_were_asked_for() -> None:
    """And not one more, however often they change hands."""
    turnstile = Turnstile(3)
    assert [turnstile.enter(0) for _ in range(4)] == [True, True, True, False]
    turnstile.leave()
    assert [turnstile.enter(0) for _ in range(2)] == [True, False]


def test_who_waits_in_vain_loses_nobody_s_place() -> None:
    """After the time allowed; the place is then free for the next."""
    turnstile = Turnstile(1)
    assert turnstile.enter(0)
    began = time.monotonic()
    assert not turnstile.enter(0.1)
    assert 0.1 <= time.monotonic() - began < 1
    turnstile.leave()
    assert turnstile.enter(0)


def test_no_thread_starves_at_a_file(tmp_path: Path) -> None:
    """Of many that write without a pause, each gets about as far as the others."""
    with open_file(tmp_path / "keepstate.db") as store:
        stop = threading.Event()
        written = [0] * 12

        def write(number: int) -> None:
            while not stop.is_set():
                task(store, f"task {number}").set("n", written[number])
                written[number] += 1

        threads = [threading.Thread(target=write, args=(number,)) for number in range(len(written))]
        for thread in threads:
            thread.start()
        wait_until(lambda: sum(written) > 600)
        stop.set()
        for thread in threads:
            thread.join()
    assert min(written) > 20
