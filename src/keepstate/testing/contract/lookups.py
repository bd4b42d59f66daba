"""Lists of dags and assets, counts, patterns, and what is looked up by its ids."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from keepstate.backends.requests import Begin, End, Fence, Holder
from keepstate.errors import InvalidIdError
from keepstate.scope import AssetScope, DagInfo, RunScope, TaskScope
from keepstate.testing.contract.ground import DAG, RUN, SCOPE, TASK, Ground, attempt, attempt_id

if TYPE_CHECKING:
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

HOUR = timedelta(hours=1)

# every character that means something to a database, a shell or a regular expression, and names that are nearly alike
NAMES = (
    "etl",
    "ETL",
    "etl_a",
    "etlXa",
    "etl.a",
    "étl",
    "100%",
    "100x",
    "a[b]c",
    "abc",
    "a*c",
    "a?c",
    "back\\slash",
    "bang!",
    "it's",
    "^a$",
    "(a|b)",
    "x{1}",
    "a b",
    ":name",
    "%(name)s",
    "🦆🦆",
)

FITTING: dict[str, set[str]] = {
    "*": set(NAMES),
    "**": set(NAMES),
    "": set(),
    "etl": {"etl"},
    "ETL": {"ETL"},
    "etl*": {"etl", "etl_a", "etlXa", "etl.a"},
    "etl_a": {"etl_a"},
    "etl?a": {"etl_a", "etlXa", "etl.a"},
    "etl.a": {"etl.a"},
    "?tl": {"etl", "étl"},
    "é*": {"étl"},
    "100%": {"100%"},
    "100?": {"100%", "100x"},
    "%": set(),
    "_": set(),
    "%(name)s": {"%(name)s"},
    ":name": {":name"},
    "a[b]c": {"a[b]c"},
    "a[*]c": {"a[b]c"},
    "[a-z]*": set(),
    "*]*": {"a[b]c"},
    "a?c": {"abc", "a*c", "a?c"},
    "a*c": {"a[b]c", "abc", "a*c", "a?c"},
    "back\\slash": {"back\\slash"},
    "*\\*": {"back\\slash"},
    "\\*": set(),
    "bang!": {"bang!"},
    "!*": set(),
    "*'*": {"it's"},
    "^a$": {"^a$"},
    "(a|b)": {"(a|b)"},
    "x{1}": {"x{1}"},
    "a b": {"a b"},
    "??": {"🦆🦆"},
    "🦆*": {"🦆🦆"},
    "?" * 3000: set(),
    "*" * 100_000: set(NAMES),
    "*a" * 40 + "b": set(),
    "\0": set(),
    "\ud800*": set(),
    "etl\n": set(),
}


class Lookups(Ground):
    """Dags, counts, patterns, and one by its ids."""

    def test_an_empty_store_counts_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """And looking something up makes nothing."""
        backend = store.backend
        for _ in range(2):
            assert not backend.dags()
            assert not backend.dag_ids()
            assert backend.count_dags() == backend.count_runs() == backend.count_runs(DAG) == 0
            assert backend.count_assets() == backend.count_task_instances(DAG, RUN) == 0
            assert backend.run(RunScope(DAG, RUN)) is None
            assert backend.task_instance(SCOPE, now=clock()) is None
            assert backend.asset(AssetScope("orders"), now=clock()) is None
            assert backend.asset(1, now=clock()) is None

    def test_a_dag_tells_of_its_runs(self, store: StateStore, clock: ManualClock) -> None:
        """How many there are, and how the one begun last stands; dags are ordered by id, in pages."""
        first = clock.now
        for run in ("z", "m", "a"):
            clock.advance(HOUR)
            store.task("b", run, TASK).set("k", 1)
            store.task("b", run, "other").set("k", 1)
        store.task("a", "r", TASK, try_number=2).set("k", 1)
        store.task("B", "r", TASK).set("k", 1)
        clock.advance(HOUR)
        store.task("b", "z", TASK).set("k", 2)
        found = store.backend.dags()
        assert [info.dag_id for info in found] == ["B", "a", "b"]
        assert found[2] == DagInfo("b", 3, "a", None, first + 3 * HOUR, first + 3 * HOUR)
        clock.advance(HOUR)
        store.task("b", "a", "other").set("k", 2)
        # a run's own row is not touched by what its tasks do
        assert store.backend.dags()[2].updated_at == first + 5 * HOUR
        assert store.backend.dags(limit=1, offset=1) == found[1:2]
        assert store.backend.dags(limit=0) == []
        assert store.backend.dags(offset=3) == []
        assert store.backend.dag_ids() == ["B", "a", "b"]
        assert store.backend.dag_ids(limit=1, offset=1) == ["a"]
        assert store.backend.dag_ids(limit=0) == store.backend.dag_ids(offset=3) == []
        assert store.backend.count_dags() == 3
        assert (store.backend.count_runs(), store.backend.count_runs("b")) == (5, 3)
        assert store.backend.count_task_instances("b", "z") == 2

    def test_a_dag_whose_last_run_nobody_began_is_as_its_tasks_are(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """The most serious of their states counts, and of tasks without attempts none; once the run was begun, its own does.

        The run says the same where it is looked up; a list of runs says nothing of their tasks.
        """

        def told() -> str | None:
            run = store.backend.run(RunScope(DAG, RUN))
            assert run is not None
            assert run.tasks_state is None or run.state is None
            state = store.backend.dags()[0].last_state
            assert state == (run.state or run.tasks_state)
            return state

        store.task(DAG, "earlier", "other", try_number=1).set("k", 1)
        clock.advance(HOUR)
        store.task(DAG, RUN, "by hand").set("k", 1)
        assert told() is None
        for number, state in enumerate(["success", "superseded", "up_for_retry", "failed", "success"]):
            fence = Fence(1, attempt_id(number))
            scope = TaskScope(DAG, RUN, TASK, number)
            store.backend.begin(Begin(scope, attempt_id(number), Holder("h", 1, "x"), clock(), 0))
            assert told() == ("failed" if number == 4 else "up_for_retry" if number == 3 else "running")
            store.backend.end(End(scope, fence, state, clock()))
            assert told() == ("failed" if number == 4 else state)
        for run_id in (None, RUN):
            assert [one.tasks_state for one in store.backend.runs(DAG, run_id=run_id, limit=1)] == [None]
        store.backend.begin(Begin(RunScope(DAG, RUN), attempt_id(9), Holder("h", 1, "x"), clock(), 0))
        assert told() == "running"

    def test_a_list_of_dags_looks_at_the_newest_hundred_runs_of_each(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """So many it counts, and what happens in older ones is no activity; of those that began at once, the last are newest."""
        backend, began = store.backend, clock.now

        def told() -> tuple[int, str, datetime]:
            (info,) = backend.dags()
            return info.runs, info.last_run_id, info.updated_at

        for number in range(99):
            store.task(DAG, f"r{number}", TASK).set("k", 1)
        assert told() == (99, "r98", began)
        for number, run in enumerate(("r99", "r100"), start=1):
            store.task(DAG, run, TASK).set("k", 1)
            assert told() == (100, run, began)
            assert backend.count_runs() == 99 + number
        for run, at in (("r0", began), ("r1", began + 2 * HOUR)):
            clock.advance(HOUR)
            backend.begin(Begin(RunScope(DAG, run), attempt_id(1), Holder("h", 1, "x"), clock(), 0))
            assert told() == (100, "r100", at)
        store.delete_run(DAG, "r1")
        assert told() == (100, "r100", began + HOUR)

    def test_a_run_and_a_task_instance_are_found_by_their_ids(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """As in a list: expired entries don't count, and other ids find nothing."""
        attempt(store, 2).set("k", 1)
        attempt(store, 2).set("gone", 1, retention=HOUR)
        attempt(store, map_index=3).set("k", 1)
        clock.advance(HOUR)
        backend = store.backend
        run = backend.run(RunScope(DAG, RUN))
        assert run is not None
        assert [replace(run, tasks_state=None)] == store.runs()
        found = [backend.task_instance(TaskScope(DAG, RUN, TASK, index), now=clock()) for index in (-1, 3, 2)]
        assert found[:2] == store.task_instances(DAG, RUN)
        assert found[0] is not None
        assert (found[0].entries, found[0].try_number, found[0].state) == (1, 2, "running")
        assert found[2] is None
        assert backend.run(RunScope(DAG, "other")) is None

    def test_what_was_deleted_is_in_no_list_and_no_count(self, store: StateStore, clock: ManualClock) -> None:
        """A run, and with its last one the dag; an asset. Made again, they are there again."""
        backend = store.backend
        for run in ("r1", "r2"):
            attempt_of = store.task(DAG, run, TASK, try_number=1)
            attempt_of.set("k", 1)
            clock.advance(HOUR)
        store.asset("orders").set("k", 1)
        store.delete_run(DAG, "r2")
        assert [(info.runs, info.last_run_id) for info in backend.dags()] == [(1, "r1")]
        assert backend.run(RunScope(DAG, "r2")) is None
        assert backend.task_instance(TaskScope(DAG, "r2", TASK), now=clock()) is None
        assert backend.count_task_instances(DAG, "r2") == 0
        assert (backend.count_runs(), backend.count_runs(DAG), backend.count_runs(pattern="*")) == (1, 1, 1)
        store.delete_run(DAG, "r1")
        assert not backend.dags()
        assert not backend.dag_ids()
        assert (backend.count_dags(), backend.count_runs(DAG)) == (0, 0)
        store.delete_asset("orders")
        assert backend.count_assets() == 0
        store.task(DAG, "r2", TASK).set("k", 2)
        assert [(info.runs, info.last_run_id) for info in backend.dags()] == [(1, "r2")]

    def test_an_asset_is_found_by_name_uri_and_id(self, store: StateStore, clock: ManualClock) -> None:
        """Its id stays, also when it gets another name."""
        backend = store.backend
        began = clock.now
        store.asset("orders", uri="s3://orders").set("k", 1)
        store.asset("customers").set("k", 1)
        clock.advance(HOUR)
        store.asset("orders").set("k", 2)
        found = backend.asset(AssetScope("orders"), now=clock())
        assert found is not None
        assert (found.name, found.uri, found.entries) == ("orders", "s3://orders", 1)
        assert (found.created_at, found.updated_at) == (began, clock.now)
        assert backend.asset(AssetScope(uri="s3://orders"), now=clock()) == found
        assert backend.asset(found.id, now=clock()) == found
        assert found in store.assets()
        store.asset("sales", uri="s3://orders").set("k", 2)
        renamed = backend.asset(found.id, now=clock())
        assert renamed is not None
        assert renamed.name == "sales"
        for unknown in (0, -1, found.id + 1000, 2**31, 2**63, 2**63 - 1, -(2**70), 10**400):
            assert backend.asset(unknown, now=clock()) is None
        store.delete_asset("sales")
        assert backend.asset(found.id, now=clock()) is None
        store.asset("a", uri="u").set("k", 1)
        store.asset("b", uri="v").set("k", 1)
        with pytest.raises(InvalidIdError):
            backend.asset(AssetScope("a", "v"), now=clock())

    def test_a_pattern_has_two_wildcards_and_no_more(self, store: StateStore, clock: ManualClock) -> None:
        """``*`` and ``?``; whatever else databases take for one is itself, and case and accents count."""
        for name in NAMES:
            store.task(name, RUN, TASK).set("k", 1)
            store.task(name, "other", TASK).set("k", 1)
            store.asset(f"n {name}", uri=name).set("k", 1)
        backend = store.backend
        for pattern, fitting in FITTING.items():
            message = f"{pattern[:40]!a}"
            assert {info.dag_id for info in backend.dags(pattern=pattern)} == fitting, message
            assert backend.dag_ids(pattern=pattern) == sorted(fitting), message
            assert backend.count_dags(pattern=pattern) == len(fitting), message
            runs = backend.runs(pattern=pattern, limit=100)
            assert sorted(info.dag_id for info in runs) == sorted([*fitting, *fitting]), message
            assert backend.count_runs(pattern=pattern) == 2 * len(fitting), message
            assert {info.uri for info in backend.assets(now=clock(), pattern=pattern)} == fitting, message
            assert backend.count_assets(pattern=pattern) == len(fitting), message

    def test_a_pattern_is_for_the_name_or_the_uri_of_an_asset(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Either is enough, and none is listed twice; with a window, as without a pattern."""
        for number in range(3):
            store.asset(f"s3 {number}", uri=f"s3://{number}").set("k", 1)
        store.asset("other", uri="gs://x").set("k", 1)
        backend = store.backend
        assert [info.name for info in backend.assets(now=clock(), pattern="s3*")] == ["s3 0", "s3 1", "s3 2"]
        assert [info.name for info in backend.assets(now=clock(), pattern="*://x")] == ["other"]
        page = backend.assets(now=clock(), pattern="s3*", limit=1, offset=1)
        assert [info.name for info in page] == ["s3 1"]
        assert backend.count_assets(pattern="s3*") == 3

    def test_a_pattern_and_a_dag_id_both_count(self, store: StateStore) -> None:
        """The runs of that dag, if it fits; in pages."""
        for run in ("r1", "r2"):
            store.task("etl_a", run, TASK).set("k", 1)
            store.task("other", run, TASK).set("k", 1)
        backend = store.backend
        assert [info.run_id for info in backend.runs("etl_a", pattern="etl_*")] == ["r2", "r1"]
        assert backend.count_runs("etl_a", pattern="etl_*") == 2
        assert backend.runs("other", pattern="etl_*") == []
        assert backend.count_runs("other", pattern="etl_*") == 0
        assert [info.run_id for info in backend.runs(pattern="etl_*", limit=1, offset=1)] == ["r1"]
        assert [info.dag_id for info in backend.dags(pattern="*", limit=1, offset=1)] == ["other"]
