"""Who may do what: a task's token reaches its own task instance, and of assets its inlets and outlets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from keepstate.backends.fencing import Standing
from keepstate.backends.refusals import stale
from keepstate.backends.requests import Batch, Behalf, Clear, Fence, HistoryPolicy
from keepstate.errors import AccessDeniedError, StaleAttemptError
from keepstate.integrations.airflow.attempts import counted
from keepstate.scope import AssetScope, TaskScope, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

VERBS = frozenset({"read", "apply", "clear", "history", "changes"})
"""What a task may ask for."""


@dataclass(frozen=True)
class Known:
    """What Airflow knows of the try that a token was made for. ``superseded_by``: a later one that has begun since."""

    scope: TaskScope
    try_number: int
    attempt_id: str
    superseded_by: int | None
    dag_version_id: str | None


def known(ti_id: str) -> Known:
    """Look up a try by its id. Raises ``StaleAttemptError`` when its run is gone."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from airflow.utils.session import create_session
    from sqlalchemy import select

    try:
        number = UUID(ti_id)
    except ValueError:
        raise AccessDeniedError(f"{ti_id!r:.60} is no id of a task instance") from None
    # its own session: the usual one belongs to the thread, which in `airflow dags test` is the scheduler's too
    with create_session(scoped=False) as session:
        for table, column in (
            (TaskInstance, TaskInstance.id),
            (TaskInstanceHistory, TaskInstanceHistory.task_instance_id),
        ):
            row = session.execute(
                select(
                    table.dag_id,
                    table.run_id,
                    table.task_id,
                    table.map_index,
                    table.try_number,
                    table.dag_version_id,
                ).where(column == _as_stored(column, number))
            ).first()
            if row is not None:
                scope = TaskScope(row.dag_id, row.run_id, row.task_id, row.map_index)
                later = None if table is TaskInstance else _later(session, scope, row.try_number)
                return Known(
                    scope=scope,
                    try_number=counted(row.try_number),
                    attempt_id=str(number),
                    superseded_by=later,
                    dag_version_id=None if row.dag_version_id is None else str(row.dag_version_id),
                )
    raise StaleAttemptError(
        "Airflow knows no such task instance any more: its run was deleted, so this attempt has no say; "
        "let this process end",
        try_number=0,
        current_try_number=None,
    )


def _later(session: Any, scope: TaskScope, try_number: int) -> int | None:
    """Return the try that has begun since one that is history.

    Airflow makes the id of the next try as soon as one ends, when callbacks of that still run, and counts it once it begins.
    """
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select

    query = select(TaskInstance.try_number).where(
        TaskInstance.dag_id == scope.dag_id,
        TaskInstance.run_id == scope.run_id,
        TaskInstance.task_id == scope.task_id,
        TaskInstance.map_index == scope.map_index,
    )
    current: int | None = session.scalar(query)
    return current if current is not None and current > try_number else None


def _as_stored(column: Any, number: UUID) -> Any:
    """Return an id in the type that this version of Airflow has it in: 3.0 and 3.1 keep text."""
    try:
        return number if column.type.python_type is UUID else str(number)
    except NotImplementedError:
        return str(number)


def admit(verb: str, arguments: dict[str, Any], attempt: Known, history: HistoryPolicy) -> dict[str, Any]:
    """Return the arguments of a request as they are to be carried out, in the name of the attempt that asks.

    Who writes and what is kept of earlier versions is filled in here, whatever the request says. Raises
    ``AccessDeniedError`` for what is not the task's, and ``StaleAttemptError`` for the changes of a superseded attempt.
    """
    if verb not in VERBS:
        raise AccessDeniedError(f"a task may not use {verb}()")
    request: Batch | Clear | None = arguments.get("batch") or arguments.get("request")
    scope = arguments["scope"] if request is None else request.scope
    _admit_scope(scope, attempt)
    if request is None:
        if verb == "read" and isinstance(scope, TaskScope):
            arguments["fence"] = _admit_fence(arguments.get("fence"), attempt)
            arguments["writer"] = _writer(scope, attempt)
            arguments["history"] = history
        return arguments
    if attempt.superseded_by is not None:
        fence = Fence(attempt.try_number, attempt.attempt_id)
        raise stale(attempt.scope, fence, Standing(attempt.superseded_by, None, 0))
    if isinstance(request, Clear) and request.all_map_indices:
        raise AccessDeniedError("a task may clear its own map index only")
    changed = replace(request, writer=_writer(scope, attempt), history=history)
    if isinstance(scope, TaskScope):
        changed = replace(changed, fence=_admit_fence(request.fence, attempt), behalf=None)
    else:
        given = None if request.behalf is None else request.behalf.fence
        changed = replace(changed, fence=None, behalf=Behalf(attempt.scope, _admit_fence(given, attempt)))
    return {"batch" if isinstance(request, Batch) else "request": changed}


def _admit_scope(scope: TaskScope | AssetScope, attempt: Known) -> None:
    if isinstance(scope, TaskScope):
        if scope != attempt.scope:
            raise AccessDeniedError(
                f"{scope} is another task instance than {attempt.scope}, whose token this is"
            )
        return
    for asset in assets_of(attempt.scope.dag_id, attempt.scope.task_id, attempt.dag_version_id):
        if scope.name in {None, asset.name} and scope.uri in {None, asset.uri}:
            return
    raise AccessDeniedError(f"{scope} is neither inlet nor outlet of {attempt.scope}")


def _admit_fence(given: Fence | None, attempt: Known) -> Fence:
    if given is None or (given.try_number, given.attempt_id) != (attempt.try_number, attempt.attempt_id):
        raise AccessDeniedError(
            f"a request for {attempt.scope} must name the attempt whose token it comes with"
        )
    return given


def _writer(scope: TaskScope | AssetScope, attempt: Known) -> Writer:
    if isinstance(scope, TaskScope):
        # the store leaves out what the scope says already
        return Writer("task", try_number=attempt.try_number)
    own = attempt.scope
    return Writer("task", own.dag_id, own.run_id, own.task_id, own.map_index, attempt.try_number)


def assets_of(dag_id: str, task_id: str, dag_version_id: str | None) -> tuple[AssetScope, ...]:
    """Return the inlets and outlets of a task in one version of its DAG, or in the latest."""
    try:
        # one version never changes
        find = assets_in_version if dag_version_id is not None else assets_in_version.__wrapped__
        return find(dag_id, task_id, dag_version_id)
    except LookupError:
        return ()


@lru_cache(maxsize=1024)
def assets_in_version(dag_id: str, task_id: str, dag_version_id: str | None) -> tuple[AssetScope, ...]:
    """Return them, and keep the answer. Raises ``LookupError``, which is not kept, while Airflow has no such version."""
    data = _serialized(dag_id, dag_version_id)
    if data is None:
        raise LookupError(dag_id)
    tasks = (data.get("dag") or {}).get("tasks") or []
    return tuple(dict.fromkeys(_assets_in(tasks, task_id)))


def _serialized(dag_id: str, dag_version_id: str | None) -> dict[str, Any] | None:
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    column = SerializedDagModel.dag_version_id
    query = select(SerializedDagModel).where(SerializedDagModel.dag_id == dag_id)
    if dag_version_id is not None:
        query = query.where(column == _as_stored(column, UUID(dag_version_id)))
    with create_session(scoped=False) as session:
        found = session.scalars(query.order_by(SerializedDagModel.created_at.desc())).first()
        data: dict[str, Any] | None = None if found is None else found.data
    return data


def _assets_in(tasks: list[dict[str, Any]], task_id: str) -> Iterator[AssetScope]:
    """Yield the assets of a task in a serialized DAG; those of a mapped one are among what all its instances share."""
    for one in tasks:
        task = one.get("__var", one)
        if task.get("task_id") != task_id:
            continue
        for place in (task, task.get("partial_kwargs") or {}):
            for entry in [*(place.get("inlets") or []), *(place.get("outlets") or [])]:
                # an alias names no asset that could have state
                if entry.get("__type") in {"asset", "asset_ref"}:
                    named = entry.get("__var", {})
                    yield AssetScope(named.get("name"), named.get("uri"))
