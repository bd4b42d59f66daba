"""Dags and runs in Airflow's paths and shapes, and the removal of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from keepstate.server.answers import answer
from keepstate.server.rest import airflow_models as shapes
from keepstate.server.rest.described import DAG_ID, RUN_ID, WINDOW, operation
from keepstate.server.roles import Right

if TYPE_CHECKING:
    from keepstate.scope import RunInfo, RunScope
    from keepstate.server.rest.asking import Ask

BASE = "/api/v2/dags"
RUNS = BASE + "/{dag_id}/dagRuns"
RUN = RUNS + "/{dag_run_id}"
EVERY = "~"
"""What Airflow's clients write for a dag to mean each of them."""

router = APIRouter(tags=["Dags and runs"])

_NO_DAG = "No run of this dag is known."
_NO_RUN = "The run is not known."


@operation(router, "GET", BASE, parameters=WINDOW, right=Right.READ, answer=shapes.DagCollectionResponse)
async def list_dags(asked: Ask) -> Response:
    """List the dags that have runs, ordered by id."""
    limit, offset = asked.window()
    pattern, backend = asked.caller.dags, asked.backend
    found = await asked.read(backend.dag_ids, pattern=pattern, limit=limit, offset=offset)
    total = await asked.read(backend.count_dags, pattern=pattern)
    return answer(200, {"dags": [shapes.dag(dag_id) for dag_id in found], "total_entries": total})


@operation(
    router,
    "GET",
    BASE + "/{dag_id}",
    parameters=[DAG_ID],
    right=Right.READ,
    answer=shapes.DagResponse,
    absent=_NO_DAG,
)
async def get_dag(asked: Ask) -> Response:
    """Get a dag."""
    return answer(200, shapes.dag(await _known(asked)))


@operation(
    router,
    "GET",
    BASE + "/{dag_id}/details",
    parameters=[DAG_ID],
    right=Right.READ,
    answer=shapes.DagDetailsResponse,
    absent=_NO_DAG,
)
async def get_dag_details(asked: Ask) -> Response:
    """Get a dag in Airflow's longer shape."""
    return answer(200, shapes.dag_details(await _known(asked)))


@operation(
    router,
    "GET",
    RUNS,
    parameters=[DAG_ID, *WINDOW],
    right=Right.READ,
    answer=shapes.DagRunCollectionResponse,
    absent=_NO_DAG,
)
async def list_runs(asked: Ask) -> Response:
    """List the runs of a dag, or with `~` of all dags.

    Most recently begun first.
    """
    wanted, (limit, offset) = asked.dag_id(), asked.window()
    dag_id = None if wanted == EVERY else wanted
    pattern, backend = asked.caller.dags, asked.backend
    found = await asked.read(backend.runs, dag_id, pattern=pattern, limit=limit, offset=offset)
    total = await asked.read(backend.count_runs, dag_id, pattern=pattern)
    if dag_id is not None and not total:
        raise _no_dag(dag_id)
    return answer(200, {"dag_runs": [shapes.dag_run(info) for info in found], "total_entries": total})


@operation(
    router,
    "GET",
    RUN,
    parameters=[DAG_ID, RUN_ID],
    right=Right.READ,
    answer=shapes.DagRunResponse,
    absent=_NO_RUN,
)
async def get_run(asked: Ask) -> Response:
    """Get a run."""
    return answer(200, shapes.dag_run(await find_run(asked, asked.run_scope())))


@operation(
    router,
    "DELETE",
    RUN,
    parameters=[DAG_ID, RUN_ID],
    right=Right.ERASE,
    status=204,
    absent=_NO_RUN,
)
async def delete_run(asked: Ask) -> Response:
    """Delete a run with everything of it.

    Entries, history and attempts. What still runs of it is stale from then on, and a run made again under its id starts empty.
    """
    scope = asked.run_scope()
    await find_run(asked, scope)
    # whoever deletes it at the same time: it is gone afterwards
    await asked.write(asked.backend.delete_run, scope.dag_id, scope.run_id, now=asked.store.clock())
    return Response(None, 204)


async def _known(asked: Ask) -> str:
    """Return the id of a dag that has runs; answer 404 for any other."""
    dag_id = asked.dag_id()
    if not await asked.read(asked.backend.runs, dag_id, pattern=asked.caller.dags, limit=1):
        raise _no_dag(dag_id)
    return dag_id


def _no_dag(dag_id: str) -> HTTPException:
    """Make the answer for a dag that is not there, as far as the caller can know."""
    return HTTPException(404, f"dag {dag_id!r} was not found")


async def find_run(asked: Ask, scope: RunScope) -> RunInfo:
    """Return a run; answer 404 for one that is not there, as far as the caller can know."""
    found = None
    if asked.caller.reaches_dag(scope.dag_id):
        found = await asked.read(asked.backend.run, scope)
    if found is None:
        raise HTTPException(404, f"run {scope.run_id!r} of dag {scope.dag_id!r} was not found")
    return found
