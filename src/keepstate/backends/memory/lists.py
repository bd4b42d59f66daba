"""What there is: dags, runs, task instances and assets."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from keepstate.backends.answers import (
    MOST_IN_A_GRID,
    MOST_RUNS_COUNTED,
    GridRun,
    GridTask,
    KeyOfAsset,
    KeyOfTask,
)
from keepstate.clock import to_datetime, to_micros
from keepstate.patterns import fits
from keepstate.scope import AssetInfo, AssetScope, DagInfo, RunInfo, RunScope, TaskInstanceInfo, TaskScope
from keepstate.states import most_serious

if TYPE_CHECKING:
    from keepstate.backends.memory.record import Record
    from keepstate.backends.memory.records import Records


class Lists:
    """Those verbs of `Backend` that list what there is."""

    def __init__(self, records: Records) -> None:
        """List what is in ``records``."""
        self._records = records

    def dags(self, *, pattern: str | None = None, limit: int | None = None, offset: int = 0) -> list[DagInfo]:
        """See `Backend.dags`."""
        by_dag: dict[str, list[RunInfo]] = {}
        for info in self._runs(None, pattern):
            by_dag.setdefault(info.dag_id, []).append(info)
        found = [self._dag_info(dag_id, by_dag[dag_id][:MOST_RUNS_COUNTED]) for dag_id in sorted(by_dag)]
        return found[offset:][:limit]

    def _dag_info(self, dag_id: str, runs: list[RunInfo]) -> DagInfo:
        last = runs[0]
        with self._records.lock:
            tasks = [one for _, one in self._records.of_run(dag_id, last.run_id)]
            updated_at = max(
                [*(to_datetime(one.updated_at) for one in tasks), *(info.updated_at for info in runs)]
            )
            state = last.state or most_serious(one.state for one in tasks)
        return DagInfo(dag_id, len(runs), last.run_id, state, last.created_at, updated_at)

    def dag_ids(self, *, pattern: str | None = None, limit: int | None = None, offset: int = 0) -> list[str]:
        """See `Backend.dag_ids`."""
        return sorted({info.dag_id for info in self._runs(None, pattern)})[offset:][:limit]

    def count_dags(self, *, pattern: str | None = None) -> int:
        """See `Backend.count_dags`."""
        return len({info.dag_id for info in self._runs(None, pattern)})

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
        found = self._runs(dag_id, pattern)
        wanted = found if run_id is None else [run for run in found if run.run_id == run_id]
        return wanted[offset : offset + limit]

    def count_runs(self, dag_id: str | None = None, *, pattern: str | None = None) -> int:
        """See `Backend.count_runs`."""
        return len(self._runs(dag_id, pattern))

    def run(self, scope: RunScope) -> RunInfo | None:
        """See `Backend.run`."""
        with self._records.lock:
            found = self._records.kept.get(scope)
            if found is None or found.standing.deleted:
                return None
            tasks = self._records.of_run(scope.dag_id, scope.run_id) if found.state is None else []
            return replace(_run_info(scope, found), tasks_state=most_serious(one.state for _, one in tasks))

    def _runs(self, dag_id: str | None, pattern: str | None) -> list[RunInfo]:
        """Return runs, most recently begun first."""
        with self._records.lock:
            found = [
                (one.created_at, one.id, _run_info(scope, one))
                for scope, one in self._records.kept.items()
                if isinstance(scope, RunScope)
                and not one.standing.deleted
                and dag_id in {None, scope.dag_id}
                and (pattern is None or fits(pattern, scope.dag_id))
            ]
        found.sort(key=lambda one: one[:2], reverse=True)
        return [info for _, _, info in found]

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
        with self._records.lock:
            found = [
                _task_instance_info(scope, one, now)
                for scope, one in self._records.of_run(dag_id, run_id)
                if isinstance(scope, TaskScope) and task_id in {None, scope.task_id}
            ]
        found.sort(key=lambda info: (info.scope.task_id, info.scope.map_index))
        return found[offset:][:limit]

    def count_task_instances(self, dag_id: str, run_id: str, task_id: str | None = None) -> int:
        """See `Backend.count_task_instances`."""
        return len(self.task_instances(dag_id, run_id, task_id, now=0))

    def task_instance(self, scope: TaskScope, *, now: int) -> TaskInstanceInfo | None:
        """See `Backend.task_instance`."""
        with self._records.lock:
            found = self._records.kept.get(scope)
            if found is None or found.standing.deleted:
                return None
            return _task_instance_info(scope, found, now)

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
        with self._records.lock:
            runs = self._runs(dag_id, pattern)[offset : offset + limit]
            left = itertools.count()
            found = []
            for run in runs:
                tasks: dict[str, list[TaskInstanceInfo]] = {}
                for one in self.task_instances(run.dag_id, run.run_id, now=now):
                    if next(left) < MOST_IN_A_GRID:
                        tasks.setdefault(one.scope.task_id, []).append(one)
                found.append(GridRun(run, tuple(_grid_task(*item) for item in tasks.items())))
        return found

    def keys(
        self, *, now: int, pattern: str | None = None, runs: int = 40, limit: int = 10_000
    ) -> list[KeyOfTask]:
        """See `Backend.keys`."""
        with self._records.lock:
            found = [
                KeyOfTask(one.scope, key)
                for run in self._runs(None, pattern)[:runs]
                for one in self.task_instances(run.dag_id, run.run_id, now=now)
                for key in sorted(self._records.kept[one.scope].live(now))
            ]
        return found[:limit]

    def keys_of_assets(
        self, *, now: int, pattern: str | None = None, limit: int = 10_000
    ) -> list[KeyOfAsset]:
        """See `Backend.keys_of_assets`."""
        with self._records.lock:
            assets = sorted(self._assets(pattern), key=lambda one: str(one[0].name))
            found = [
                KeyOfAsset(record.id, str(scope.name), str(scope.uri), key)
                for scope, record in assets
                for key in sorted(record.live(now))
            ]
        return found[:limit]

    def assets(
        self, *, now: int, pattern: str | None = None, limit: int | None = None, offset: int = 0
    ) -> list[AssetInfo]:
        """See `Backend.assets`."""
        found = [_asset_info(scope, one, now) for scope, one in self._assets(pattern)]
        found.sort(key=lambda info: info.name)
        return found[offset:][:limit]

    def count_assets(self, *, pattern: str | None = None) -> int:
        """See `Backend.count_assets`."""
        return len(self._assets(pattern))

    def asset(self, which: AssetScope | int, *, now: int) -> AssetInfo | None:
        """See `Backend.asset`."""
        with self._records.lock:
            wanted = which if isinstance(which, int) else getattr(self._records.find(which), "id", None)
            found = (one for one in self._assets(None) if one[1].id == wanted)
            return next((_asset_info(scope, one, now) for scope, one in found), None)

    def _assets(self, pattern: str | None) -> list[tuple[AssetScope, Record]]:
        with self._records.lock:
            return [
                (scope, one)
                for scope, one in self._records.kept.items()
                if isinstance(scope, AssetScope)
                and (pattern is None or fits(pattern, str(scope.name)) or fits(pattern, str(scope.uri)))
            ]


def _run_info(scope: RunScope, record: Record) -> RunInfo:
    return RunInfo(
        dag_id=scope.dag_id,
        run_id=scope.run_id,
        state=record.state,
        try_number=record.standing.try_number,
        created_at=to_datetime(record.created_at),
        updated_at=to_datetime(record.updated_at),
    )


def _task_instance_info(scope: TaskScope, record: Record, now: int) -> TaskInstanceInfo:
    return TaskInstanceInfo(
        scope=scope,
        state=record.state,
        try_number=record.standing.try_number,
        version=record.version,
        entries=len(record.live(now)),
        created_at=to_datetime(record.created_at),
        updated_at=to_datetime(record.updated_at),
    )


def _grid_task(task_id: str, infos: list[TaskInstanceInfo]) -> GridTask:
    return GridTask(
        task_id,
        tuple(sorted({info.state for info in infos}, key=lambda state: (state is not None, state))),
        len(infos),
        sum(info.entries for info in infos),
        max((info.try_number for info in infos if info.try_number is not None), default=None),
        min(to_micros(info.created_at) for info in infos),
    )


def _asset_info(scope: AssetScope, record: Record, now: int) -> AssetInfo:
    return AssetInfo(
        id=record.id,
        name=str(scope.name),
        uri=str(scope.uri),
        entries=len(record.live(now)),
        created_at=to_datetime(record.created_at),
        updated_at=to_datetime(record.updated_at),
    )
