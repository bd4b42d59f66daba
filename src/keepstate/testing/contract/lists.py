"""Lists of runs, task instances, entries and changes; and the removal of whole runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from keepstate.backends.requests import Clear
from keepstate.errors import InvalidIdError, StaleAttemptError
from keepstate.scope import AssetScope, TaskScope, Writer
from keepstate.testing.contract.ground import DAG, RUN, SCOPE, TASK, Ground, attempt, contents

if TYPE_CHECKING:
    from keepstate.backends.requests import EntryScope
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

HOUR = timedelta(hours=1)


class Lists(Ground):
    """What there is."""

    def test_an_empty_store_lists_nothing(self, store: StateStore) -> None:
        """Of any kind, and asking makes nothing."""
        assert store.runs() == []
        assert store.runs("absent") == []
        assert store.task_instances(DAG, RUN) == []
        assert store.attempts(DAG, RUN, TASK) == []
        assert store.assets() == []
        assert store.runs() == []

    @pytest.mark.parametrize("bad", ["", "a/b", "..", "a\n", "\udcff", "x" * 251], ids=ascii)
    def test_what_can_be_no_id_is_refused(self, store: StateStore, bad: str) -> None:
        """Wherever the store is, and of whatever it is the id."""
        for ask in (
            lambda: store.runs(bad),
            lambda: store.task_instances(bad, RUN),
            lambda: store.task_instances(DAG, bad),
            lambda: store.attempts(bad, RUN),
            lambda: store.attempts(DAG, RUN, bad),
            lambda: store.delete_run(bad, RUN),
            lambda: store.delete_run(DAG, bad),
        ):
            with pytest.raises(InvalidIdError):
                ask()

    def test_the_run_begun_last_comes_first(self, store: StateStore, clock: ManualClock) -> None:
        """Once each, of one dag or of all, however many task instances it has and who wrote them."""
        for run in ("r1", "r2", "r3"):
            clock.advance(HOUR)
            store.task("a", run, "t1", try_number=1).set("k", 1)
            store.task("a", run, "t2").set("k", 1)
            store.task("b", run, "t1", try_number=1).get("k")
        store.task("a", "r1", "t3").set("k", 1)
        assert [(info.dag_id, info.run_id) for info in store.runs()] == [
            ("b", "r3"),
            ("a", "r3"),
            ("b", "r2"),
            ("a", "r2"),
            ("b", "r1"),
            ("a", "r1"),
        ]
        assert [info.run_id for info in store.runs("a")] == ["r3", "r2", "r1"]
        assert [info.run_id for info in store.runs("a", limit=1, offset=1)] == ["r2"]
        assert store.runs("a", limit=0) == []
        assert store.runs("a", offset=3) == []
        assert store.runs("a")[0].created_at == clock.now

    def test_task_instances_are_in_the_order_of_task_and_index(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """With their state, latest try, version and number of live entries."""
        for task, index in (("b", -1), ("a", 10), ("a", 2), ("a", -1), ("B", -1), ("é", -1)):
            store.task(DAG, RUN, task, map_index=index, try_number=3).set("k", 1)
        mapped = store.task(DAG, RUN, "a", map_index=2)
        mapped.set("l", 1, retention=HOUR)
        mapped.set("m", 1)
        mapped.delete("m")
        store.task(DAG, RUN, "person").set("k", 1)
        store.task(DAG, "other", "a").set("k", 1)
        clock.advance(HOUR)
        found = store.task_instances(DAG, RUN)
        assert [(info.scope.task_id, info.scope.map_index) for info in found] == [
            ("B", -1),
            ("a", -1),
            ("a", 2),
            ("a", 10),
            ("b", -1),
            ("person", -1),
            ("é", -1),
        ]
        info = found[2]
        assert info.scope == TaskScope(DAG, RUN, "a", 2)
        assert (info.state, info.try_number, info.version, info.entries) == ("running", 3, 4, 1)
        assert (info.created_at, info.updated_at) == (clock.now - HOUR, clock.now - HOUR)
        assert (found[5].state, found[5].try_number) == (None, None)
        page = store.task_instances(DAG, RUN, limit=2, offset=1)
        assert page == found[1:3]
        assert store.task_instances(DAG, RUN, offset=6) == found[6:]
        backend, now = store.backend, clock()
        assert backend.task_instances(DAG, RUN, "a", now=now) == found[1:4]
        assert backend.task_instances(DAG, RUN, "a", now=now, limit=1, offset=1) == found[2:3]
        assert backend.task_instances(DAG, RUN, "A", now=now) == []
        counts = [backend.count_task_instances(DAG, RUN, task) for task in ("a", "b", "A", None)]
        assert counts == [3, 1, 0, 7]

    def test_entries_come_in_pages(self, store: StateStore, clock: ManualClock) -> None:
        """Ordered by key, with the number of all live ones."""
        tss = attempt(store, 1)
        tss.set_many({f"k{number}": number for number in range(5)})
        tss.set("gone", 1, retention=HOUR)
        tss.delete("k1")
        clock.advance(HOUR)

        def page(limit: int, offset: int) -> tuple[list[str], int | None]:
            found = store.backend.read(SCOPE, None, now=clock(), limit=limit, offset=offset)
            return [entry.key for entry in found.entries], found.total

        assert page(2, 0) == (["k0", "k2"], 4)
        assert page(2, 2) == (["k3", "k4"], 4)
        assert page(2, 4) == ([], 4)
        assert page(10, 1) == (["k2", "k3", "k4"], 4)
        absent = store.backend.read(TaskScope("no", "such", "task"), None, now=clock(), limit=2)
        assert (absent.version, absent.entries, absent.total) == (0, (), 0)

    def test_keys_are_read_without_their_values(self, store: StateStore, clock: ManualClock) -> None:
        """One, several, all, or a page of them: with all that stands beside the values, and of these nothing."""
        tss = attempt(store, 1)
        tss.set_many({f"k{number}": "x" * number for number in range(5)})
        tss.set("gone", 1, retention=HOUR)
        tss.delete("k1")
        clock.advance(HOUR)
        for keys in (None, ["k0"], ["k1"], ["k2", "absent", "k4"], ["gone"]):
            for limit, offset in ((None, 0), (2, 1)) if keys is None else ((None, 0),):
                whole = store.backend.read(SCOPE, keys, now=clock(), limit=limit, offset=offset)
                bare = store.backend.read(SCOPE, keys, now=clock(), limit=limit, offset=offset, texts=False)
                assert bare == replace(
                    whole, entries=tuple(replace(entry, text="") for entry in whole.entries)
                )
        absent = store.backend.read(TaskScope("no", "such", "task"), None, now=clock(), texts=False)
        assert (absent.version, absent.entries) == (0, ())

    def test_several_keys_are_read_at_one_moment(self, store: StateStore, clock: ManualClock) -> None:
        """Those that are there, with the version of the scope."""
        attempt(store, 1).set_many({"a": 1, "b": 2, "c": 3})
        found = store.backend.read(SCOPE, ["c", "absent", "a"], now=clock())
        assert [entry.key for entry in found.entries] == ["a", "c"]
        assert (found.version, found.incarnation, found.total) == (1, 1, None)

    def test_an_entry_has_its_facts(self, store: StateStore, clock: ManualClock) -> None:
        """Version, times and writer, of an attempt and of a person."""
        attempt(store, 2, 2).set("k", [1], retention=HOUR)
        entry = attempt(store).entry("k")
        assert entry is not None
        assert (entry.key, entry.value, entry.version) == ("k", [1], 1)
        assert (entry.updated_at, entry.expires_at) == (clock.now, clock.now + HOUR)
        assert entry.writer == Writer("task", DAG, RUN, TASK, -1, try_number=2)
        clock.advance(timedelta(minutes=1))
        attempt(store).set("k", [2])
        entry = attempt(store).entry("k")
        assert entry is not None
        assert (entry.updated_at, entry.writer) == (clock.now, Writer("api"))
        assert attempt(store).entry("absent") is None

    def test_changes_are_followed_by_version(self, store: StateStore, clock: ManualClock) -> None:
        """Each key once, as it stands now, in the order of the last changes; removed ones as deleted."""
        backend = store.backend
        assert backend.changes(SCOPE, after=0, now=clock()) == (0, [])
        tss = attempt(store, 1)
        tss.set("b", 1)
        tss.set("a", 2)
        tss.set("b", 3)
        tss.delete("a")
        version, notices = backend.changes(SCOPE, after=0, now=clock())
        assert version == 4
        told = [(notice.key, notice.version, notice.action, notice.text) for notice in notices]
        assert told == [("b", 3, "set", "3"), ("a", 4, "delete", None)]
        assert {notice.scope for notice in notices} == {SCOPE}
        assert {notice.updated_at for notice in notices} == {clock()}
        assert notices[0].writer == Writer("task", try_number=1).to_text()
        assert backend.changes(SCOPE, after=4, now=clock()) == (4, [])
        tss.set_many({"z": 1, "y": 2})
        version, notices = backend.changes(SCOPE, after=3, now=clock())
        assert [notice.key for notice in notices] == ["a", "y", "z"]
        tss.clear()
        version, notices = backend.changes(SCOPE, after=version, now=clock())
        assert [(notice.key, notice.action) for notice in notices] == [
            ("b", "delete"),
            ("y", "delete"),
            ("z", "delete"),
        ]

    def test_changes_of_an_asset_are_followed_too(self, store: StateStore, clock: ManualClock) -> None:
        """By name or by uri."""
        store.asset("orders", uri="s3://orders").set("k", 1)
        scopes: list[EntryScope] = [AssetScope("orders"), AssetScope(uri="s3://orders")]
        for scope in scopes:
            version, (notice,) = store.backend.changes(scope, after=0, now=clock())
            assert (version, notice.key, notice.scope) == (1, "k", scope)

    def test_all_map_indices_may_be_cleared_at_once(self, store: StateStore, clock: ManualClock) -> None:
        """Those of the one task in the one run, mapped and unmapped; nothing else."""
        for index in (-1, 0, 1, 2):
            attempt(store, 1, map_index=index).set("k", index)
        others = [store.task(DAG, RUN, "other"), store.task(DAG, "other", TASK, map_index=0)]
        for other in others:
            other.set("k", 1)
        applied = store.backend.clear(
            Clear(TaskScope(DAG, RUN, TASK, 0), clock(), Writer("api"), all_map_indices=True)
        )
        assert applied.version == 2
        assert [attempt(store, map_index=index).get("k") for index in (-1, 0, 1, 2)] == [None] * 4
        assert [version.action for version in attempt(store, map_index=2).history("k")] == ["clear", "set"]
        assert [other.get("k") for other in others] == [1, 1]


class DeletedRuns(Ground):
    """Deleting a run erases everything of it."""

    def test_nothing_is_left_of_a_deleted_run(self, store: StateStore, clock: ManualClock) -> None:
        """Entries, history, attempts and lists; the answer tells how many task instances it had."""
        for index in (-1, 0, 1):
            tss = attempt(store, 1, map_index=index)
            tss.set_many({"k": 1, "deleted": 2})
            tss.delete("deleted")
        kept = [store.task(DAG, "other", TASK, try_number=1), store.task("other", RUN, TASK, try_number=1)]
        for tss in kept:
            tss.set("k", 1)
        assert store.delete_run(DAG, RUN) == 3
        assert contents(store) == {}
        assert attempt(store).history("k") == attempt(store).history("deleted") == []
        assert store.attempts(DAG, RUN, TASK) == []
        assert store.task_instances(DAG, RUN) == []
        assert store.backend.changes(SCOPE, after=0, now=clock()) == (0, [])
        assert store.backend.read(SCOPE, None, now=clock(), limit=5).total == 0
        assert {(info.dag_id, info.run_id) for info in store.runs()} == {(DAG, "other"), ("other", RUN)}
        for tss in kept:
            tss.increment("k")
            assert len(tss.history("k")) == 2

    def test_deleting_an_absent_run_is_no_error(self, store: StateStore) -> None:
        """Nor is deleting one twice; both had no task instances."""
        assert store.delete_run(DAG, RUN) == 0
        attempt(store, 1).set("k", 1)
        assert store.delete_run(DAG, RUN) == 1
        assert store.delete_run(DAG, RUN) == 0

    @pytest.mark.parametrize("who", ["attempt", "person"])
    def test_a_run_made_again_is_a_run_like_any_other(
        self, store: StateStore, clock: ManualClock, who: str
    ) -> None:
        """It starts empty, and is listed as begun now, with what is written now."""
        attempt(store, 2, 2).set("k", 1)
        clock.advance(HOUR)
        store.task(DAG, "between", TASK).set("k", 1)
        store.delete_run(DAG, RUN)
        clock.advance(HOUR)
        again = attempt(store, 1, 9) if who == "attempt" else attempt(store)
        assert again.get("k") is None
        again.set("k", 2)
        assert [info.run_id for info in store.runs(DAG)] == [RUN, "between"]
        assert store.runs(DAG)[0].created_at == clock.now
        (info,) = store.task_instances(DAG, RUN)
        assert (info.entries, info.created_at) == (1, clock.now)
        assert [version.value for version in again.history("k")] == [2]
        assert store.delete_run(DAG, RUN) == 1
        with pytest.raises(StaleAttemptError):
            attempt(store, 2, 2).set("k", 3)
        assert store.runs(DAG)[0].run_id == "between"

    def test_a_latecomer_is_known_for_seven_days(self, store: StateStore, clock: ManualClock) -> None:
        """Cleanup or not, an attempt of the deleted run is stale for a week; no task outlives its run by more."""
        stale = attempt(store, 1, 1)
        stale.set("k", 1)
        store.delete_run(DAG, RUN)
        for _ in range(6):
            clock.advance(timedelta(days=1))
            store.cleanup()
            with pytest.raises(StaleAttemptError):
                stale.set("k", 2)
        assert contents(store) == {}
