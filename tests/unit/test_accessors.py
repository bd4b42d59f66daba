"""What accessors and the store do besides storing: twins, warnings, upkeep."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.accessors import AssetStateStore, TaskStateStore
from keepstate.backends.memory import MemoryBackend
from keepstate.connect import connect
from keepstate.errors import BackendUnavailableError, UnsupportedError
from keepstate.settings import Settings
from keepstate.store import StateStore, new_attempt_id
from keepstate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keepstate.backends.answers import Applied
    from keepstate.backends.requests import Batch
    from keepstate.scope import CleanupReport

# not verbs of task code: what jobs use inside, and what is its own twin already
NO_VERBS = {"swap", "peek", "checkpoint"}


@pytest.fixture
def clock() -> ManualClock:
    """Time, which a test moves."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[StateStore]:
    """A store in memory."""
    with connect("memory:", settings=Settings(), clock=clock) as store:
        yield store


@pytest.mark.parametrize("cls", [TaskStateStore, AssetStateStore])
def test_every_verb_has_its_twin(cls: type[TaskStateStore | AssetStateStore]) -> None:
    """With the same parameters, as a coroutine function; and no twin is without its verb."""
    public = {name for name, value in inspect.getmembers(cls, callable) if not name.startswith("_")}
    twins = {name for name in public if inspect.iscoroutinefunction(getattr(cls, name))}
    verbs = public - twins - NO_VERBS - {"acheckpoint"}
    assert {f"a{name}" for name in verbs} == twins
    for name in verbs:
        verb, twin = getattr(cls, name), getattr(cls, f"a{name}")
        assert inspect.signature(verb) == inspect.signature(twin)
        assert twin.__name__ == f"a{name}"
        assert twin.__qualname__.endswith(f".a{name}")
        assert f"`{name}`" in (twin.__doc__ or "")
    plain, awaited = (inspect.signature(getattr(cls, name)) for name in ("checkpoint", "acheckpoint"))
    assert plain.parameters == awaited.parameters


def test_the_guides_four_have_the_guides_parameters() -> None:
    """Names, order, defaults, and what is keyword-only."""

    def shape(name: str, count: int) -> list[tuple[str, Any, Any]]:
        parameters = list(inspect.signature(getattr(TaskStateStore, name)).parameters.values())[1 : count + 1]
        return [(one.name, one.kind, one.default) for one in parameters]

    positional, keyword, empty = (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.empty,
    )
    assert shape("get", 2) == [("key", positional, empty), ("default", positional, None)]
    assert shape("set", 3) == [
        ("key", positional, empty),
        ("value", positional, empty),
        ("retention", keyword, None),
    ]
    assert shape("delete", 1) == [("key", positional, empty)]
    # what is beyond the guide is never in the way of a positional argument
    assert shape("clear", 1) == [("forget", keyword, False)]


def test_a_slow_store_does_not_block_the_loop() -> None:
    """While a twin waits for the store, the loop goes on."""
    reached, release = threading.Event(), threading.Event()

    class Slow(MemoryBackend):
        def apply(self, batch: Batch) -> Applied:
            reached.set()
            assert release.wait(30)
            return super().apply(batch)

    async def work() -> list[str]:
        said = []
        tss = StateStore(Slow(), settings=Settings(), clock=ManualClock()).task("d", "r", "t")
        task = asyncio.create_task(tss.aset("k", 1))
        assert await asyncio.to_thread(reached.wait, 30)
        said.append("the loop went on")
        release.set()
        await task
        said.append("the write is done")
        return [*said, await tss.aget("k")]

    assert asyncio.run(work()) == ["the loop went on", "the write is done", 1]


def test_a_cancelled_await_may_still_have_applied() -> None:
    """What has begun is not stopped, nor half done."""
    reached, release, done = threading.Event(), threading.Event(), threading.Event()

    class Slow(MemoryBackend):
        def apply(self, batch: Batch) -> Applied:
            reached.set()
            assert release.wait(30)
            applied = super().apply(batch)
            done.set()
            return applied

    store = StateStore(Slow(), settings=Settings(), clock=ManualClock())

    async def work() -> None:
        task = asyncio.create_task(store.task("d", "r", "t").aset("k", 1))
        assert await asyncio.to_thread(reached.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()

    asyncio.run(work())
    assert done.wait(30)
    assert store.task("d", "r", "t").get("k") == 1


def test_accessors_say_what_they_are(store: StateStore) -> None:
    """In logs and debuggers."""
    assert repr(store.task("etl", "r1", "load", map_index=2, try_number=3)) == (
        "<TaskStateStore etl / r1 / load [2], attempt 3>"
    )
    assert repr(store.task("etl", "r1", "load")) == "<TaskStateStore etl / r1 / load>"
    assert repr(store.asset("orders")) == "<AssetStateStore asset orders>"


def test_updates_contend_and_all_get_through(store: StateStore) -> None:
    """A function that takes its time is run again when somebody came between, and loses nothing."""
    tss = store.task("d", "r", "t")
    runs: list[int] = []
    first_read = threading.Event()

    def slow(value: list[str]) -> list[str]:
        runs.append(1)
        if len(runs) == 1:
            first_read.set()
            while tss.get("k") is None:
                time.sleep(0)
        return [*value, "slow"]

    def fast() -> None:
        assert first_read.wait(30)
        tss.set("k", ["fast"])

    thread = threading.Thread(target=fast)
    thread.start()
    assert tss.update("k", slow, []) == ["fast", "slow"]
    thread.join()
    assert len(runs) == 2


def test_an_embedded_store_cleans_up_after_so_many_writes(clock: ManualClock) -> None:
    """By itself, so that expired entries never pile up; a cleanup that fails is logged, and the write has worked."""
    purges: list[int] = []

    class Watched(MemoryBackend):
        trouble = False

        def purge(self, *, now: int, **more: Any) -> Iterator[CleanupReport]:
            purges.append(now)
            if self.trouble:
                raise BackendUnavailableError("gone", address="x")
            return super().purge(now=now, **more)

    backend = Watched()
    store = StateStore(backend, settings=Settings(), clock=clock, purges_itself=True)
    tss = store.task("d", "r", "t")
    tss.set("old", 1, retention=timedelta(hours=1))
    clock.advance(timedelta(hours=1))
    for number in range(248):
        tss.set("k", number)
    assert purges == []
    tss.set("k", 248)
    assert purges == [clock()]
    assert store.cleanup(dry_run=True).entries == 0


def test_what_a_write_cleans_up_is_in_proportion(clock: ManualClock) -> None:
    """One small batch at a time, and twice as much as was written where that is more."""
    batches: list[int] = []

    class Watched(MemoryBackend):
        def purge(self, *, batch_size: int, **more: Any) -> Iterator[CleanupReport]:
            batches.append(batch_size)
            return super().purge(batch_size=batch_size, **more)

    store = StateStore(Watched(), settings=Settings(), clock=clock, purges_itself=True)
    tss = store.task("d", "r", "t")
    tss.set_many({f"k{number}": 1 for number in range(1000)}, retention=timedelta(hours=1))
    assert batches == [2000]
    clock.advance(timedelta(hours=1))
    for number in range(250):
        tss.set("page", number)
    assert batches == [2000, 500]
    assert store.cleanup(dry_run=True).entries == 500
    # while there is more to remove, it comes back sooner
    for number in range(50):
        tss.set("page", number)
    assert batches[-1] == 100
    assert store.cleanup(dry_run=True).entries == 400


def test_a_cleanup_that_fails_by_itself_is_logged(
    store: StateStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote wanted something else."""

    def fail(**_: Any) -> Iterator[CleanupReport]:
        raise BackendUnavailableError("gone", address="x")

    monkeypatch.setattr(store.backend, "purge", fail)
    store.purge_quietly()
    assert "cleanup of memory: failed, and will be tried again: gone" in caplog.text
    with pytest.raises(BackendUnavailableError):
        store.cleanup()


def test_swapping_writes_and_removes_together(store: StateStore) -> None:
    """One version, for jobs; nothing to do is no request."""
    tss = store.task("d", "r", "t", try_number=1)
    tss.set("old", 1)
    tss.swap({"a": 1, "b": 2}, drop=["old", "absent"])
    assert {entry.key: entry.version for entry in tss.entries()} == {"a": 2, "b": 2}
    tss.swap({})
    tss.set("c", 3)
    assert [entry.version for entry in tss.entries() if entry.key == "c"] == [3]


def test_a_new_attempts_id_is_a_uuid7_of_now(clock: ManualClock) -> None:
    """Ids of later attempts compare as later; two of one moment differ."""
    one, other = new_attempt_id(clock), new_attempt_id(clock)
    assert one != other
    assert one[14] == other[14] == "7"
    assert one[19] in "89ab"
    assert int(one.replace("-", "")[:12], 16) == clock() // 1000
    clock.advance(timedelta(milliseconds=1))
    assert new_attempt_id(clock) > max(one, other)


def test_a_store_is_a_context_manager(clock: ManualClock) -> None:
    """It flushes and closes on leaving, also when the block failed, whose error comes through."""
    closed: list[int] = []

    class Watched(MemoryBackend):
        def close(self) -> None:
            closed.append(1)

    store = StateStore(Watched(), settings=Settings(), clock=clock)
    loop = store.task("d", "r", "t", try_number=1).checkpoint([1, 2], every=100)

    def leave() -> None:
        with store:
            next(loop)
            next(loop)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave()
    assert closed == [1]
    assert store.task("d", "r", "t").get("position")["position"] == 1


def test_a_custom_class_is_refused_in_words(clock: ManualClock) -> None:
    """The error says what to unset."""
    from keepstate.backends.custom import CustomBackend
    from tests.support.custom_class import DictStore

    store = StateStore(CustomBackend(DictStore(), keeper=MemoryBackend), settings=Settings(), clock=clock)
    with pytest.raises(UnsupportedError, match="Unset AIRFLOW__STATE_STORE__BACKEND"):
        store.task("d", "r", "t").increment("n")


def test_accessors_are_not_kept_alive_by_the_store(store: StateStore) -> None:
    """A long-running worker makes many; each goes with its last user."""
    import gc
    import weakref

    make: Callable[[], weakref.ref[TaskStateStore]] = lambda: weakref.ref(store.task("d", "r", "t"))
    gone = make()
    gc.collect()
    assert gone() is None
