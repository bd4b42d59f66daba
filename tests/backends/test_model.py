"""Random operations of several attempts against a plain model of what keepstate promises, on every backend.

The model is written from the promises (docs and `backends/base.py`), not from any backend: lists and dicts, no
transactions, no clean-up of its own but for what a cleanup may be seen to do.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from keepstate.connect import connect
from keepstate.errors import StaleAttemptError, VersionConflictError, VersionNotFoundError
from keepstate.retention import NEVER_EXPIRE
from keepstate.settings import Settings
from keepstate.testing import ManualClock
from tests.support.detour import detour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore

HISTORY_LIMIT = 3
HISTORY = timedelta(days=2)
DEFAULT_RETENTION = timedelta(days=30)
KNOWN_AS_DELETED = timedelta(days=7)
KEYS = ["a", "b", "n", "position"]
ITEMS = 6

Moment = Any  # a datetime; None for never


# ------------------------------------------------------------------------------------------------- the model


@dataclass
class Held:
    """What stands under a key: an entry, or the mark that one was removed."""

    value: Any
    version: int
    expires: Moment
    removed: bool = False

    def gone(self, now: Any) -> bool:
        return self.expires is not None and self.expires <= now


@dataclass
class Past:
    version: int
    action: str
    value: Any
    expires: Moment


@dataclass
class Who:
    """An attempt as its process knows it: ``order`` is when its id was made, if it has one that tells."""

    try_number: int
    id: str | None
    order: int | None
    item: str | None
    registered_in: int | None = None


@dataclass
class TaskInstance:
    """Everything that the promises speak of."""

    incarnation: int = 1
    version: int = 0
    held: dict[str, Held] = field(default_factory=dict)
    past: dict[str, list[Past]] = field(default_factory=dict)
    current: Who | None = None
    last: Who | None = None
    seen: list[tuple[int, int, str]] = field(default_factory=list)
    item: str | None = None
    deleted_at: Moment = None
    changed_at: Moment = None

    # -- who may

    def let_write(self, who: Who | None, now: Any) -> None:
        """Let an attempt, or a person, write; or raise."""
        if self.changed_at is None:
            self.changed_at = now
        if who is None:
            if self.deleted_at is not None:
                self.deleted_at, self.current, self.item = None, None, None
                self.incarnation += 1
                self.changed_at = now
            return
        what = self.what_is(who)
        if what == "stale":
            raise StaleAttemptError("")
        if what == "current":
            if self.item is None and who.registered_in is None:
                self.item = who.item
            return
        # who was let in before and idled, until nobody knew of it, is where it was
        self.incarnation = max(self.incarnation, who.registered_in or 0)
        if what == "new run" or self.has_other_item(who):
            self.incarnation += 1
            self.item = None
            self.remove_all("reset", now)
        self.deleted_at = None
        self.current = self.last = who
        self.item = who.item or self.item
        self.changed_at = now
        if who.id is not None:
            self.seen.append((self.incarnation, who.try_number, who.id))

    def let_read(self, who: Who | None, now: Any) -> None:
        """Let an attempt read: a superseded one too, as long as its incarnation lasts."""
        if who is None:
            return
        if self.what_is(who) != "stale":
            self.let_write(who, now)
            return
        where = self.where_seen(who)
        if (
            self.deleted_at is not None
            or self.current is None
            or self.has_other_item(who)
            or who.registered_in not in (None, self.incarnation)
            or (where is not None and where < self.incarnation)
            or (where is None and who.try_number == self.current.try_number)
        ):
            raise StaleAttemptError("")

    def has_other_item(self, who: Who) -> bool:
        return None not in (who.item, self.item) and who.item != self.item

    def what_is(self, who: Who) -> str:  # noqa: C901, PLR0911 - one line per rule
        if self.incarnation == 1 and self.current is None and self.deleted_at is None:
            return "newer"
        if who.registered_in not in (None, self.incarnation):
            return "stale"
        ran_before = who.id is not None and (
            (self.last is not None and (who.id == self.last.id or older(who, self.last)))
            or self.where_seen(who) is not None
        )
        if self.deleted_at is not None:
            return "stale" if who.registered_in is not None or ran_before else "new run"
        if self.current is None:
            return "stale" if ran_before else "newer"
        same_try = who.try_number == self.current.try_number
        if same_try and (who.id == self.current.id or None in (who.id, self.current.id)):
            return "current"
        if who.registered_in is not None and self.has_other_item(who):
            return "stale"
        if who.id is not None:
            where = self.where_seen(who)
            if where is not None and (where < self.incarnation or same_try):
                return "stale"
            unheard_of = where is None and who.registered_in is None
            if who.try_number == 1 and unheard_of and older(self.current, who):
                return "new run"
            if same_try:
                return "stale" if older(who, self.current) else "newer"
        return "newer" if who.try_number > self.current.try_number else "stale"

    def where_seen(self, who: Who) -> int | None:
        found = [one[0] for one in self.seen if one[1:] == (who.try_number, who.id)]
        return max(found) if found else None

    # -- what there is

    def alive(self, now: Any) -> dict[str, Held]:
        if self.deleted_at is not None:
            return {}
        return {key: held for key, held in self.held.items() if not held.removed and not held.gone(now)}

    def history(self, key: str, now: Any) -> list[Past]:
        held = self.held.get(key)
        if held is None or held.gone(now):
            return []
        return [one for one in self.past[key] if one.expires is None or one.expires > now]

    # -- changes

    def put(self, values: dict[str, Any], expires: Moment, now: Any) -> None:
        self.change(now)
        for key, value in values.items():
            self.note(key, Past(self.version, "set", value, expires), now)
            self.held[key] = Held(value, self.version, expires)

    def remove(self, key: str, now: Any) -> None:
        if key in self.alive(now):
            self.change(now)
            self.bury(key, "delete", now)

    def remove_all(self, action: str, now: Any) -> None:
        alive = self.alive(now)
        if alive:
            self.change(now)
        for key in alive:
            self.bury(key, action, now)

    def forget(self, now: Any) -> None:
        self.change(now)
        self.held.clear()
        self.past.clear()

    def change(self, now: Any) -> None:
        self.version += 1
        self.changed_at = now

    def bury(self, key: str, action: str, now: Any) -> None:
        self.note(key, Past(self.version, action, None, now + HISTORY), now)
        self.held[key] = Held(None, self.version, now + HISTORY, removed=True)

    def note(self, key: str, past: Past, now: Any) -> None:
        held = self.held.get(key)
        earlier = [] if held is None or held.gone(now) else self.past[key]
        self.past[key] = [past, *earlier][:HISTORY_LIMIT]

    def delete_run(self, now: Any) -> None:
        self.held.clear()
        self.past.clear()
        self.item = None
        self.deleted_at = self.changed_at = now

    def clean(self, now: Any) -> None:
        """Drop what can't be seen any more; it then makes room for earlier versions."""
        for key in [key for key, held in self.held.items() if held.gone(now)]:
            del self.held[key], self.past[key]
        for key, past in self.past.items():
            self.past[key] = [one for one in past if one.expires is None or one.expires > now]

    def is_forgotten(self, now: Any) -> bool:
        """Whether a cleanup may drop it altogether."""
        if self.changed_at is None:
            return False
        if self.deleted_at is not None:
            return bool(self.deleted_at + KNOWN_AS_DELETED <= now)
        return not self.held and bool(self.changed_at + DEFAULT_RETENTION <= now)


def older(one: Who, other: Who) -> bool:
    """Whether ids tell that one attempt was made before another."""
    return one.order is not None and other.order is not None and one.order < other.order


# ----------------------------------------------------------------------------------------------- the machine


@dataclass
class Attempt:
    """An attempt in the model, and the accessor that plays it; neither for a person."""

    who: Who | None
    tss: TaskStateStore


values = st.one_of(
    st.integers(-5, 5),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.text(max_size=2), st.none() | st.text(max_size=2), max_size=2),
)
retentions = st.sampled_from([None, None, NEVER_EXPIRE, timedelta(hours=1), timedelta(days=3)])
keys = st.sampled_from(["a", "b"])
steps = st.sampled_from(
    [timedelta(seconds=1), timedelta(hours=1), timedelta(days=1), timedelta(days=3), timedelta(days=31)]
)


class Machine(RuleBasedStateMachine):
    """One task instance, seen by a person and by attempts, some of which are late, remade or superseded."""

    attempts = Bundle("attempts")

    def __init__(self, store: StateStore, clock: ManualClock, number: int) -> None:
        super().__init__()
        self.store, self.clock = store, clock
        self.scope = (f"dag {number}", "run", "task")
        self.model = TaskInstance()
        self.person = store.task(*self.scope)
        self.made = 0

    # -- attempts

    @rule(target=attempts)
    def somebody(self) -> Attempt:
        """A person, whom no fence stops."""
        return self.somebody_else()

    @rule(
        target=attempts,
        try_number=st.integers(1, 4),
        kind=st.sampled_from(["in order", "in order", "late", "opaque", "none"]),
        item=st.sampled_from([None, None, "x", "y"]),
    )
    def a_new_attempt(self, try_number: int, kind: str, item: str | None) -> Attempt:
        """With an id made now, one made earlier, one that does not tell when, or without."""
        self.made += 2
        order = {"in order": self.made, "late": max(1, self.made - 5)}.get(kind)
        name = {"opaque": f"opaque {self.made}", "none": None}.get(
            kind, f"01900000-0000-7000-8000-{order or 0:012x}"
        )
        return self.play(Who(try_number, name, order, item))

    @rule(target=attempts, attempt=attempts)
    def the_same_in_another_process(self, attempt: Attempt) -> Any:
        """That has not heard yet in which incarnation it registered."""
        if attempt.who is None:
            return multiple()
        who = attempt.who
        return self.play(Who(who.try_number, who.id, who.order, who.item))

    def play(self, who: Who) -> Attempt:
        tss = self.store.task(*self.scope, try_number=who.try_number, attempt_id=who.id, item=who.item)
        return Attempt(who, tss)

    # -- verbs

    @rule(attempt=attempts, key=keys, value=values, retention=retentions)
    def set(self, attempt: Attempt, key: str, value: Any, retention: timedelta | None) -> None:
        self.write(attempt, lambda tss: tss.set(key, value, retention=retention), {key: value}, retention)

    @rule(attempt=attempts, one=values, other=values, retention=retentions)
    def set_many(self, attempt: Attempt, one: Any, other: Any, retention: timedelta | None) -> None:
        both = {"a": one, "b": other}
        self.write(attempt, lambda tss: tss.set_many(both, retention=retention), both, retention)

    def write(
        self,
        attempt: Attempt,
        verb: Callable[[Any], object],
        put: dict[str, Any],
        retention: timedelta | None,
    ) -> None:
        def expected(model: TaskInstance, now: Any) -> None:
            model.let_write(attempt.who, now)
            model.put(put, self.expiry(retention), now)

        self.both(attempt, verb, expected)

    @rule(attempt=attempts, key=keys, value=values, off=st.sampled_from([0, 0, 0, 1, -1]))
    def set_over_a_version(self, attempt: Attempt, key: str, value: Any, off: int) -> None:
        """The version that stands there, or another one."""
        alive = self.model.alive(self.clock.now)
        version = max(0, (alive[key].version if key in alive else 0) + off)

        def expected(model: TaskInstance, now: Any) -> None:
            model.let_write(attempt.who, now)
            stands_at = model.alive(now)[key].version if key in model.alive(now) else 0
            if stands_at != version:
                raise VersionConflictError("")
            model.put({key: value}, self.expiry(None), now)

        self.both(attempt, lambda tss: tss.set(key, value, if_version=version), expected)

    @rule(attempt=attempts, by=st.integers(-3, 3), retention=retentions)
    def increment(self, attempt: Attempt, by: int, retention: timedelta | None) -> None:
        self.compute(
            attempt,
            "n",
            lambda value: (value or 0) + by,
            retention,
            lambda tss: tss.increment("n", by, retention=retention),
        )

    @rule(attempt=attempts, key=keys, retention=retentions)
    def update(self, attempt: Attempt, key: str, retention: timedelta | None) -> None:
        def wrap(value: Any) -> Any:
            return [value] if len(repr(value)) < 50 else 0

        self.compute(attempt, key, wrap, retention, lambda tss: tss.update(key, wrap, retention=retention))

    def compute(
        self,
        attempt: Attempt,
        key: str,
        fn: Callable[[Any], Any],
        retention: timedelta | None,
        verb: Callable[[Any], object],
    ) -> None:
        """Read, and write what comes of it; an expiry that is there stays."""

        def expected(model: TaskInstance, now: Any) -> Any:
            model.let_read(attempt.who, now)
            model.let_write(attempt.who, now)
            held = model.alive(now).get(key)
            new = fn(held.value if held else None)
            model.put({key: new}, held.expires if held else self.expiry(retention), now)
            return new

        self.both(attempt, verb, expected)

    @rule(attempt=attempts, key=keys)
    def delete(self, attempt: Attempt, key: str) -> None:
        def expected(model: TaskInstance, now: Any) -> None:
            model.let_write(attempt.who, now)
            model.remove(key, now)

        self.both(attempt, lambda tss: tss.delete(key), expected)

    @rule(attempt=attempts, forget=st.sampled_from([False, False, True]))
    def clear(self, attempt: Attempt, forget: bool) -> None:
        def expected(model: TaskInstance, now: Any) -> None:
            model.let_write(attempt.who, now)
            if forget:
                model.forget(now)
            else:
                model.remove_all("clear", now)

        self.both(attempt, lambda tss: tss.clear(forget=forget), expected)

    @rule(attempt=attempts, key=keys, back=st.integers(0, 4))
    def restore(self, attempt: Attempt, key: str, back: int) -> None:
        """One of the last versions of the task instance, of this key or not."""
        version = max(0, self.model.version - back)

        def expected(model: TaskInstance, now: Any) -> None:
            model.let_read(attempt.who, now)
            found = next((one for one in model.history(key, now) if one.version == version), None)
            if found is None or found.value is None:
                raise VersionNotFoundError("")
            held = model.alive(now).get(key)
            model.let_write(attempt.who, now)
            model.put({key: found.value}, held.expires if held else found.expires, now)

        self.both(
            attempt, lambda tss: tss.restore(key, version), expected, keeps_registration=VersionNotFoundError
        )

    @rule(attempt=attempts, key=st.sampled_from(KEYS))
    def get(self, attempt: Attempt, key: str) -> None:
        def expected(model: TaskInstance, now: Any) -> Any:
            model.let_read(attempt.who, now)
            held = model.alive(now).get(key)
            return held.value if held else "absent"

        self.both(attempt, lambda tss: plain(tss.get(key, "absent")), expected)

    @rule(attempt=attempts, key=st.sampled_from(KEYS))
    def history(self, attempt: Attempt, key: str) -> None:
        def expected(model: TaskInstance, now: Any) -> list[int]:
            model.let_read(attempt.who, now)
            return [one.version for one in model.history(key, now)]

        self.both(attempt, lambda tss: [one.version for one in tss.history(key)], expected)

    @rule(attempt=attempts, done=st.integers(0, ITEMS))
    def checkpoint(self, attempt: Attempt, done: int) -> None:
        """Do some items of a loop and leave it, in a new process; each item that is done is a write."""
        if attempt.who is None:
            fresh = self.somebody_else()
        else:
            fresh = self.play(
                Who(attempt.who.try_number, attempt.who.id, attempt.who.order, attempt.who.item)
            )
            try:
                copy.deepcopy(self.model).let_write(fresh.who, self.clock.now)
            except StaleAttemptError:
                return

        def expected(model: TaskInstance, now: Any) -> None:
            model.let_read(fresh.who, now)
            held = model.alive(now).get("position")
            start = held.value["position"] if held else 0
            for position in range(start + 1, min(start + done, ITEMS) + 1):
                model.let_write(fresh.who, now)
                model.put({"position": state(position)}, self.expiry(None), now)

        self.both(fresh, lambda tss: work(tss, done), expected)

    def somebody_else(self) -> Attempt:
        return Attempt(None, self.store.task(*self.scope))

    # -- what happens to all

    @rule()
    def delete_run(self) -> None:
        self.store.delete_run(*self.scope[:2])
        if self.model.changed_at is not None and self.model.deleted_at is None:
            self.model.delete_run(self.clock.now)

    @rule(by=steps)
    def time_goes_by(self, by: timedelta) -> None:
        self.clock.advance(by)

    @rule()
    def cleanup(self) -> None:
        expected = self.store.cleanup(dry_run=True)
        report = self.store.cleanup()
        assert report.total == expected.total
        self.model.clean(self.clock.now)
        if self.model.is_forgotten(self.clock.now):
            self.model = TaskInstance()

    # -- comparing

    def both(
        self,
        attempt: Attempt,
        verb: Callable[[Any], object],
        expected: Callable[[TaskInstance, Any], object],
        *,
        keeps_registration: type[Exception] | None = None,
    ) -> None:
        """Do it in the model and in the store: the same answer or the same error, and then the same state."""
        now = self.clock.now
        model = copy.deepcopy(self.model)
        wanted: object
        try:
            wanted = expected(model, now)
        except (StaleAttemptError, VersionConflictError, VersionNotFoundError) as exc:
            with pytest.raises(type(exc)):
                verb(attempt.tss)
            if keeps_registration is not None and isinstance(exc, keeps_registration):
                self.model = model
                self.learn(attempt)
            return
        assert verb(attempt.tss) == wanted
        self.model = model
        self.learn(attempt)

    def learn(self, attempt: Attempt) -> None:
        """What a process knows of its attempt after a use that registered it, or met it registered."""
        who, current = attempt.who, self.model.current
        if (
            who is not None
            and who.registered_in is None
            and current is not None
            and self.model.what_is(who) == "current"
        ):
            who.registered_in = self.model.incarnation

    def expiry(self, retention: timedelta | None) -> Moment:
        if retention == NEVER_EXPIRE:
            return None
        return self.clock.now + (retention or DEFAULT_RETENTION)

    @invariant()
    def the_same_entries_and_history(self) -> None:
        now = self.clock.now
        alive = self.model.alive(now)
        found = {one.key: (plain(one.value), one.version, one.expires_at) for one in self.person.entries()}
        assert found == {key: (held.value, held.version, held.expires) for key, held in alive.items()}
        for key, (value, _, _) in found.items():
            assert type(value) is type(alive[key].value)
        for key in KEYS:
            past = [] if self.model.deleted_at is not None else self.model.history(key, now)
            assert [
                (one.version, one.action, plain(one.value), one.expires_at)
                for one in self.person.history(key)
            ] == [(one.version, one.action, one.value, one.expires) for one in past]

    @invariant()
    def the_log_is_counted(self) -> None:
        """Where tables lie behind: what an entry says of its log is so, and it is bounded."""
        database = getattr(self.store.backend, "_db", None)
        if database is not None:
            for log_rows, counted in database.query(COUNTED, {"dag_id": self.scope[0]}):
                assert log_rows == counted <= 2 * HISTORY_LIMIT


COUNTED = """
SELECT e.log_rows, (SELECT COUNT(*) FROM keepstate_log l WHERE l.scope_id = e.scope_id AND l.entry_key = e.entry_key)
FROM keepstate_scope s JOIN keepstate_entry e ON e.scope_id = s.id WHERE s.dag_id = :dag_id
"""


def work(tss: TaskStateStore, done: int) -> None:
    """Do at most so many items; the last one of the source is never reached, so the loop is always left."""
    for number, item in enumerate(tss.checkpoint(range(ITEMS + 1))):
        if number == done or item == ITEMS:
            break


def state(position: int) -> dict[str, Any]:
    """Return what a checkpoint in the middle of its source stores, but for the fingerprint."""
    return {"position": position, "total": ITEMS + 1, "done": False}


def plain(value: Any) -> Any:
    """Return a value without a checkpoint's fingerprint."""
    if isinstance(value, dict) and "fingerprint" in value:
        return {name: part for name, part in value.items() if name != "fingerprint"}
    return value


# ------------------------------------------------------------------------------------------------- the tests


@pytest.fixture(params=["memory", "sqlite", "postgres", "mysql", "server"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of store; a server has a file behind it."""
    return str(request.param)


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new store of that kind, or for a server to have behind it."""
    if kind == "memory":
        return "memory:"
    if kind in {"postgres", "mysql"}:
        return str(request.getfixturevalue(f"{kind}_url"))
    return f"sqlite:///{tmp_path / 'keepstate.db'}"


@pytest.fixture
def clock() -> ManualClock:
    """Time, which the machine moves."""
    return ManualClock()


@pytest.fixture
def store(kind: str, url: str, clock: ManualClock, tmp_path: Path) -> Iterator[StateStore]:
    """The store, with little history, so that much of it is trimmed."""
    bounds: dict[str, Any] = {"history_limit": HISTORY_LIMIT, "history_days": HISTORY.days}
    with connect(url, settings=Settings(**bounds), clock=clock) as store:
        if kind == "server":
            with (
                detour(tmp_path, one_writer=True) as way,
                way.store(store.backend, clock, **bounds) as served,
            ):
                yield served
        else:
            yield store


def check(store: StateStore, clock: ManualClock, examples: int, length: int) -> None:
    """Let random histories run, each over a task instance of its own."""
    numbers = iter(range(10**9))
    run_state_machine_as_test(
        lambda: Machine(store, clock, next(numbers)),
        settings=settings(
            max_examples=examples,
            stateful_step_count=length,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


def test_every_backend_does_what_the_model_says(kind: str, store: StateStore, clock: ManualClock) -> None:
    """In short random histories."""
    check(store, clock, examples={"server": 15, "mysql": 10}.get(kind, 60), length=40)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_backend_does_what_the_model_says_for_long(store: StateStore, clock: ManualClock) -> None:
    """In many more, and longer ones."""
    check(store, clock, examples=500, length=80)
