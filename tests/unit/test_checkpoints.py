"""Checkpoints, item by item: when a position is written, and that none is lost."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.awaitable import in_thread
from keepstate.checkpoints import Checkpoint
from keepstate.connect import connect
from keepstate.errors import (
    BackendUnavailableError,
    CheckpointMismatchError,
    InvalidInputError,
    InvalidTypeError,
    StaleAttemptError,
)
from keepstate.integrations.airflow import stores
from keepstate.settings import Settings
from keepstate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore


class Keeper:
    """What a checkpoint writes to; remembers every write."""

    def __init__(self, stored: Any = None) -> None:
        self.stored = stored
        self.written: list[int] = []
        self.trouble: Exception | None = None

    def get(self, key: str, default: Any = None) -> Any:
        """Return what is stored."""
        return self.stored

    def set(self, key: str, value: Any) -> None:
        """Store it, or fail as told."""
        if self.trouble is not None:
            raise self.trouble
        self.stored = value
        self.written.append(value["position"])


@pytest.fixture
def clock() -> ManualClock:
    """Time, which a test moves."""
    return ManualClock()


@pytest.fixture
def keeper() -> Keeper:
    """An empty one."""
    return Keeper()


@pytest.fixture
def store(clock: ManualClock) -> StateStore:
    """A store that the test closes."""
    return connect("memory:", settings=Settings(), clock=clock)


def attempt(store: StateStore, number: int) -> TaskStateStore:
    """Return the accessor of an attempt."""
    return store.task("d", "r", "t", try_number=number)


@pytest.mark.parametrize(
    ("every", "written"),
    [(1, [1, 2, 3, 4, 5, 6, 7, 7]), (2, [2, 4, 6, 7]), (3, [3, 6, 7]), (7, [7, 7]), (100, [7])],
)
def test_every_counts_items(keeper: Keeper, clock: ManualClock, every: int, written: list[int]) -> None:
    """The position is written after so many; the end is written always, and says that it is the end."""
    assert list(Checkpoint(keeper, range(7), "k", clock=clock, every=every)) == list(range(7))
    assert keeper.written == written
    assert keeper.stored["done"] is True


@pytest.mark.parametrize("pause", [10, 10.0, timedelta(seconds=10)])
def test_min_interval_counts_time(keeper: Keeper, clock: ManualClock, pause: float | timedelta) -> None:
    """At most one write in so long, in seconds or as a ``timedelta``, counted from the last one; the end comes at once."""
    for _ in Checkpoint(keeper, range(12), "k", clock=clock, min_interval=pause):
        clock.advance(timedelta(seconds=4))
    assert keeper.written == [3, 6, 9, 12, 12]


def test_both_throttles_hold_back(keeper: Keeper, clock: ManualClock) -> None:
    """A write needs enough items and enough time."""
    for _ in Checkpoint(keeper, range(10), "k", clock=clock, every=2, min_interval=5):
        clock.advance(timedelta(seconds=2))
    assert keeper.written == [3, 6, 9, 10]


@pytest.mark.parametrize("every", [0, -1, True, 1.5, "2", None])
def test_every_is_a_whole_number_of_items(keeper: Keeper, clock: ManualClock, every: Any) -> None:
    """From 1 on."""
    with pytest.raises(InvalidInputError, match="every must be"):
        Checkpoint(keeper, [], "k", clock=clock, every=every)


@pytest.mark.parametrize(
    ("pause", "error"),
    [
        (-1, InvalidInputError),
        (timedelta(-1), InvalidInputError),
        ("1", InvalidTypeError),
        (True, InvalidTypeError),
        (float("nan"), InvalidInputError),
        (float("inf"), InvalidInputError),
    ],
)
def test_min_interval_is_a_length_of_time(
    keeper: Keeper, clock: ManualClock, pause: Any, error: type[Exception]
) -> None:
    """Seconds, or a ``timedelta``."""
    with pytest.raises(error, match="min_interval"):
        Checkpoint(keeper, [], "k", clock=clock, min_interval=pause)


def test_what_a_throttle_held_back_is_written_though_the_generator_lives(store: StateStore) -> None:
    """Someone keeps the generator, as a traceback does: closing the store writes the position all the same."""
    tss = attempt(store, 1)
    loop = tss.checkpoint(range(10), every=100)
    assert [next(loop) for _ in range(4)] == [0, 1, 2, 3]
    person = store.task("d", "r", "t")
    assert person.get("position") is None
    store.close()
    assert person.get("position")["position"] == 3
    assert next(loop) == 4


def held_back(store: StateStore, *keys: str) -> tuple[TaskStateStore, list[Iterator[int]]]:
    """Return an accessor, and its loops, to be kept alive: they are at 3, and nothing of that is written."""
    tss = attempt(store, 1)
    loops = [tss.checkpoint(range(10), key=key, every=100) for key in keys]
    for loop in loops:
        assert [next(loop) for _ in range(4)] == [0, 1, 2, 3]
    return tss, loops


@pytest.mark.parametrize("trouble", [BackendUnavailableError("gone", address="x"), RuntimeError("odd")])
def test_trouble_with_one_checkpoint_keeps_no_other_back(
    store: StateStore, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    """All are tried, the first trouble is raised, and what failed is written by the next flush."""
    tss, _loops = held_back(store, "a", "b", "c")
    real, asked = store.backend.apply, []

    def apply(batch: Any) -> Any:
        asked.append(batch)
        if len(asked) == 1:
            raise trouble
        return real(batch)

    monkeypatch.setattr(store.backend, "apply", apply)
    with pytest.raises(type(trouble), match=str(trouble)):
        tss.flush()
    assert [key for key, _ in tss.items()] == ["b", "c"]
    tss.flush()
    assert {key: value["position"] for key, value in tss.items()} == {"a": 3, "b": 3, "c": 3}


def test_trouble_with_one_store_of_an_airflow_task_keeps_no_other_back(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of Airflow's may have several open, by their settings."""

    def flush() -> None:
        raise BackendUnavailableError("gone", address="x")

    gone = connect("memory:", settings=Settings())
    monkeypatch.setattr(gone, "flush", flush)
    monkeypatch.setattr(stores, "_open", {(os.getpid(), "gone"): gone, (os.getpid(), "here"): store})
    tss, _loops = held_back(store, "a")
    with pytest.raises(BackendUnavailableError):
        stores.flush()
    assert [key for key, _ in tss.items()] == ["a"]


def test_a_store_that_is_gone_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many checkpoints hold something back."""
    store = connect(f"sqlite:///{tmp_path}/s.db", settings=Settings(retry_timeout=0.5))
    tss, _loops = held_back(store, *"abcdef")
    with sqlite3.connect(tmp_path / "s.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(BackendUnavailableError):
            tss.flush()
        assert time.monotonic() - began < 1.5
        other.execute("ROLLBACK")
    store.close()
    with connect(f"sqlite:///{tmp_path}/s.db") as again:
        assert len(again.task("d", "r", "t").items()) == 6


def test_flushing_while_other_threads_begin_more(store: StateStore) -> None:
    """Accessors and checkpoints that are made meanwhile disturb nothing."""
    tss = attempt(store, 1)
    others = [attempt(store, 1) for _ in range(3000)]
    done = threading.Event()

    def make() -> None:
        for number in range(20_000):
            others.append(store.task("d", "r", "t"))
            tss.checkpoint([1], key=f"k{number}")
        done.set()

    thread = threading.Thread(target=make)
    thread.start()
    while not done.is_set():
        store.flush()
        tss.flush()
    thread.join()


def test_an_exception_that_keeps_its_frames_loses_nothing(store: StateStore) -> None:
    """The body fails between two writes, and the exception is kept, with the loop in it."""
    tss = attempt(store, 1)

    def body() -> None:
        loop = tss.checkpoint(range(10), every=100)
        for item in loop:
            if item == 5:
                raise RuntimeError

    with pytest.raises(RuntimeError) as kept:
        body()
    gc.collect()
    assert store.task("d", "r", "t").get("position") is None
    tss.flush()
    assert store.task("d", "r", "t").get("position")["position"] == 5
    assert list(attempt(store, 2).checkpoint(range(10))) == [5, 6, 7, 8, 9]
    assert kept.value is not None


def test_a_loop_that_is_left_writes_what_was_held_back(store: StateStore) -> None:
    """When nobody keeps the generator, it is written at once."""
    for item in attempt(store, 1).checkpoint(range(10), every=100):
        if item == 4:
            break
    gc.collect()
    assert store.task("d", "r", "t").get("position")["position"] == 4


def test_closing_the_generator_loses_nothing_when_the_store_fails(keeper: Keeper, clock: ManualClock) -> None:
    """Nobody could catch the error there, so it is told at the end of the attempt, and the write is tried again."""
    checkpoint = Checkpoint(keeper, range(10), "k", clock=clock, every=100)
    loop = iter(checkpoint)
    assert [next(loop) for _ in range(4)] == [0, 1, 2, 3]
    keeper.trouble = BackendUnavailableError("gone", address="x")
    loop.close()  # type: ignore[attr-defined]
    with pytest.raises(BackendUnavailableError):
        checkpoint.flush()
    keeper.trouble = None
    checkpoint.flush()
    assert keeper.written == [3]
    checkpoint.flush()
    assert keeper.written == [3]


def test_an_error_of_the_store_ends_the_loop(keeper: Keeper, clock: ManualClock) -> None:
    """A position that can't be written is not passed over: the body does not get the next item."""
    done: list[int] = []

    def body() -> None:
        for item in Checkpoint(keeper, range(10), "k", clock=clock):
            done.append(item)
            if item == 2:
                keeper.trouble = BackendUnavailableError("gone", address="x")

    with pytest.raises(BackendUnavailableError):
        body()
    assert done == [0, 1, 2]


def test_the_error_of_the_body_comes_through(keeper: Keeper, clock: ManualClock) -> None:
    """With the position written, and as it was raised."""
    checkpoint = Checkpoint(keeper, range(10), "k", clock=clock, every=100)

    def body() -> None:
        loop = iter(checkpoint)
        for item in loop:
            if item == 3:
                loop.throw(ZeroDivisionError("body"))  # type: ignore[attr-defined]

    with pytest.raises(ZeroDivisionError, match="body"):
        body()
    assert keeper.written == [3]


def test_one_checkpoint_that_fails_does_not_keep_others_from_being_written(store: StateStore) -> None:
    """Closing the store writes all it can, then tells of the first trouble."""
    stale = attempt(store, 1)
    others = [store.task("d", "r", name, try_number=1) for name in ("t1", "t2")]
    loops = [tss.checkpoint(range(10), every=100) for tss in (others[0], stale, others[1])]
    for loop in loops:
        next(loop)
        next(loop)
    attempt(store, 2).get("k")
    with pytest.raises(StaleAttemptError):
        store.close()
    for name in ("t1", "t2"):
        assert store.task("d", "r", name).get("position")["position"] == 1


def test_an_item_that_the_body_changes_is_known_as_it_came(store: StateStore) -> None:
    """Its fingerprint is taken before the body gets it."""
    for item in attempt(store, 1).checkpoint([{"n": 1}, {"n": 2}]):
        item["done"] = True
        if item["n"] == 2:
            break
    assert list(attempt(store, 2).checkpoint([{"n": 1}, {"n": 2}])) == [{"n": 2}]


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 3}),
        ("é", "é", "e\u0301"),
        (1, 1, True),
        (1, 1, 1.0),
        ([1, [2]], [1, [2]], [1, 2]),
        (("a", 1), ["a", 1], ("a", 2)),
        (None, None, 0),
        ("\ud800", "\ud800", "\ud801"),
    ],
)
def test_items_are_compared_as_json(
    keeper: Keeper, clock: ManualClock, one: Any, same: Any, other: Any
) -> None:
    """The order of names in a dict does not matter; everything else does."""
    loop = iter(Checkpoint(keeper, [one, 2], "k", clock=clock))
    next(loop)
    next(loop)
    assert list(Checkpoint(keeper, [same, 2], "k", clock=clock)) == [2]
    keeper.stored = {**keeper.stored, "position": 1}
    first_done = Keeper()
    loop = iter(Checkpoint(first_done, [one, 2], "k", clock=clock))
    next(loop)
    next(loop)
    with pytest.raises(CheckpointMismatchError, match="item 1 is now"):
        list(Checkpoint(first_done, [other, 2], "k", clock=clock))


def test_items_that_are_consumed_to_skip_are_not_kept(keeper: Keeper, clock: ManualClock) -> None:
    """A source of any length is skipped in constant memory, and read no further than needed."""
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(1_000_000):
            taken.append(number)
            yield number

    keeper.stored = {"position": 1000, "total": None, "done": False}
    loop = iter(Checkpoint(keeper, numbers(), "k", clock=clock))
    assert next(loop) == 1000
    assert len(taken) == 1001


def test_the_total_is_the_sources_length_or_what_is_said(keeper: Keeper, clock: ManualClock) -> None:
    """Of an iterator it is unknown, unless an attempt before knew it; what is said counts."""

    def stored_total(source: Any, total: int | None = None) -> Any:
        list(Checkpoint(keeper, source, "k", clock=clock, total=total))
        return keeper.stored["total"]

    assert stored_total(iter([1])) is None
    keeper.stored = None
    assert stored_total([1, 2]) == 2
    assert stored_total(iter([1, 2, 3])) == 2
    keeper.stored = None
    assert stored_total([1, 2], total=10) == 10
    keeper.stored = None
    assert stored_total(lambda start: range(start, 3)) is None


def test_a_callable_is_asked_for_the_rest_alone(keeper: Keeper, clock: ManualClock) -> None:
    """Nothing is skipped, so nothing is compared: who seeks knows where."""
    keeper.stored = {"position": 3, "total": 5, "done": False, "fingerprint": "of something else"}
    assert list(Checkpoint(keeper, lambda start: "abcde"[start:], "k", clock=clock)) == ["d", "e"]
    assert keeper.written == [4, 5, 5]


def test_an_error_of_the_source_is_the_sources(keeper: Keeper, clock: ManualClock) -> None:
    """What was done before it is written."""

    def failing() -> Iterator[int]:
        yield 0
        yield 1
        raise OSError("the source broke")

    done: list[int] = []
    with pytest.raises(OSError, match="broke"):
        done.extend(Checkpoint(keeper, failing(), "k", clock=clock, every=100))
    assert keeper.written == [2]
    assert keeper.stored["done"] is False


def test_a_key_is_used_once_in_an_attempt(store: StateStore) -> None:
    """By either kind of loop; the next attempt may use it again."""
    tss = attempt(store, 1)
    tss.checkpoint([1], "pages")
    for again in (tss.checkpoint, tss.acheckpoint):
        with pytest.raises(InvalidInputError, match="'pages' is used twice"):
            again([1], "pages")
    assert list(attempt(store, 2).checkpoint([1], "pages")) == [1]


# --------------------------------------------------------------------------------------- asynchronous loops


async def _stream(*items: Any) -> AsyncIterator[Any]:
    for item in items:
        await asyncio.sleep(0)
        yield item


def test_an_asynchronous_loop_throttles_alike(keeper: Keeper, clock: ManualClock) -> None:
    """Over a plain source and over an asynchronous one."""

    async def work(source: Any) -> None:
        async for _ in Checkpoint(keeper, source, "k", clock=clock, every=2):
            pass

    asyncio.run(work(range(5)))
    assert keeper.written == [2, 4, 5]
    keeper.stored, keeper.written = None, []
    asyncio.run(work(_stream(*range(5))))
    assert keeper.written == [2, 4, 5]
    assert keeper.stored["done"] is True


def test_an_asynchronous_loop_that_is_left_writes_what_was_held_back(
    keeper: Keeper, clock: ManualClock
) -> None:
    """By ``break``, by an exception, or by cancellation."""

    async def until(last: int, leave: Callable[[], Awaitable[bool]]) -> None:
        async for item in Checkpoint(keeper, range(10), "k", clock=clock, every=100):
            if item == last and await leave():
                break

    async def by_break() -> bool:
        return True

    async def by_exception() -> bool:
        raise ZeroDivisionError

    async def by_cancellation() -> None:
        reached = asyncio.Event()

        async def wait() -> bool:
            reached.set()
            await asyncio.Event().wait()
            return False

        task = asyncio.create_task(until(6, wait))
        await reached.wait()
        task.cancel()
        await task

    asyncio.run(until(2, by_break))
    assert keeper.written == [2]
    with pytest.raises(ZeroDivisionError):
        asyncio.run(until(4, by_exception))
    assert keeper.written == [2, 4]
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(by_cancellation())
    assert keeper.written == [2, 4, 6]


def test_a_loop_that_ends_waits_for_what_was_held_back(keeper: Keeper, clock: ManualClock) -> None:
    """The event loop is gone at once after the ``break``; the position is written nevertheless."""
    others = [threading.Event() for _ in range(8)]

    async def work() -> None:
        async for item in Checkpoint(keeper, range(10), "k", clock=clock, every=100):
            if item == 3:
                break
        # all of keepstate's threads are busy, so that the write has to wait for one
        for event in others:
            asyncio.ensure_future(in_thread(event.wait))  # noqa: RUF006 - it outlives the loop
        await asyncio.sleep(0)
        threading.Timer(0.05, lambda: [event.set() for event in others]).start()

    asyncio.run(work())
    assert keeper.written == [3]


def test_an_asynchronous_source_is_checked_too(keeper: Keeper, clock: ManualClock) -> None:
    """Another item, or too few, at the place is a mismatch; nothing is done."""

    async def work(*items: Any) -> list[Any]:
        return [item async for item in Checkpoint(keeper, _stream(*items), "k", clock=clock)]

    assert asyncio.run(work(1, 2)) == [1, 2]
    for items in ((1, 3), (1,), ()):
        with pytest.raises(CheckpointMismatchError):
            asyncio.run(work(*items))
    assert asyncio.run(work(1, 2, 3)) == [3]


def test_a_plain_loop_over_an_asynchronous_source_is_refused(store: StateStore) -> None:
    """It needs ``async for``; nothing is written."""
    with pytest.raises(TypeError):
        list(attempt(store, 1).checkpoint(_stream(1)))
    assert store.task("d", "r", "t").get("position") is None


def test_a_checkpoint_is_iterated_once(store: StateStore) -> None:
    """Two loops over one checkpoint would add up their positions, and skip what neither has done."""
    checkpoint = store.task("etl", "r1", "load", try_number=1).acheckpoint([1, 2, 3])

    async def loop() -> list[int]:
        return [item async for item in checkpoint]

    assert asyncio.run(loop()) == [1, 2, 3]
    with pytest.raises(InvalidInputError, match="iterated twice"):
        asyncio.run(loop())


def test_a_clock_set_back_holds_nothing_back(store: StateStore, clock: ManualClock) -> None:
    """What is due by ``min_interval`` is written, though the clock says that the last write is yet to come."""
    tss = store.task("etl", "r1", "load", try_number=1)
    loop = iter(tss.checkpoint(range(10), min_interval=60))
    next(loop)
    clock.advance(timedelta(hours=-1))
    next(loop)
    assert tss.get("position")["position"] == 1


def test_what_a_source_raises_goes_out_though_the_attempt_is_stale(store: StateStore) -> None:
    """The reason why a loop ended is told, and not that its position could not be written any more."""

    def source() -> Iterator[int]:
        yield 1
        yield 2
        store.task("etl", "r1", "load", try_number=2).get("x")
        raise RuntimeError("the source is gone")

    loop = store.task("etl", "r1", "load", try_number=1).checkpoint(source(), every=100)
    with pytest.raises(RuntimeError, match="the source is gone"):
        list(loop)


def test_a_source_longer_than_any_list_has_no_total(store: StateStore) -> None:
    """A range may be longer than ``len`` can tell."""
    assert next(iter(store.task("etl", "r1", "load").checkpoint(range(10**30)))) == 0
