"""What REST and the pages stand on inside Airflow's API server: the store of tasks, and what Airflow itself knows of them."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from keepstate.integrations.airflow import metadata
from keepstate.scope import AssetInfo, Attempt, TaskInstanceInfo, TaskScope
from keepstate.server.work import Work
from keepstate.store import StateStore

if TYPE_CHECKING:
    from keepstate.backends.answers import Applied
    from keepstate.backends.base import Backend
    from keepstate.backends.requests import Batch, Clear
    from keepstate.integrations.airflow.users import Airflow

_NEVER = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TIMES_OF_ASSETS = sum(one.endswith("_at") for one in AssetInfo.__dataclass_fields__)
_COLUMNS = ("try_number", "state", "start_date", "end_date", "hostname", "pid")


class AirflowService:
    """Stands where keepstate's server has its `Service`."""

    def __init__(self, host: Airflow) -> None:
        self.host = host
        # never set: nobody tells us that Airflow's server ends
        self.ending = threading.Event()
        self._work: Work | None = None
        self._store: StateStore | None = None

    @property
    def store(self) -> StateStore:
        """The store that tasks reach; raises while it can't be opened."""
        if self._store is None:
            store = metadata.store()
            backend: Any = _OfAirflow(store.backend)
            self._store = StateStore(backend, settings=store.settings, clock=store.clock)
        return self._store

    @property
    def work(self) -> Work:
        """The threads that call it, started when they are needed: a server's workers are forked."""
        if self._work is None:
            self._work = Work(one_writer=False)
        return self._work


class _OfAirflow:
    """A backend that knows the task instances and assets that Airflow knows, whether anything was stored for them or not."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def apply(self, batch: Batch) -> Applied:
        return self._backend.apply(replace(batch, known=False))

    def clear(self, request: Clear) -> Applied:
        return self._backend.clear(replace(request, known=False))

    def task_instance(self, scope: TaskScope, *, now: int) -> TaskInstanceInfo | None:
        """Return a task instance with the state that Airflow has it in; ``None`` where Airflow knows none."""
        found = _tries(scope, history=False)
        if not found:
            return None
        own = self._backend.task_instance(scope, now=now)
        if own is None:
            begun = found[0].start_date or _NEVER
            own = TaskInstanceInfo(scope, None, None, 0, 0, begun, begun)
        return replace(own, state=found[0].state, try_number=found[0].try_number)

    def attempts(self, scope: TaskScope) -> list[Attempt]:
        """Return Airflow's tries that have begun, newest first."""
        return [
            Attempt(
                one.try_number,
                None,
                0,
                one.state,
                one.hostname or None,
                one.pid,
                one.start_date,
                None,
                one.end_date,
            )
            for one in _tries(scope, history=True)
            if one.start_date is not None
        ]

    def asset(self, which: Any, *, now: int) -> AssetInfo | None:
        """Return an asset by Airflow's number of it."""
        del now
        from airflow.models.asset import AssetModel
        from airflow.utils.session import create_session
        from sqlalchemy import select

        query = select(AssetModel.name, AssetModel.uri).where(AssetModel.id == which)
        with create_session(scoped=False) as session:
            row = session.execute(query).first()
        if row is None:
            return None
        return AssetInfo(which, row.name, row.uri, 0, *(_NEVER,) * _TIMES_OF_ASSETS)


def _tries(scope: TaskScope, *, history: bool) -> list[Any]:
    """Return the try of a task instance that Airflow has it in, and those before it if asked, newest first."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from airflow.utils.session import create_session
    from sqlalchemy import select

    found: dict[int, Any] = {}
    with create_session(scoped=False) as session:
        for table in (TaskInstance, TaskInstanceHistory) if history else (TaskInstance,):
            query = select(*(getattr(table, name) for name in _COLUMNS)).where(
                table.dag_id == scope.dag_id,
                table.run_id == scope.run_id,
                table.task_id == scope.task_id,
                table.map_index == scope.map_index,
            )
            for row in session.execute(query):
                # a try that failed for good is in the history too
                found.setdefault(row.try_number, row)
    return [found[number] for number in sorted(found, reverse=True)]
