"""Random operations of several attempts, on every backend, against a plain model of what they promise."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from keepstate.backends.base import Fence, Standing, Verdict, judge
from keepstate.backends.memory import MemoryBackend
from keepstate.connect import connect
from keepstate.errors import StaleAttemptError, VersionConflictError, VersionNotFoundError
from keepstate.retention import NEVER_EXPIRE
from keepstate.settings import Settings
from keepstate.store import StateStore
from keepstate.testing import ManualClock
from keepstate.testing.contract.ground import DAG, RUN, TASK, attempt_id
from tests.contract.test_postgres import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from keepstate.accessors import TaskStateStore
    from keepstate.backends.base import Backend

R = TypeVar("R")

LIMIT = 3
DAY = timedelta(days=1)
SETTINGS = Settings(history_limit=LIMIT, history_days=1, default_retention_days=2)

keys = st.sampled_from(["a", "b", "A"])
values = st.integers(min_value=-3, max_value=3) | st.just("text")
retentions = st.sampled_from([None, timedelta(hours=6), DAY, NEVER_EXPIRE])
steps = st.sampled_from([timedelta(hours=1), timedelta(hours=6), DAY, 2 * DAY])


@dataclass(frozen=True)
class Version:
    """A version of a key; without a value where the key was removed."""

    number: int
    action: str
    value: Any
    expires_at: int | None


@dataclass
class Model:
    """One task instance, as plainly as it can be told."""

    version: int = 0
    standing: Standing = Standing(None, None, 1)  # noqa: RUF009 - it never changes
    known: dict[tuple[int, str | None], int] = field(default_factory=dict)
    log: dict[str, list[Version]] = field(default_factory=dict)
    deleted_at: int = 0

    def history(self, key: str, now: int) -> list[Version]:
        """Return what is kept of a key, newest first: nothing once its newest version has had its time."""
        log = self.log.get(key, [])
        return (
            [version for version in log if not _past(version, now)] if log and not _past(log[0], now) else []
        )

    def live(self, now: int) -> dict[str, Version]:
        """Return what is there."""
        newest = {key: self.history(key, now)[:1] for key in self.log}
        return {key: found[0] for key, found in newest.items() if found and found[0].action == "set"}

    def write(self, now: int, values: dict[str, Any], expires: dict[str, int | None]) -> None:
        """Write values under one new version."""
        self.version += 1
        for key, value in values.items():
            self._note(key, Version(self.version, "set", value, expires[key]), now)

    def remove(self, now: int, names: list[str], action: str) -> None:
        """Remove what is there of these keys, under one new version if there is anything."""
        there = [key for key in names if key in self.live(now)]
        if there:
            self.version += 1
        for key in there:
            self._note(key, Version(self.version, action, None, now + DAY // _MICROSECOND), now)

    def _note(self, key: str, version: Version, now: int) -> None:
        log = self.log.get(key, [])
        past = [] if log and _past(log[0], now) else log
        self.log[key] = [version, *past][:LIMIT]

    def admit(self, fence: Fence | None, now: int, *, reading: bool = False) -> bool:
        """Let an attempt in; say whether it may go on."""
        standing = self.standing
        if fence is None:
            if standing.deleted and not reading:
                self.standing = Standing(None, standing.attempt_id, standing.incarnation + 1)
            return True
        known = self.known.get((fence.try_number, fence.attempt_id)) if fence.attempt_id else None
        verdict = judge(standing, fence, lambda: known)
        if verdict in (Verdict.STALE, Verdict.CURRENT):
            return verdict is Verdict.CURRENT
        incarnation = standing.incarnation
        if verdict is Verdict.NEW_INCARNATION:
            incarnation += 1
            self.remove(now, list(self.log), "reset")
        self.known[fence.try_number, fence.attempt_id] = incarnation
        self.standing = Standing(fence.try_number, fence.attempt_id, incarnation)
        return True

    def delete(self, now: int) -> None:
        """Erase all of it, but for who was there."""
        self.deleted_at = now
        self.log.clear()
        self.standing = replace(self.standing, deleted=True)

    def clean_up(self, now: int) -> Model:
        """Forget what nobody sees any more; it does not count against the limit then. A deleted run is known for a week."""
        if self.standing.deleted and self.deleted_at + 7 * DAY // _MICROSECOND <= now:
            return Model()
        self.log = {key: found for key in self.log if (found := self.history(key, now))}
        return self


_MICROSECOND = timedelta(microseconds=1)


def _past(version: Version, now: int) -> bool:
    return version.expires_at is not None and version.expires_at <= now


class Attempts(RuleBasedStateMachine):
    """Attempts come, write, fall behind, and write again; runs are deleted and made again; time passes."""

    who = Bundle("who")

    def __init__(self, backend: Backend, leave: Callable[[], None]) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = StateStore(backend, settings=SETTINGS, clock=self.clock)
        self.person = self.store.task(DAG, RUN, TASK)
        self.model = Model()
        self.ids = 0
        self.leave = leave

    def teardown(self) -> None:
        """Leave the backend to the next example."""
        self.leave()

    # ---------------------------------------------------------------------------------------------- who acts

    @rule(target=who)
    def anybody(self) -> TaskStateStore:
        """A person."""
        return self.person

    @rule(target=who, try_number=st.integers(min_value=1, max_value=4))
    def begin(self, try_number: int) -> TaskStateStore:
        """An attempt of some number, with the newest id yet; it may be used at once, later, or too late."""
        self.ids += 1
        return self.store.task(DAG, RUN, TASK, try_number=try_number, attempt_id=attempt_id(self.ids))

    @rule(target=who, one=who)
    def same_attempt_again(self, one: TaskStateStore) -> TaskStateStore:
        """In another process, which has learned nothing."""
        fence = one._fence
        assume(fence is not None)
        return self.store.task(DAG, RUN, TASK, try_number=fence.try_number, attempt_id=fence.attempt_id)

    def act(
        self,
        one: TaskStateStore,
        do: Callable[[], R],
        *,
        reading: bool = False,
        refused: Callable[[], Any] | None = None,
    ) -> R | None:
        """Do it, and see that exactly those who are current may."""
        allowed = self.model.admit(one._fence, self.clock(), reading=reading)
        if allowed:
            return do()
        if reading:
            # a superseded attempt is served, unless its incarnation is over: either is right here
            try:
                return do()
            except StaleAttemptError:
                return None
        with pytest.raises((StaleAttemptError, TypeError) if refused else StaleAttemptError):
            (refused or do)()
        return None

    # ------------------------------------------------------------------------------------------- what it does

    @rule(one=who, key=keys, value=values, retention=retentions)
    def set(self, one: TaskStateStore, key: str, value: Any, retention: timedelta | None) -> None:
        """Write."""

        def do() -> None:
            one.set(key, value, retention=retention)
            self.model.write(self.clock(), {key: value}, {key: self.expiry(retention)})

        self.act(one, do)

    @rule(one=who, value=values, retention=retentions)
    def set_many(self, one: TaskStateStore, value: Any, retention: timedelta | None) -> None:
        """Write several."""

        def do() -> None:
            one.set_many({"a": value, "b": value}, retention=retention)
            expires = self.expiry(retention)
            self.model.write(self.clock(), {"a": value, "b": value}, {"a": expires, "b": expires})

        self.act(one, do)

    @rule(one=who, key=keys, value=values, off_by=st.sampled_from([0, 0, 0, 1]))
    def compare_and_set(self, one: TaskStateStore, key: str, value: Any, off_by: int) -> None:
        """Write over the right version, or over a wrong one."""
        before = replace(self.model, known=dict(self.model.known), log=dict(self.model.log))

        def do() -> None:
            found = self.model.live(self.clock()).get(key)
            expected = found.number if found else 0
            if off_by:
                with pytest.raises(VersionConflictError) as caught:
                    one.set(key, value, if_version=expected + off_by)
                assert caught.value.actual == expected
                # all or nothing: the attempt has not begun by it either
                self.model = before
            else:
                one.set(key, value, if_version=expected)
                self.model.write(self.clock(), {key: value}, {key: self.expiry(None)})

        self.act(one, do)

    @rule(one=who, key=keys, by=st.integers(min_value=-2, max_value=2))
    def increment(self, one: TaskStateStore, key: str, by: int) -> None:
        """Add."""

        def do() -> None:
            found = self.model.live(self.clock()).get(key)
            if found is not None and found.value == "text":
                with pytest.raises(TypeError, match="no number"):
                    one.increment(key, by)
                return
            total = (found.value if found else 0) + by
            assert one.increment(key, by) == total
            expires = found.expires_at if found else self.expiry(None)
            self.model.write(self.clock(), {key: total}, {key: expires})

        # who has been superseded may still read that there is no number to add to
        found = self.model.live(self.clock()).get(key)
        text = found is not None and found.value == "text"
        self.act(one, do, refused=(lambda: one.increment(key, by)) if text else None)

    @rule(one=who, key=keys)
    def delete(self, one: TaskStateStore, key: str) -> None:
        """Delete."""

        def do() -> None:
            one.delete(key)
            self.model.remove(self.clock(), [key], "delete")

        self.act(one, do)

    @rule(one=who)
    def clear(self, one: TaskStateStore) -> None:
        """Clear."""

        def do() -> None:
            one.clear()
            self.model.remove(self.clock(), list(self.model.log), "clear")

        self.act(one, do)

    @rule(one=who)
    def forget(self, one: TaskStateStore) -> None:
        """Clear, and erase the history."""

        def do() -> None:
            one.clear(forget=True)
            self.model.version += 1
            self.model.log.clear()

        self.act(one, do)

    @rule(one=who, key=keys, back=st.integers(min_value=0, max_value=LIMIT))
    def restore(self, one: TaskStateStore, key: str, back: int) -> None:
        """Write a version again, or find that there is none."""

        def do() -> None:
            past = self.model.history(key, self.clock())
            wanted = past[back] if back < len(past) else Version(10**6, "none", None, None)
            if wanted.action != "set":
                with pytest.raises(VersionNotFoundError):
                    one.restore(key, wanted.number)
                return
            found = self.model.live(self.clock()).get(key)
            one.restore(key, wanted.number)
            expires = found.expires_at if found else wanted.expires_at
            self.model.write(self.clock(), {key: wanted.value}, {key: expires})

        # whoever may not write may still look at the past, and may find nothing to restore there
        allowed = self.model.admit(one._fence, self.clock(), reading=not self._would_write(key, back))
        if allowed:
            do()
        else:
            with pytest.raises((StaleAttemptError, VersionNotFoundError)):
                one.restore(key, 10**6)

    def _would_write(self, key: str, back: int) -> bool:
        past = self.model.history(key, self.clock())
        return back < len(past) and past[back].action == "set"

    @rule(one=who, key=keys)
    def get(self, one: TaskStateStore, key: str) -> None:
        """Read; which registers."""
        found = self.act(one, lambda: one.get(key, "absent"), reading=True)
        live = self.model.live(self.clock())
        assert found in (live[key].value if key in live else "absent", None)

    # -------------------------------------------------------------------------------------- what happens to it

    @rule(by=steps)
    def time_passes(self, by: timedelta) -> None:
        """Entries and versions expire."""
        self.clock.advance(by)

    @rule()
    def delete_run(self) -> None:
        """Everything goes; attempts that still run are stale."""
        was_there = bool(self.store.task_instances(DAG, RUN))
        assert self.store.delete_run(DAG, RUN) == was_there
        if was_there:
            self.model.delete(self.clock())

    @rule()
    def clean_up(self) -> None:
        """What has expired goes, as the dry run said, and nobody sees a difference; idle scopes are kept here."""
        self.store.settings = replace(SETTINGS, default_retention_days=0)
        expected = self.store.cleanup(dry_run=True)
        report = self.store.cleanup()
        self.store.settings = SETTINGS
        assert (report.entries, report.history) == (expected.entries, expected.history)
        self.model = self.model.clean_up(self.clock())

    def expiry(self, retention: timedelta | None) -> int | None:
        """Return when something written now expires."""
        if retention == NEVER_EXPIRE:
            return None
        return self.clock() + (2 * DAY if retention is None else retention) // _MICROSECOND

    # ------------------------------------------------------------------------------------------- what is seen

    @invariant()
    def everybody_sees_what_the_model_says(self) -> None:
        """Entries with their versions, and the history of every key."""
        live = self.model.live(self.clock())
        seen = {entry.key: (entry.value, entry.version) for entry in self.person.entries()}
        assert seen == {key: (version.value, version.number) for key, version in live.items()}
        for key in ("a", "b", "A"):
            past = [(one.version, one.action, one.value) for one in self.person.history(key)]
            model = [(one.number, one.action, one.value) for one in self.model.history(key, self.clock())]
            assert past == model


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Attempts]]:
    """A function that makes a machine over an empty backend."""
    with ExitStack() as stack:
        if request.param == "memory":
            yield lambda: Attempts(MemoryBackend(), lambda: None)
        elif request.param == "sqlite":
            empty = tmp_path / "empty.db"
            connect(f"sqlite:///{empty}", settings=SETTINGS).close()

            def over_a_new_file() -> Attempts:
                file = shutil.copy(empty, tmp_path / "used.db")
                store = connect(f"sqlite:///{file}", settings=SETTINGS)
                return Attempts(store.backend, store.backend.close)

            yield over_a_new_file
        else:
            url = request.getfixturevalue("postgres_url")
            store = stack.enter_context(connect(url, settings=SETTINGS))
            beside = stack.enter_context(psycopg.connect(url, autocommit=True))
            yield lambda: Attempts(store.backend, lambda: beside.execute(EMPTY) and None)


@pytest.mark.parametrize(("examples", "length"), [(40, 40), pytest.param(1_000, 100, marks=pytest.mark.slow)])
def test_every_backend_does_what_the_model_does(
    fresh: Callable[[], Attempts], examples: int, length: int
) -> None:
    """Whatever attempts and people do, in whatever order, while time passes and runs come and go."""
    run_state_machine_as_test(
        fresh,
        settings=settings(
            max_examples=examples,
            stateful_step_count=length,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
