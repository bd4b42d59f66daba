"""Cleanup: everything that has had its time goes, from every table, in batches; nothing else does."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from keepstate.backends.requests import Batch, Begin, End, Fence, Holder, Put, Session
from keepstate.retention import NEVER_EXPIRE
from keepstate.scope import CleanupReport, RunScope, TaskScope, Writer
from keepstate.testing.contract.ground import DAG, RUN, SCOPE, TASK, Ground, attempt, attempt_id, contents

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)


class Cleanup(Ground):
    """``cleanup`` over everything that a store holds."""

    def test_a_fresh_store_has_nothing_to_clean(self, store: StateStore) -> None:
        """Nor has one whose entries are all alive."""
        assert store.cleanup().total == 0
        attempt(store, 1).set_many({"a": 1, "b": 2})
        store.asset("orders").set("k", 1)
        assert store.cleanup() == CleanupReport()
        assert contents(store) == {"a": 1, "b": 2}

    def test_expired_entries_go_with_their_history(self, store: StateStore, clock: ManualClock) -> None:
        """At their time exactly, and with every version of theirs; the others stay."""
        tss = attempt(store, 1)
        tss.set("k", 1, retention=NEVER_EXPIRE)
        tss.set("k", 2, retention=HOUR)
        tss.set("stays", 3, retention=HOUR + TICK)
        clock.advance(HOUR - TICK)
        assert store.cleanup().total == 0
        clock.advance(TICK)
        assert _clean(store) == CleanupReport(entries=1, history=2)
        assert store.cleanup().total == 0
        assert contents(store) == {"stays": 3}

    def test_expired_versions_of_living_keys_go(self, store: StateStore, clock: ManualClock) -> None:
        """Each at its own time, while the key and its other versions stay."""
        tss = attempt(store, 1)
        tss.set("k", 1, retention=HOUR)
        tss.set("k", 2, retention=3 * HOUR)
        tss.set("k", 3, retention=2 * HOUR)
        tss.set("k", 4, retention=NEVER_EXPIRE)
        for left in ([4, 3, 2], [4, 2], [4]):
            clock.advance(HOUR)
            assert _clean(store) == CleanupReport(history=1)
            assert [version.value for version in tss.history("k")] == left
        assert store.cleanup().total == 0
        assert contents(store) == {"k": 4}

    def test_the_history_of_removed_keys_goes_after_its_days(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """What a deletion, a clear or a new incarnation left behind."""
        tss = attempt(store, 1, 1)
        tss.set_many({"deleted": 1, "cleared": 1})
        tss.delete("deleted")
        tss.clear()
        tss.set("reset", 1)
        attempt(store, 1, 9).set("new", 1)
        clock.advance(7 * DAY - TICK)
        assert store.cleanup().total == 0
        clock.advance(TICK)
        report = _clean(store)
        assert (report.entries, report.history) == (3, 6)
        assert contents(store) == {"new": 1}

    def test_idle_task_instances_go_with_their_attempts(self, store: StateStore, clock: ManualClock) -> None:
        """Those that hold nothing and have not changed for the default retention; the run goes after them."""
        for try_number in (1, 2):
            attempt(store, try_number).set("k", 1, retention=HOUR)
        attempt(store, 1, map_index=0).get("k")
        attempt(store, 1, map_index=1).set("k", 1, retention=NEVER_EXPIRE)
        clock.advance(30 * DAY - TICK)
        report = _clean(store)
        assert (report.entries, report.scopes, report.attempts) == (1, 0, 0)
        clock.advance(TICK)
        report = _clean(store)
        assert (report.scopes, report.attempts) == (2, 3)
        assert [info.scope.map_index for info in store.task_instances(DAG, RUN)] == [1]
        assert [info.run_id for info in store.runs()] == [RUN]
        attempt(store, map_index=1).clear()
        for scopes in (1, 1, 0):
            clock.advance(60 * DAY)
            assert _clean(store).scopes == scopes
        assert store.runs() == []

    def test_entries_and_their_task_instance_may_go_at_once(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Nothing needs a second cleanup because the first one came late; but the run outlasts its tasks by one."""
        for index in range(5):
            attempt(store, 1, map_index=index).set("k", 1)
        clock.advance(100 * DAY)
        report = _clean(store)
        assert (report.entries, report.history, report.scopes, report.attempts) == (5, 5, 5, 5)
        clock.advance(100 * DAY)
        assert _clean(store).scopes == 1
        assert store.runs() == []

    def test_a_running_attempt_keeps_its_scope(self, store: StateStore, clock: ManualClock) -> None:
        """While it gives signs of life, though it has stored nothing; its run too."""
        for scope in (SCOPE, RunScope(DAG, RUN)):
            store.backend.begin(Begin(scope, attempt_id(1), Holder("host", 1, "then"), clock(), 0))
        for _ in range(50):
            clock.advance(DAY)
            for scope in (SCOPE, RunScope(DAG, RUN)):
                store.backend.beat(scope, Fence(1, attempt_id(1)), now=clock())
        assert _clean(store).scopes == 0
        for scope in (SCOPE, RunScope(DAG, RUN)):
            store.backend.end(End(scope, Fence(1, attempt_id(1)), "success", clock()))
        clock.advance(30 * DAY)
        assert _clean(store).scopes == 1
        clock.advance(60 * DAY)
        assert _clean(store).scopes == 1

    def test_scopes_stay_where_nothing_expires(
        self, make_store: Callable[..., StateStore], clock: ManualClock
    ) -> None:
        """With a default retention of 0 an empty task instance and its attempts are kept for good."""
        store = make_store(default_retention_days=0)
        attempt(store, 1).set("k", 1, retention=HOUR)
        clock.advance(10_000 * DAY)
        report = _clean(store)
        assert (report.entries, report.scopes) == (1, 0)
        assert len(store.task_instances(DAG, RUN)) == 1

    def test_what_is_left_of_a_deleted_run_goes_after_a_week(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """The bare rows that tell latecomers they are late."""
        attempt(store, 1).set("k", 1)
        attempt(store, 1, map_index=0).set("k", 1)
        store.delete_run(DAG, RUN)
        clock.advance(7 * DAY - TICK)
        assert _clean(store).scopes == 0
        clock.advance(TICK)
        report = _clean(store)
        assert (report.entries, report.history, report.scopes, report.attempts) == (0, 0, 3, 2)

    def test_an_asset_stays(self, store: StateStore, clock: ManualClock) -> None:
        """However long it holds nothing: assets go when they are deleted."""
        store.asset("orders").set("k", 1)
        store.asset("orders").clear()
        clock.advance(1000 * DAY)
        report = _clean(store)
        assert (report.entries, report.history, report.scopes) == (1, 2, 0)
        assert [info.name for info in store.assets()] == ["orders"]

    def test_old_sessions_go(self, store: StateStore, clock: ManualClock) -> None:
        """A day after their last request, when no client sends it again any more."""
        for number in range(5):
            _numbered_write(store, clock, f"s{number}")
        clock.advance(DAY / 2)
        _numbered_write(store, clock, "s9")
        clock.advance(DAY / 2)
        # a backend may keep sessions of its own besides
        assert _clean(store).sessions >= 5
        applied = store.backend.apply(_numbered("s9", clock, 1))
        assert applied.repeated

    @pytest.mark.parametrize("size", [1, 3, 1000])
    def test_it_goes_in_batches(
        self, make_store: Callable[..., StateStore], clock: ManualClock, size: int
    ) -> None:
        """Of ``state_cleanup_batch_size`` rows of a kind each, with the sum so far told after each."""
        store = make_store(state_cleanup_batch_size=size)
        for index in range(7):
            attempt(store, 1, map_index=index).set("k", 1, retention=HOUR)
            _numbered_write(store, clock, f"s{index}")
        clock.advance(100 * DAY)
        sums: list[CleanupReport] = []
        expected = store.cleanup(dry_run=True)
        report = store.cleanup(on_progress=sums.append)
        assert report == sums[-1]
        assert (report.entries, report.scopes) == (8, 8)
        assert report.sessions >= 7
        assert (expected.total, expected.dry_run) == (report.total, True)
        steps = list(zip([CleanupReport(), *sums], sums, strict=False))
        for before, after in steps:
            assert after.total - before.total > 0
            assert after.entries - before.entries <= size
            assert after.scopes - before.scopes <= size
            assert after.sessions - before.sessions <= size
        assert len(steps) >= 3 * (7 // size)

    def test_it_may_be_stopped_and_run_again(
        self, make_store: Callable[..., StateStore], clock: ManualClock
    ) -> None:
        """Each batch is done for good."""
        store = make_store(state_cleanup_batch_size=2)
        attempt(store, 1).set_many({f"k{number}": 1 for number in range(9)}, retention=HOUR)
        clock.advance(HOUR)

        def stop(report: CleanupReport) -> None:
            assert report.entries == 2
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.cleanup(on_progress=stop)
        assert _clean(store).entries == 7

    def test_a_dry_run_changes_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """And tells exactly what is then removed, over all that there is."""
        _fill(store, clock)
        expected = store.cleanup(dry_run=True)
        assert expected.dry_run
        assert store.cleanup(dry_run=True) == expected
        kinds = (
            expected.entries,
            expected.history,
            expected.scopes,
            expected.attempts,
            expected.sessions,
        )
        assert all(kinds)
        before = [store.runs(), store.task_instances(DAG, RUN), contents(store)]
        report = store.cleanup()
        assert report == CleanupReport(
            expected.entries, expected.history, expected.scopes, expected.attempts, expected.sessions
        )
        assert before[2] == contents(store) == {"alive": 1}


def _clean(store: StateStore) -> CleanupReport:
    """Clean up, after a dry run that has to tell the same."""
    expected = store.cleanup(dry_run=True)
    report = store.cleanup()
    assert expected.dry_run
    assert report == CleanupReport(
        expected.entries, expected.history, expected.scopes, expected.attempts, expected.sessions
    )
    return report


def _numbered(session: str, clock: ManualClock, number: int) -> Batch:
    change = Put("session", "1", clock() + HOUR // TICK)
    scope = TaskScope("sessions", RUN, TASK)
    return Batch(scope, (change,), clock(), Writer("api"), session=Session(session, number))


def _numbered_write(store: StateStore, clock: ManualClock, session: str) -> None:
    store.backend.apply(_numbered(session, clock, 1))


def _fill(store: StateStore, clock: ManualClock) -> None:
    """Leave something of every kind, some of it due."""
    attempt(store, 1, map_index=0).set("expired", 1)
    attempt(store, 1, map_index=1).get("nothing")
    for try_number in (1, 2, 3):
        attempt(store, try_number, map_index=2).set("expired", try_number)
    store.task(DAG, "deleted", TASK, try_number=1).set("k", 1)
    store.delete_run(DAG, "deleted")
    store.task(DAG, "lonely", TASK, try_number=1).get("k")
    _numbered_write(store, clock, "old")
    clock.advance(50 * DAY)
    tss = attempt(store, 1)
    tss.set("removed", 1)
    tss.delete("removed")
    tss.set("alive", 0, retention=HOUR)
    tss.set("alive", 1)
    clock.advance(8 * DAY)
    _numbered_write(store, clock, "recent")
    tss.set("alive", 1)
