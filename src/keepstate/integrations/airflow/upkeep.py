"""Looking after the store of an Airflow's tasks, now and then, so that nobody has to."""

from __future__ import annotations

import functools
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from keepstate.backends.requests import Clear, Fence
from keepstate.errors import InvalidInputError, InvalidTypeError, StaleAttemptError, UnsupportedError
from keepstate.integrations.airflow import configuration, deletions, metadata
from keepstate.integrations.airflow.hooks import is_airflow_2
from keepstate.scope import TaskScope, Writer, writer_of
from keepstate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from keepstate.store import StateStore

log = logging.getLogger("keepstate")

# a process that has just started has better things to do
_FIRST = 60.0
_PAGE = 500


class Upkeep:
    """Cleans up now and then, in a thread of its own, as long as it is reminded: without requests, nothing piles up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._between = _interval()
        self._next = time.monotonic() + min(_FIRST, self._between)

    def remind(self) -> None:
        """Clean up if it is time to; returns at once."""
        if not self._between or time.monotonic() < self._next:
            return
        with self._lock:
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + self._between
        threading.Thread(target=clean_up, name="keepstate-cleanup", daemon=True).start()


def for_ever() -> None:
    """Clean up again and again."""
    upkeep = Upkeep()
    while True:
        time.sleep(1)
        upkeep.remind()


def extend_execution_app(module: ModuleType) -> None:
    """Be reminded by the requests of tasks on Airflow 3.3, which come to its execution API whatever their store is.

    What can't be stored is refused there, too: from an error that Airflow doesn't know it makes a 500, which workers take for
    trouble that passes, and ask again.
    """
    if configuration.load().backend != configuration.BACKEND:
        return
    create = module.__dict__["create_task_execution_api_app"]

    @functools.wraps(create)
    def with_upkeep(*args: Any, **given: Any) -> Any:
        app = create(*args, **given)
        try:
            from starlette.middleware import Middleware

            app.user_middleware.append(Middleware(_Reminding))
            for kind in (InvalidInputError, InvalidTypeError):
                app.add_exception_handler(kind, _refuse)
        except Exception:
            log.exception("keepstate could not extend Airflow's execution API, which cleans up no tables now")
        return app

    module.__dict__["create_task_execution_api_app"] = with_upkeep


def _refuse(_request: Any, exc: Exception) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse({"detail": {"reason": "invalid", "message": str(exc)}}, status_code=422)


class _Reminding:
    """Hands every request on, and thinks of the upkeep."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._upkeep = Upkeep()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._upkeep.remind()
        await self._app(scope, receive, send)


def _interval() -> float:
    try:
        return configuration.load().cleanup_interval
    except Exception as exc:  # noqa: BLE001 - whoever uses the store is told what is wrong with the settings
        log.debug("keepstate goes by its own interval of cleanups: %s", exc)
        return Settings().cleanup_interval


def clean_up() -> None:
    """Remove what nobody will ask for: what has expired, and what is left of deleted runs, unused assets and successes."""
    try:
        store = metadata.store()
        if (store.settings.url or "").startswith(("http://", "https://")):
            # a keepstate server looks after itself
            return
        try:
            deletions.sweep(store)
            deletions.sweep_assets(store)
            clear_what_succeeded(store)
        except UnsupportedError:
            log.debug("the class of [state_store] backend lists no task instances, so none are swept")
        store.cleanup()
    except Exception as exc:  # noqa: BLE001 - the next one tries again
        log.warning("cleanup of keepstate's tables failed, and will be tried again: %s", exc)


def clear_what_succeeded(store: StateStore) -> int:
    """Under ``clear_on_success``, clear what a task left that died after its success and before it was cleared.

    Returns how many task instances that were. Where the store may be shared, at ``KEEPSTATE_URL``, nothing is swept.
    """
    if not store.settings.clear_on_success or store.settings.url is not None:
        return 0
    return sum(_cleared(store, scope, fence) for scope, fence in list(_left(store)))


def _left(store: StateStore) -> Iterator[tuple[TaskScope, Fence]]:
    """Yield task instances that hold entries and have succeeded, each with the attempt that did."""
    offset = 0
    while runs := store.runs(limit=_PAGE, offset=offset):
        offset += len(runs)
        for run in runs:
            holding = {one.scope for one in store.task_instances(run.dag_id, run.run_id) if one.entries}
            for scope, fence in _successes(run.dag_id, run.run_id) if holding else ():
                if scope in holding:
                    yield scope, fence


def _successes(dag_id: str, run_id: str) -> Iterator[tuple[TaskScope, Fence]]:
    from airflow.models.taskinstance import TaskInstance
    from airflow.settings import engine
    from sqlalchemy import select
    from sqlalchemy.orm import Session

    # 2.11 has no ids of tries
    columns = [TaskInstance.task_id, TaskInstance.map_index, TaskInstance.try_number]
    columns += [] if is_airflow_2() else [TaskInstance.id]
    query = select(*columns).where(
        TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.state == "success"
    )
    with Session(engine) as session:
        for task_id, map_index, try_number, *number in session.execute(query):
            attempt_id = str(number[0]) if number else None
            yield TaskScope(dag_id, run_id, task_id, map_index), Fence(try_number, attempt_id)


def _cleared(store: StateStore, scope: TaskScope, fence: Fence) -> bool:
    """Clear in the name of the attempt that succeeded, so that one which has begun since keeps what it stores.

    What a person has put there since, stays.
    """
    entries = store.backend.read(scope, None, now=store.clock()).entries
    writers = [writer_of(entry.writer) for entry in entries]
    if not all(one is not None and one.kind == "task" for one in writers):
        return False
    writer = Writer("task", try_number=fence.try_number)
    try:
        store.backend.clear(Clear(scope, store.clock(), writer, fence=fence, history=store.history_policy))
    except StaleAttemptError:
        return False
    return True
