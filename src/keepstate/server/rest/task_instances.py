"""Task instances in Airflow's paths and shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from keepstate.server.answers import answer
from keepstate.server.rest import airflow_models as shapes
from keepstate.server.rest.dags import RUN, find_run
from keepstate.server.rest.described import (
    DAG_ID,
    MAP_INDEX_IN_PATH,
    RUN_ID,
    TASK_INSTANCE,
    WINDOW,
    operation,
)
from keepstate.server.roles import Right

if TYPE_CHECKING:
    from keepstate.scope import TaskInstanceInfo, TaskScope
    from keepstate.server.rest.asking import Ask

BASE = RUN + "/taskInstances"
ONE = BASE + "/{task_id}"

router = APIRouter(tags=["Task instances"])

_NOT_KNOWN = "The task instance is not known."


@operation(
    router,
    "GET",
    BASE,
    parameters=[DAG_ID, RUN_ID, *WINDOW],
    right=Right.READ,
    answer=shapes.TaskInstanceCollectionResponse,
    absent="The run is not known.",
)
async def list_task_instances(asked: Ask) -> Response:
    """List the task instances of a run, ordered by task and map index."""
    scope, (limit, offset) = asked.run_scope(), asked.window()
    backend = asked.backend
    await find_run(asked, scope)
    ids = scope.dag_id, scope.run_id
    found = await asked.read(
        backend.task_instances, *ids, now=asked.store.clock(), limit=limit, offset=offset
    )
    total = await asked.read(backend.count_task_instances, *ids)
    listed = [shapes.task_instance(info) for info in found]
    return answer(200, {"task_instances": listed, "total_entries": total})


@operation(
    router,
    "GET",
    ONE,
    parameters=TASK_INSTANCE,
    right=Right.READ,
    answer=shapes.TaskInstanceResponse,
    absent=_NOT_KNOWN,
)
async def get_task_instance(asked: Ask) -> Response:
    """Get a task instance that is not mapped."""
    return answer(200, shapes.task_instance(await find_task_instance(asked, asked.task_scope())))


@operation(
    router,
    "GET",
    ONE + "/listMapped",
    parameters=[*TASK_INSTANCE, *WINDOW],
    right=Right.READ,
    answer=shapes.TaskInstanceCollectionResponse,
    absent=_NOT_KNOWN,
)
async def list_mapped_task_instances(asked: Ask) -> Response:
    """List the task instances of a mapped task, ordered by map index."""
    scope, (limit, offset) = asked.task_scope(), asked.window()
    if not asked.caller.reaches_dag(scope.dag_id):
        raise _not_known(scope)
    backend, now = asked.backend, asked.store.clock()
    ids = scope.dag_id, scope.run_id, scope.task_id
    # the one that is not mapped would be the first of them
    other = await asked.read(backend.task_instance, scope, now=now) is not None
    total = await asked.read(backend.count_task_instances, *ids) - other
    if total <= 0:
        raise _not_known(scope)
    found = await asked.read(backend.task_instances, *ids, now=now, limit=limit, offset=offset + other)
    listed = [shapes.task_instance(info) for info in found]
    return answer(200, {"task_instances": listed, "total_entries": total})


@operation(
    router,
    "GET",
    ONE + "/{map_index}",
    parameters=[*TASK_INSTANCE, MAP_INDEX_IN_PATH],
    right=Right.READ,
    answer=shapes.TaskInstanceResponse,
    absent=_NOT_KNOWN,
)
async def get_mapped_task_instance(asked: Ask) -> Response:
    """Get one of the task instances of a mapped task."""
    return answer(200, shapes.task_instance(await find_task_instance(asked, asked.mapped_scope())))


async def find_task_instance(asked: Ask, scope: TaskScope) -> TaskInstanceInfo:
    """Return a task instance; answer 404 for one that is not there, as far as the caller can know."""
    found = None
    if asked.caller.reaches_dag(scope.dag_id):
        found = await asked.read(asked.backend.task_instance, scope, now=asked.store.clock())
    if found is None:
        raise _not_known(scope)
    return found


def _not_known(scope: TaskScope) -> HTTPException:
    """Make the answer for a task instance that is not there, as far as the caller can know."""
    return HTTPException(404, f"task instance {scope} was not found")
