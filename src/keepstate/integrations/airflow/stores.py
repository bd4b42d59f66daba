"""From a task instance to its accessors: which store this process uses, opened once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from keepstate.allowance import try_all
from keepstate.backends.requests import Behalf, Fence
from keepstate.clock import system_clock
from keepstate.connect import connect, route
from keepstate.integrations.airflow import configuration, metadata
from keepstate.integrations.airflow.attempts import attempt_of
from keepstate.integrations.airflow.hooks import is_airflow_2
from keepstate.integrations.airflow.stale import Watched
from keepstate.runtime.assets import AssetStates, as_assets
from keepstate.scope import Writer
from keepstate.store import StateStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.accessors import TaskStateStore
    from keepstate.backends.base import Backend
    from keepstate.integrations.airflow.attempts import Begun
    from keepstate.settings import Settings

_open: dict[tuple[int, str], StateStore] = {}


class Desk:
    """Makes the accessors of one task instance."""

    def __init__(self, begun: Begun) -> None:
        self._task = begun.task
        self._store = _store_of(configuration.load())
        self._attempt = attempt_of(begun)

    def task_state_store(self) -> TaskStateStore:
        """Return the accessor of the task instance, fenced by its attempt."""
        attempt, scope = self._attempt, self._attempt.scope
        return self._store.task(
            scope.dag_id,
            scope.run_id,
            scope.task_id,
            map_index=scope.map_index,
            try_number=attempt.try_number,
            attempt_id=attempt.attempt_id,
            item=attempt.item,
        )

    def asset_state_store(self) -> AssetStates:
        """Return the accessors of the task's inlets and outlets, each write in the name of the attempt."""
        attempt, scope = self._attempt, self._attempt.scope
        writer = Writer(
            "task", scope.dag_id, scope.run_id, scope.task_id, scope.map_index, attempt.try_number
        )
        behalf = Behalf(scope, Fence(attempt.try_number, attempt.attempt_id, attempt.item))
        inlets = as_assets("inlets", list(_concrete(self._task.inlets)))
        outlets = as_assets("outlets", list(_concrete(self._task.outlets)))
        return AssetStates(self._store, [*inlets, *outlets], writer, behalf)


def flush() -> None:
    """Write what throttled checkpoints of this process hold back."""
    try_all([store.flush for (pid, _), store in list(_open.items()) if pid == os.getpid()])


def _store_of(settings: Settings) -> StateStore:
    """Return the store of this process. A forked process opens its own."""
    place = settings.url or settings.backend or ""
    found = _open.get((os.getpid(), place))
    if found is None:
        found = _open[os.getpid(), place] = _opened(settings)
    return found


def _opened(settings: Settings) -> StateStore:
    if route(None, settings) != "embedded":
        store = connect(settings=settings)
    elif is_airflow_2():
        store = metadata.store()
    else:
        from keepstate.integrations.airflow.channel import SupervisorBackend

        backend = cast("Backend", SupervisorBackend(retry_timeout=settings.retry_timeout))
        return StateStore(backend, settings=settings, clock=system_clock)
    if is_airflow_2():
        store.backend = cast("Backend", Watched(store.backend))
    return store


def _concrete(assets: Any) -> Iterator[Any]:
    """Yield the assets among inlets or outlets; an alias names none that could have state."""
    for one in assets or ():
        if "Alias" not in type(one).__name__:
            yield one
