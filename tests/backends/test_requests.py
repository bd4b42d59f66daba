"""Requests over a network that cuts connections: each applies once, and a `set` is one round trip."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.backends.requests import Batch, Clear, Delete, Fence, HistoryPolicy, Put, Session
from keepstate.clock import system_clock
from keepstate.errors import BackendError, VersionConflictError
from keepstate.scope import TaskScope, Writer
from tests.backends.servers import KINDS, POSTGRES
from tests.backends.stores import open_url, task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keepstate.backends.answers import Applied
    from keepstate.backends.requests import Change
    from keepstate.store import StateStore
    from tests.backends.proxy import Proxy
    from tests.backends.servers import Kind

SCOPE = TaskScope("etl", "2026-11-29", "load")


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    """One kind of server after the other."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def url(kind: Kind, request: pytest.FixtureRequest) -> str:
    """A database there."""
    return str(request.getfixturevalue(f"{kind.name}_url"))


@pytest.fixture
def proxy(kind: Kind, url: str) -> Iterator[Proxy]:
    """A way to the database that can be cut."""
    with kind.through(url) as proxy:
        yield proxy


@pytest.fixture
def store(proxy: Proxy, url: str) -> Iterator[StateStore]:
    """A store at the other end of the proxy."""
    with open_url(proxy.url(url)) as store:
        yield store


def cutting(
    proxy: Proxy, when: Callable[[bytes], bool], *, times: int = 1, early: bool = False
) -> list[bytes]:
    """Cut the next connections that carry such a statement, after the server has got it; return what was cut."""
    cut: list[bytes] = []

    def decide(_: int, statement: bytes) -> bool:
        if len(cut) >= times or not when(statement):
            return False
        cut.append(statement)
        return True

    if early:
        proxy.on_question = decide
    else:
        proxy.on_answer = decide
    return cut


# ------------------------------------------------------------------------------------------------ round trips


def warm_up(use: Callable[[], object]) -> None:
    """Do something until the driver has had its statement prepared, trimming and all."""
    for _ in range(150):
        use()


only_postgres = pytest.mark.parametrize("kind", [POSTGRES], ids=["postgres"])


@only_postgres
def test_a_set_is_one_round_trip(proxy: Proxy, store: StateStore) -> None:
    """By an attempt that has used the store before, or by a person; over a new key and an old one, its history trimmed.

    But for the one, on each connection, that has the server prepare the statement.
    """
    for tss in (task(store, try_number=1), task(store)):
        warm_up(lambda tss=tss: tss.set("page", 0))
        for number in range(60):
            before = proxy.round_trips
            tss.set("page", number)
            assert proxy.round_trips - before == 1
        before = proxy.round_trips
        for number in range(20):
            tss.set(f"k{number}", {"page": number, "done": [True] * number})
        assert proxy.round_trips - before == 20
        assert [one.value for one in tss.history("page")] == list(range(59, 39, -1))


def test_a_get_is_one_round_trip(proxy: Proxy, store: StateStore) -> None:
    """Of one key, of several, of all, and of an absent one."""
    tss = task(store, try_number=1)
    tss.set_many({"a": 1, "b": 2})
    for read in (
        lambda: tss.get("a"),
        lambda: tss.get("absent"),
        lambda: tss.entry("a"),
        lambda: tss.get_many(["a", "b"]),
        tss.items,
    ):
        warm_up(read)
        before = proxy.round_trips
        read()
        assert proxy.round_trips - before == 1


@only_postgres
def test_the_first_use_of_an_attempt_takes_more(proxy: Proxy, store: StateStore) -> None:
    """It registers; from then on its writes are one round trip each."""
    earlier = task(store, try_number=1)
    warm_up(lambda: earlier.set("page", 1))
    tss = task(store, try_number=2)
    before = proxy.round_trips
    tss.set("page", 2)
    assert proxy.round_trips - before > 1
    before = proxy.round_trips
    tss.set("page", 3)
    assert proxy.round_trips - before == 1


# ------------------------------------------------------------------------------- answers lost on the way back

WRITES: dict[str, Callable[[Any, Any], object]] = {
    "set": lambda tss, _: tss.set("n", 1),
    "set over a version": lambda tss, version: tss.set("n", 1, if_version=version),
    "set_many": lambda tss, _: tss.set_many({"n": 1, "m": 1}),
    "increment": lambda tss, _: tss.increment("n"),
    "update": lambda tss, _: tss.update("n", lambda n: n + 1),
}


@pytest.mark.parametrize("early", [False, True], ids=["answer lost", "connection cut while the server works"])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("verb", WRITES)
def test_a_write_whose_answer_is_lost_applies_once(
    kind: Kind, proxy: Proxy, store: StateStore, verb: str, times: int, early: bool
) -> None:
    """Though it is sent again: the value and the version are those of one write, and nobody hears of it."""
    tss = task(store, try_number=1)
    tss.set("n", 0)
    version = tss.entry("n").version
    write, statement = WRITES[verb], kind.set_by if verb == "set" else b"COMMIT"
    cut = cutting(proxy, lambda said: statement in said, times=times, early=early)
    write(tss, version)
    assert len(cut) == times
    entry = tss.entry("n")
    assert (entry.value, entry.version) == (1, version + 1)
    assert [(one.version, one.value) for one in tss.history("n")] == [(version + 1, 1), (version, 0)]


@pytest.mark.parametrize("verb", ["delete", "clear", "clear forget", "restore"])
def test_a_removal_whose_answer_is_lost_applies_once(proxy: Proxy, store: StateStore, verb: str) -> None:
    """One version is drawn for it."""
    tss = task(store, try_number=1)
    tss.set("n", 0)
    tss.set("n", 1)
    cut = cutting(proxy, lambda said: b"COMMIT" in said)
    {
        "delete": lambda: tss.delete("n"),
        "clear": tss.clear,
        "clear forget": lambda: tss.clear(forget=True),
        "restore": lambda: tss.restore("n", 1),
    }[verb]()
    assert len(cut) == 1
    tss.set("after", 1)
    assert tss.entry("after").version == 4
    assert tss.get("n") == (0 if verb == "restore" else None)


@pytest.mark.parametrize("statement", [None, b"FOR UPDATE", b"UPDATE keepstate_scope", b"INTO keepstate_log"])
def test_a_transaction_that_is_cut_in_the_middle_is_done_again(
    kind: Kind, proxy: Proxy, store: StateStore, statement: bytes | None
) -> None:
    """Whatever part of it had been done is undone by the server."""
    tss = task(store, try_number=1)
    tss.set("n", 0)
    cut = cutting(proxy, lambda said: (statement or kind.begin) in said)
    assert tss.increment("n") == 1
    assert len(cut) == 1
    assert (tss.get("n"), tss.entry("n").version) == (1, 2)


def test_a_third_of_all_answers_is_lost(kind: Kind, proxy: Proxy, store: StateStore) -> None:
    """Sixty increments by four threads over such a line are sixty."""
    dice = random.Random(7)
    lock = threading.Lock()

    def lose(_: int, statement: bytes) -> bool:
        if b"COMMIT" not in statement and kind.set_by not in statement:
            return False
        with lock:
            return dice.random() < 1 / 3

    task(store).set("n", 0)
    proxy.on_answer = lose
    with ThreadPoolExecutor(4) as pool:
        sums = list(pool.map(lambda _: task(store).increment("n"), range(60)))
    proxy.on_answer = lambda number, statement: False
    assert sorted(sums) == list(range(1, 61))
    assert task(store).entry("n").version == 61
    assert proxy.connections > 15


def test_a_conflict_is_a_conflict_though_the_answer_is_lost(proxy: Proxy, store: StateStore) -> None:
    """A request that was refused is refused when it is sent again."""
    tss = task(store)
    tss.set("n", 0)
    tss.set("n", 1)
    cut = cutting(proxy, lambda said: b"ROLLBACK" in said)
    with pytest.raises(VersionConflictError):
        tss.set("n", 2, if_version=1)
    assert len(cut) == 1
    assert tss.get("n") == 1


# ------------------------------------------------------------------------------------------- session numbers


def batch(number: int, *changes: Change, session: str = "client", fence: Fence | None = None) -> Batch:
    """Return a numbered request, of which a copy is what a client sends again."""
    return Batch(SCOPE, changes, system_clock(), Writer("api"), fence=fence, session=Session(session, number))


ONE = (Put("n", "1", None),)
SEVERAL = (Put("n", "1", None), Put("m", "1", None))
COMPARED = (Put("n", "1", None, expected=1),)
GONE = (Delete("n"),)


@pytest.mark.parametrize(
    "changes", [ONE, SEVERAL, COMPARED, GONE], ids=["one", "several", "compared", "delete"]
)
def test_the_same_number_applies_once(store: StateStore, changes: tuple[Change, ...]) -> None:
    """Sent again, it gets the answer of the first time; the next number applies."""
    task(store).set("n", 0)
    first = store.backend.apply(batch(1, *changes))
    assert (first.version, first.repeated) == (2, False)
    for _ in range(3):
        again = store.backend.apply(batch(1, *changes))
        assert (again.version, again.incarnation, again.repeated) == (2, 1, True)
    assert store.backend.apply(batch(2, *ONE)).version == 3


@pytest.mark.parametrize(
    "changes", [ONE, SEVERAL, COMPARED, GONE], ids=["one", "several", "compared", "delete"]
)
def test_the_same_number_applies_once_at_the_same_time(
    store: StateStore, changes: tuple[Change, ...]
) -> None:
    """Eight copies at once, however they meet: one applies, and all get its answer."""
    task(store).set("n", 0)
    for number in range(1, 13):
        expected = task(store).entry("n")
        these = changes
        if changes is COMPARED:
            these = (Put("n", "1", None, expected=expected.version if expected else 0),)
        elif changes is GONE:
            task(store).set("n", 0)
        before = store.backend.read(SCOPE, [], now=0).version
        barrier = threading.Barrier(8)

        def send(_: int, number: int = number, these: Any = these, barrier: Any = barrier) -> Applied:
            barrier.wait()
            return store.backend.apply(batch(number, *these))

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(send, range(8)))
        assert {answer.version for answer in answers} == {before + 1}
        assert [answer.repeated for answer in answers].count(False) == 1


def test_both_ways_of_writing_share_the_numbers(store: StateStore) -> None:
    """What the single statement has applied, the transaction knows, and the other way round."""
    task(store).set("n", 0)
    assert not store.backend.apply(batch(1, *ONE)).repeated
    assert store.backend.apply(batch(1, *SEVERAL)).repeated
    assert not store.backend.apply(batch(2, *SEVERAL)).repeated
    assert store.backend.apply(batch(2, *ONE)).repeated
    assert task(store).get("m") == 1


def test_an_earlier_number_is_refused(store: StateStore) -> None:
    """A request that comes after its successors can't be told from one that was applied: it changes nothing."""
    task(store).set("n", 0)
    store.backend.apply(batch(5, *ONE))
    for changes in (ONE, SEVERAL):
        with pytest.raises(BackendError, match="must come one after another") as caught:
            store.backend.apply(batch(4, *changes))
        assert caught.value.address == store.backend.address
    assert task(store).entry("n").version == 2


def test_a_clear_is_numbered_too(store: StateStore) -> None:
    """Between two copies of it somebody wrote: that stays."""
    task(store).set("n", 0)
    request = Clear(
        SCOPE, system_clock(), Writer("api"), session=Session("client", 1), history=HistoryPolicy()
    )
    assert store.backend.clear(request).version == 2
    task(store).set("n", 1)
    assert store.backend.clear(request).repeated
    assert task(store).get("n") == 1


def test_sessions_are_as_many_as_requests_at_once(kind: Kind, store: StateStore, url: str) -> None:
    """Not as many as threads: a server that starts a thread for each request leaves no trail of them."""
    for number in range(30):
        thread = threading.Thread(target=task(store).set, args=("n", number))
        thread.start()
        thread.join()
    assert kind.ask(url, "SELECT COUNT(*), MAX(number) FROM keepstate_session") == [(1, 30)]
