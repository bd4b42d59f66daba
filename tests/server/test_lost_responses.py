"""A network that loses, cuts, delays and doubles messages: whatever it does, a change applies once, or is said to be unsure."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.backends.requests import Begin, End, Fence, Holder
from keepstate.connect import connect
from keepstate.errors import BackendUnavailableError, VersionConflictError
from keepstate.scope import TaskScope
from keepstate.settings import Settings
from tests.backends.stores import task
from tests.support.chaos import FATES, Chaos
from tests.support.served import serving_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from keepstate.store import StateStore
    from tests.support.served import Served

THREADS = 4
HOLDER = Holder("h", 1, "then")


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def behind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateStore]:
    """A store of each kind that a server has behind it."""
    url = (
        f"sqlite:///{tmp_path / 'keepstate.db'}"
        if request.param == "sqlite"
        else str(request.getfixturevalue(f"{request.param}_url"))
    )
    with connect(url, settings=Settings()) as store:
        yield store


@pytest.fixture
def served(behind: StateStore) -> Iterator[Served]:
    """That store, served."""
    with serving_store(behind) as served:
        yield served


@contextmanager
def through(
    served: Served, *, seed: int = 0, trouble: float = 0.0, timeout: float = 60
) -> Iterator[tuple[Chaos, StateStore]]:
    """Open the store behind the server, on the far side of the network."""
    settings = Settings(token=served.token("admin"), retry_timeout=timeout)
    with (
        Chaos(served.url, seed=seed, trouble=trouble) as network,
        connect(network.url, settings=settings) as store,
    ):
        yield network, store


def in_threads(*works: Callable[[], Any]) -> None:
    """Do things at the same time; raise what one of them raised."""
    errors: list[BaseException] = []

    def run(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as exc:  # noqa: BLE001 - raised again below
            errors.append(exc)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Worker:
    """Changes a task instance of its own in every way, and knows what must come of it."""

    def __init__(self, store: StateStore, number: int) -> None:
        self.store = store
        self.name = f"task {number}"
        self.tss = task(store, self.name, try_number=1)
        self.scope = TaskScope("etl", "2026-11-29", self.name)
        self.version = 0
        self.sum = 0
        self.won = 0

    def work(self, rounds: int) -> None:
        """Make ``rounds`` changes of each kind, and compare each answer with what it must be."""
        for turn in range(rounds):
            assert self.tss.increment("n") == self.sum + 1
            self.sum += 1
            self.version += 1
            self.tss.set("won", turn, if_version=self.won)
            self.version += 1
            self.won = self.version
            with pytest.raises(VersionConflictError):
                self.tss.set("won", "never", if_version=self.version + 7)
            self.tss.set_many({"left": turn, "right": turn})
            self.version += 1
            self.tss.update("pages", lambda pages, turn=turn: [*pages, turn], [])
            self.version += 1
            self.tss.delete("left")
            self.version += 1
            found = self.tss.get_many(["n", "left", "right"])
            assert found == {"n": self.sum, "right": turn}

    def check(self, behind: StateStore, rounds: int) -> None:
        """What is stored is what was said to be, and each change made one version."""
        found = task(behind, self.name)
        assert dict(found.items()) == {
            "n": rounds,
            "won": rounds - 1,
            "right": rounds - 1,
            "pages": list(range(rounds)),
        }
        assert behind.backend.read(self.scope, [], now=0).version == self.version == 5 * rounds
        versions = [one.version for one in found.history("n")]
        assert versions == sorted(set(versions), reverse=True)


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40))]
)
def test_every_change_applies_once(served: Served, behind: StateStore, seed: int) -> None:
    """Increments, compare-and-set, batches, updates and deletions of several threads, with one message in three in trouble."""
    rounds = 6
    with through(served, seed=seed, trouble=0.33) as (network, store):
        workers = [Worker(store, number) for number in range(THREADS)]
        in_threads(*(lambda worker=worker: worker.work(rounds) for worker in workers))
        assert set(FATES) <= set(network.met)
    for worker in workers:
        worker.check(behind, rounds)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))])
def test_no_increment_of_a_shared_number_is_lost_or_doubled(
    served: Served, behind: StateStore, seed: int
) -> None:
    """Every thread gets sums of its own, and together they are all numbers from 1 on."""
    rounds, sums = 6, []
    with through(served, seed=seed, trouble=0.33) as (_, store):

        def work() -> None:
            tss = task(store, try_number=1, attempt_id="one")
            sums.extend(tss.increment("n") for _ in range(rounds))

        in_threads(*[work] * THREADS)
    assert sorted(sums) == list(range(1, THREADS * rounds + 1))
    entry = task(behind).entry("n")
    assert entry is not None
    assert entry.value == entry.version == THREADS * rounds


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))])
def test_attempts_begin_and_end_once(served: Served, behind: StateStore, seed: int) -> None:
    """Each has a number of its own, and an end; runs are deleted once, and what is made again stays."""
    rounds = 8
    with through(served, seed=seed, trouble=0.33) as (_, store):

        def work(number: int) -> None:
            scope = TaskScope("etl", f"run {number}", "load")
            for turn in range(1, rounds + 1):
                begun = store.backend.begin(Begin(scope, str(uuid.uuid4()), HOLDER, 0, 60_000_000))
                assert begun.try_number == turn
                fence = Fence(turn, None, None, begun.incarnation)
                store.backend.beat(scope, fence, now=0)
                store.backend.end(End(scope, fence, "failed", 0, reason=f"turn {turn}"))
            assert store.delete_run("etl", f"run {number}") == 1
            store.task("etl", f"run {number}", "load").set("made", "again")

        in_threads(*(lambda number=number: work(number) for number in range(THREADS)))
    for number in range(THREADS):
        scope = TaskScope("etl", f"run {number}", "load")
        assert dict(behind.task("etl", f"run {number}", "load").items()) == {"made": "again"}
        known = behind.backend.attempts(scope)
        assert len({one.try_number for one in known}) == len(known)


# -------------------------------------------------------------------------------------------------- given up


@pytest.mark.parametrize("fate", ["request lost", "answer lost", "answer cut", "reset"])
def test_after_the_time_allowed_it_is_unavailable(served: Served, behind: StateStore, fate: str) -> None:
    """Soon, with the address and the cause. A change was made as a whole or not at all, and once; later all works again."""
    task(behind).set_many({"left": 0, "right": 0})
    with through(served, timeout=1.0) as (network, store):
        tss = task(store)
        assert tss.get("left") == 0
        network.choose = lambda request: fate
        began = time.monotonic()
        with pytest.raises(BackendUnavailableError, match=r"within 1 s: .*KEEPSTATE_RETRY_TIMEOUT") as caught:
            tss.set_many({"left": 1, "right": 1})
        assert 1.0 <= time.monotonic() - began < 4.0
        assert caught.value.address == network.url
        assert caught.value.__cause__ is not None
        assert network.met[fate] > 2
        stands = dict(task(behind).items())
        # what the server has never seen was not done; what it has answered was
        arrived = fate in {"answer lost", "answer cut"}
        assert stands == ({"left": 1, "right": 1} if arrived else {"left": 0, "right": 0})
        network.choose = lambda request: "passed"
        version = 2 if arrived else 1
        for turn in range(2, 5):
            tss.set_many({"left": turn, "right": turn})
            entry = tss.entry("left")
            assert entry is not None
            assert (entry.value, entry.version) == (turn, version + turn - 1)


def test_a_change_that_was_given_up_does_not_come_late(served: Served, behind: StateStore) -> None:
    """When the caller has gone on, what it had sent before is not applied any more, should it arrive yet."""
    held: list[bytes] = []
    with through(served, timeout=0.3) as (network, store):
        tss = task(store)
        tss.set("k", "before")

        def hold(request: bytes) -> str:
            held.append(request)
            return "request lost"

        network.choose = hold
        with pytest.raises(BackendUnavailableError):
            tss.set("k", "given up")
        network.choose = lambda request: "passed"
        tss.set("k", "after")
        network._ask_apart(held[0])
        assert tss.get("k") == "after"
        entry = tss.entry("k")
        assert entry is not None
        assert entry.version == 2


def test_a_server_that_hangs_is_noticed(served: Served) -> None:
    """Though the connection stands: within the time allowed, and a try is not waited for longer than that."""
    go_on = threading.Event()
    with through(served, timeout=1.0) as (network, store):
        task(store).set("k", 1)

        def hang(_: bytes) -> str:
            go_on.wait(20)
            return "request lost"

        network.choose = hang
        began = time.monotonic()
        try:
            with pytest.raises(BackendUnavailableError, match="TimeoutError"):
                task(store).get("k")
            assert time.monotonic() - began < 4.0
        finally:
            go_on.set()
