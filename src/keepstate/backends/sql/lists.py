"""What there is: dags, runs, task instances and assets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from keepstate.backends.answers import (
    MOST_IN_A_GRID,
    MOST_RUNS_COUNTED,
    GridRun,
    GridTask,
    KeyOfAsset,
    KeyOfTask,
)
from keepstate.backends.sql import assets
from keepstate.backends.sql import list_statements as sql
from keepstate.backends.sql.access import Access
from keepstate.clock import to_datetime
from keepstate.patterns import compacted, fits
from keepstate.scope import AssetInfo, AssetScope, DagInfo, RunInfo, RunScope, TaskInstanceInfo, TaskScope
from keepstate.states import BY_SERIOUSNESS

if TYPE_CHECKING:
    from keepstate.backends.sql.database import Row

_ALL = 2**31 - 1
_MAX_ID = 2**63 - 1


class Lists(Access):
    """Those verbs of `Backend` that list what there is."""

    def dags(self, *, pattern: str | None = None, limit: int | None = None, offset: int = 0) -> list[DagInfo]:
        """See `Backend.dags`."""
        params = {"counted": MOST_RUNS_COUNTED, "newer": MOST_RUNS_COUNTED - 1, **_window(limit, offset)}
        return [_dag_of(row) for row in self._fitting(sql.DAGS, pattern, **params)]

    def dag_ids(self, *, pattern: str | None = None, limit: int | None = None, offset: int = 0) -> list[str]:
        """See `Backend.dag_ids`."""
        return [row[0] for row in self._fitting(sql.DAG_IDS, pattern, **_window(limit, offset))]

    def count_dags(self, *, pattern: str | None = None) -> int:
        """See `Backend.count_dags`."""
        return _sum(self._fitting(sql.COUNT_DAGS, pattern))

    def runs(
        self,
        dag_id: str | None = None,
        *,
        pattern: str | None = None,
        run_id: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[RunInfo]:
        """See `Backend.runs`."""
        window = _window(limit, offset)
        if run_id is not None and dag_id is not None:
            scope = RunScope(dag_id, run_id)
            found = self.run(scope) if pattern is None or fits(pattern, dag_id) else None
            return [replace(found, tasks_state=None)][offset : offset + limit] if found else []
        if run_id is not None:
            rows = self._fitting(sql.RUNS_CALLED, pattern, run_id=run_id, **window)
        elif dag_id is None:
            rows = (
                self._fitting(sql.RUNS_FITTING, pattern, **window)
                if pattern is not None
                else self._query(sql.RUNS, window)
            )
        elif pattern is None or fits(pattern, dag_id):
            rows = self._query(sql.RUNS_OF_DAG, {"dag_id": dag_id, **window})
        else:
            rows = []
        return [_run_of(row) for row in rows]

    def count_runs(self, dag_id: str | None = None, *, pattern: str | None = None) -> int:
        """See `Backend.count_runs`."""
        if dag_id is None:
            return _sum(self._fitting(sql.COUNT_RUNS, pattern))
        if pattern is None or fits(pattern, dag_id):
            return _sum(self._query(sql.COUNT_RUNS_OF_DAG, {"dag_id": dag_id}))
        return 0

    def run(self, scope: RunScope) -> RunInfo | None:
        """See `Backend.run`."""
        rows = self._query(sql.RUN, {"digest": scope.digest})
        if not rows:
            return None
        return replace(_run_of(rows[0][:6]), tasks_state=_state_at(rows[0][6]))

    def task_instances(
        self,
        dag_id: str,
        run_id: str,
        task_id: str | None = None,
        *,
        now: int,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[TaskInstanceInfo]:
        """See `Backend.task_instances`."""
        params = {
            "dag_id": dag_id,
            "run_id": run_id,
            "task_id": task_id,
            "now": now,
            **_window(limit, offset),
        }
        statement = sql.TASK_INSTANCES if task_id is None else sql.TASK_INSTANCES_OF_TASK
        return [_task_instance_of(row) for row in self._query(statement, params)]

    def count_task_instances(self, dag_id: str, run_id: str, task_id: str | None = None) -> int:
        """See `Backend.count_task_instances`."""
        statement = sql.COUNT_TASK_INSTANCES if task_id is None else sql.COUNT_TASK_INSTANCES_OF_TASK
        return _sum(self._query(statement, {"dag_id": dag_id, "run_id": run_id, "task_id": task_id}))

    def task_instance(self, scope: TaskScope, *, now: int) -> TaskInstanceInfo | None:
        """See `Backend.task_instance`."""
        rows = self._query(sql.TASK_INSTANCE, {"digest": scope.digest, "now": now})
        return _task_instance_of(rows[0]) if rows else None

    def grid(
        self,
        dag_id: str | None = None,
        *,
        now: int,
        pattern: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> list[GridRun]:
        """See `Backend.grid`."""
        params: dict[str, Any] = {"now": now, "most": MOST_IN_A_GRID, **_window(limit, offset)}
        if dag_id is None:
            rows = (
                self._query(sql.GRID, params)
                if pattern is None
                else self._fitting(sql.GRID_FITTING, pattern, **params)
            )
        elif pattern is None or fits(pattern, dag_id):
            rows = self._query(sql.GRID_OF_DAG, {"dag_id": dag_id, **params})
        else:
            rows = []
        by_run: dict[int, list[Row]] = {}
        for row in rows:
            by_run.setdefault(row[6], []).append(row)
        return [_grid_run(several) for several in by_run.values()]

    def keys(
        self, *, now: int, pattern: str | None = None, runs: int = 40, limit: int = 10_000
    ) -> list[KeyOfTask]:
        """See `Backend.keys`."""
        params = {"now": now, "limit": runs, "offset": 0, "most": limit}
        rows = (
            self._query(sql.KEYS, params)
            if pattern is None
            else self._fitting(sql.KEYS_FITTING, pattern, **params)
        )
        rows.sort(key=lambda row: (-row[0], -row[1], *row[4:]))
        return [KeyOfTask(TaskScope(*row[2:6]), row[6]) for row in rows]

    def keys_of_assets(
        self, *, now: int, pattern: str | None = None, limit: int = 10_000
    ) -> list[KeyOfAsset]:
        """See `Backend.keys_of_assets`."""
        rows = self._fitting(sql.KEYS_OF_ASSETS, pattern, now=now, limit=limit)
        return [KeyOfAsset(*row) for row in rows]

    def assets(
        self, *, now: int, pattern: str | None = None, limit: int | None = None, offset: int = 0
    ) -> list[AssetInfo]:
        """See `Backend.assets`."""
        rows = self._fitting(sql.ASSETS, pattern, now=now, **_window(limit, offset))
        return [_asset_of(row) for row in rows]

    def count_assets(self, *, pattern: str | None = None) -> int:
        """See `Backend.count_assets`."""
        return _sum(self._fitting(sql.COUNT_ASSETS, pattern))

    def asset(self, which: AssetScope | int, *, now: int) -> AssetInfo | None:
        """See `Backend.asset`."""
        if isinstance(which, AssetScope):
            found = assets.find(self._query, which)
            which = found[0] if found else 0
        rows = self._query(sql.ASSET, {"id": which, "now": now}) if 0 < which <= _MAX_ID else []
        return _asset_of(rows[0]) if rows else None

    def _fitting(self, statement: str, pattern: str | None, **params: Any) -> list[Row]:
        """Ask for what fits; without a pattern, for all."""
        ours = "*" if pattern is None else compacted(pattern)
        if ours is None:
            return []
        return self._query(
            self._db.dialect.render(statement), {"pattern": self._db.dialect.pattern(ours), **params}
        )


def _window(limit: int | None, offset: int) -> dict[str, int]:
    return {"limit": _ALL if limit is None else limit, "offset": offset}


def _sum(rows: list[Row]) -> int:
    return int(rows[0][0]) if rows else 0


def _dag_of(row: Row) -> DagInfo:
    dag_id, runs, run_id, state, created_at, updated_at, last_updated_at, place = row
    updated_at = max(updated_at, last_updated_at or 0)
    state = state or _state_at(place)
    return DagInfo(dag_id, runs, run_id, state, to_datetime(created_at), to_datetime(updated_at))


def _state_at(place: int | None) -> str | None:
    return None if place is None else BY_SERIOUSNESS[place]


def _grid_run(rows: list[Row]) -> GridRun:
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        if row[7] is not None:
            by_task.setdefault(row[7], []).append(row[8:])
    return GridRun(_run_of(rows[0][:6]), tuple(_grid_task(*item) for item in by_task.items()))


def _grid_task(task_id: str, rows: list[Row]) -> GridTask:
    states, instances, entries, tries, began = zip(*rows, strict=True)
    return GridTask(
        task_id,
        tuple(sorted(states, key=lambda state: (state is not None, state))),
        sum(instances),
        sum(entries),
        max((one for one in tries if one is not None), default=None),
        min(began),
    )


def _run_of(row: Row) -> RunInfo:
    dag_id, run_id, state, try_number, created_at, updated_at = row
    return RunInfo(dag_id, run_id, state, try_number, to_datetime(created_at), to_datetime(updated_at))


def _task_instance_of(row: Row) -> TaskInstanceInfo:
    dag_id, run_id, task_id, map_index, state, try_number, version, created_at, updated_at, entries = row
    return TaskInstanceInfo(
        scope=TaskScope(dag_id, run_id, task_id, map_index),
        state=state,
        try_number=try_number,
        version=version,
        entries=entries,
        created_at=to_datetime(created_at),
        updated_at=to_datetime(updated_at),
    )


def _asset_of(row: Row) -> AssetInfo:
    asset_id, name, uri, entries, created_at, updated_at = row
    return AssetInfo(asset_id, name, uri, entries, to_datetime(created_at), to_datetime(updated_at))
