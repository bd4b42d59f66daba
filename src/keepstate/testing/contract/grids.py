"""Runs with their tasks, and the keys of what they and assets hold: what a page shows of many at once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from keepstate.backends.answers import GridTask, KeyOfAsset, KeyOfTask
from keepstate.backends.requests import Begin, End, Fence, Holder
from keepstate.clock import to_micros
from keepstate.scope import AssetScope, RunScope, TaskScope
from keepstate.testing.contract.ground import DAG, Ground, attempt_id

if TYPE_CHECKING:
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

HOUR = timedelta(hours=1)


def fill(store: StateStore, clock: ManualClock) -> None:
    """Make three runs of a dag and one of another, an hour apart, with mapped and unmapped tasks."""
    for run in ("r1", "r2", "r3"):
        clock.advance(HOUR)
        store.task(DAG, run, "extract", try_number=2).set_many({"a": 1, "b": 2})
        clock.advance(HOUR)
        for index in range(3):
            store.task(DAG, run, "load", map_index=index, try_number=index + 1).set("k", 1)
        store.task(DAG, run, "person").set("brief", 1, retention=HOUR / 2)
    store.task("other", "r2", "extract").set("c", 1)
    scope = TaskScope(DAG, "r3", "load", 1)
    store.backend.begin(Begin(scope, attempt_id(5), Holder("h", 1, "x"), store.clock(), 0, try_number=7))
    store.backend.end(End(scope, Fence(7, attempt_id(5)), "success", store.clock()))
    clock.advance(HOUR)


class Grids(Ground):
    """What pages show."""

    def test_an_empty_store_has_no_grid_and_no_keys(self, store: StateStore, clock: ManualClock) -> None:
        """And asking makes nothing."""
        backend = store.backend
        for _ in range(2):
            assert backend.grid(now=clock()) == backend.grid(DAG, now=clock()) == []
            assert backend.keys(now=clock()) == []
            assert backend.keys_of_assets(now=clock()) == []
            assert backend.runs(run_id="r") == backend.runs(DAG, run_id="r") == []

    def test_a_grid_has_the_runs_of_the_list_with_their_tasks(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """All map indices of a task together: their states, how many, live entries, latest try, and since when."""
        fill(store, clock)
        backend = store.backend
        found = backend.grid(DAG, now=clock())
        assert [one.run for one in found] == store.runs(DAG)
        assert [[task.task_id for task in one.tasks] for one in found] == [["extract", "load", "person"]] * 3
        began = to_micros(clock.now)
        assert found[0].tasks == (
            GridTask("extract", ("running",), 1, 2, 2, began - 2 * 3_600_000_000),
            GridTask("load", ("running", "success"), 3, 3, 7, began - 3_600_000_000),
            GridTask("person", (None,), 1, 0, None, began - 3_600_000_000),
        )
        assert [one.run for one in backend.grid(now=clock(), limit=3)] == store.runs(limit=3)
        assert backend.grid(DAG, now=clock(), limit=1, offset=1) == found[1:2]
        assert backend.grid(DAG, now=clock(), limit=0) == backend.grid(DAG, now=clock(), offset=3) == []
        fitting = backend.grid(now=clock(), pattern="oth*")
        assert [(one.dag_id, [task.task_id for task in one.tasks]) for one in fitting] == [
            ("other", ["extract"])
        ]
        assert backend.grid(DAG, now=clock(), pattern="oth*") == []
        assert len(backend.grid(DAG, now=clock(), pattern="*")) == 3

    def test_a_grid_has_no_deleted_run_and_keeps_one_without_tasks(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """What is there is what the lists say."""
        fill(store, clock)
        store.delete_run(DAG, "r2")
        backend = store.backend
        assert [one.run.run_id for one in backend.grid(DAG, now=clock())] == ["r3", "r1"]
        backend.begin(Begin(RunScope(DAG, "bare"), attempt_id(9), Holder("h", 1, "x"), store.clock(), 0))
        assert [(one.run.run_id, len(one.tasks)) for one in backend.grid(DAG, now=clock(), limit=2)] == [
            ("bare", 0),
            ("r3", 3),
        ]

    def test_runs_of_one_id(self, store: StateStore, clock: ManualClock) -> None:
        """In every dag that has one, or in one."""
        fill(store, clock)
        backend = store.backend
        assert [(run.dag_id, run.run_id) for run in backend.runs(run_id="r2")] == [
            ("other", "r2"),
            (DAG, "r2"),
        ]
        assert [run.dag_id for run in backend.runs(run_id="r2", limit=1, offset=1)] == [DAG]
        assert backend.runs(DAG, run_id="r1") == store.runs(DAG)[2:]
        assert backend.runs("other", run_id="r1") == backend.runs(run_id="R1") == []
        assert [run.dag_id for run in backend.runs(run_id="r2", pattern="o*")] == ["other"]
        assert backend.runs(DAG, run_id="r2", pattern="o*") == []
        assert backend.runs(DAG, run_id="r1", offset=1) == []

    def test_keys_of_the_newest_runs(self, store: StateStore, clock: ManualClock) -> None:
        """Those of newer runs first, of what is live; of so many runs, and so many keys."""
        fill(store, clock)
        backend = store.backend
        found = backend.keys(now=clock(), runs=2)
        assert found[0] == KeyOfTask(TaskScope("other", "r2", "extract"), "c")
        assert [(one.scope.run_id, one.scope.task_id, one.scope.map_index, one.key) for one in found[1:]] == [
            ("r3", "extract", -1, "a"),
            ("r3", "extract", -1, "b"),
            *(("r3", "load", index, "k") for index in range(3)),
        ]
        assert len(backend.keys(now=clock())) == 16
        assert len(backend.keys(now=clock(), limit=4)) == 4
        assert [one.key for one in backend.keys(now=clock(), pattern="other")] == ["c"]
        assert backend.keys(now=clock(), pattern="none") == backend.keys(now=clock(), runs=0) == []

    def test_keys_of_assets(self, store: StateStore, clock: ManualClock) -> None:
        """With what names the asset; by pattern of its name or uri."""
        store.asset("orders", uri="s3://o").set_many({"b": 1, "a": 1})
        store.asset("customers").set("at", 1)
        store.asset("empty").clear()
        backend = store.backend
        info = backend.asset(AssetScope("orders"), now=clock())
        assert info is not None
        found = backend.keys_of_assets(now=clock())
        assert [(one.name, one.key) for one in found] == [
            ("customers", "at"),
            ("orders", "a"),
            ("orders", "b"),
        ]
        assert found[1] == KeyOfAsset(info.id, "orders", "s3://o", "a")
        assert backend.keys_of_assets(now=clock(), pattern="s3:*") == found[1:]
        assert backend.keys_of_assets(now=clock(), limit=1) == found[:1]
