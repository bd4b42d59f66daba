"""The attempts of task instances and of runs: in keepstate's own shape, and as the tries that Airflow's clients ask for."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from keepstate.clock import to_text
from keepstate.server.answers import answer
from keepstate.server.rest.airflow_models import Answer, TaskFacts, TaskState, task_facts
from keepstate.server.rest.dags import RUN, find_run
from keepstate.server.rest.described import (
    DAG_ID,
    MAP_INDEX,
    MAP_INDEX_IN_PATH,
    RUN_ID,
    TASK_INSTANCE,
    TRY_NUMBER,
    operation,
)
from keepstate.server.rest.task_instances import ONE, find_task_instance
from keepstate.server.roles import Right

if TYPE_CHECKING:
    from keepstate.scope import Attempt, TaskScope
    from keepstate.server.rest.asking import Ask

router = APIRouter(tags=["Attempts"])

_NOT_KNOWN = "The task instance is not known."
_MAPPED = ONE + "/{map_index}"
# states that Airflow has as well; any other is an end, and to Airflow's clients a failure
_AS_IN_AIRFLOW = frozenset({"running", "success", "up_for_retry"})


class AttemptResponse(Answer):
    """One execution of a task instance, or of a run."""

    try_number: int
    attempt_id: str | None
    incarnation: int
    state: str
    host: str | None
    pid: int | None
    started_at: datetime
    beat_at: datetime | None
    ended_at: datetime | None
    reason: str | None


class AttemptCollectionResponse(Answer):
    """Attempts, newest first, those of earlier incarnations too."""

    attempts: list[AttemptResponse]
    total_entries: int


class TryResponse(TaskFacts):
    """An attempt as Airflow tells of one. Whatever ended it but a success, its state is `failed`."""

    state: TaskState


class TryCollectionResponse(Answer):
    """Attempts of the incarnation that stands, ordered by their number."""

    task_instances: list[TryResponse]
    total_entries: int


@operation(
    router,
    "GET",
    ONE + "/attempts",
    parameters=[*TASK_INSTANCE, MAP_INDEX],
    right=Right.READ,
    answer=AttemptCollectionResponse,
    absent=_NOT_KNOWN,
)
async def list_attempts(asked: Ask) -> Response:
    """List the attempts of a task instance, newest first.

    Those of earlier incarnations too, each with the number of its own.
    """
    scope = asked.task_scope()
    await find_task_instance(asked, scope)
    return _listed(await asked.read(asked.backend.attempts, scope))


@operation(
    router,
    "GET",
    RUN + "/attempts",
    parameters=[DAG_ID, RUN_ID],
    right=Right.READ,
    answer=AttemptCollectionResponse,
    absent="The run is not known.",
)
async def list_attempts_of_run(asked: Ask) -> Response:
    """List the attempts of a run as a whole, newest first."""
    scope = asked.run_scope()
    await find_run(asked, scope)
    return _listed(await asked.read(asked.backend.attempts, scope))


@operation(
    router,
    "GET",
    ONE + "/tries",
    parameters=TASK_INSTANCE,
    right=Right.READ,
    answer=TryCollectionResponse,
    absent=_NOT_KNOWN,
)
async def list_tries(asked: Ask) -> Response:
    """List the attempts of a task instance that is not mapped, in Airflow's shape."""
    return await _tries(asked)


@operation(
    router,
    "GET",
    _MAPPED + "/tries",
    parameters=[*TASK_INSTANCE, MAP_INDEX_IN_PATH],
    right=Right.READ,
    answer=TryCollectionResponse,
    absent=_NOT_KNOWN,
)
async def list_mapped_tries(asked: Ask) -> Response:
    """List the attempts of a mapped task instance, in Airflow's shape."""
    return await _tries(asked)


@operation(
    router,
    "GET",
    ONE + "/tries/{task_try_number}",
    parameters=[*TASK_INSTANCE, TRY_NUMBER],
    right=Right.READ,
    answer=TryResponse,
    absent="There is no such attempt.",
)
async def get_try(asked: Ask) -> Response:
    """Get an attempt of a task instance that is not mapped, in Airflow's shape."""
    return await _try(asked)


@operation(
    router,
    "GET",
    _MAPPED + "/tries/{task_try_number}",
    parameters=[*TASK_INSTANCE, MAP_INDEX_IN_PATH, TRY_NUMBER],
    right=Right.READ,
    answer=TryResponse,
    absent="There is no such attempt.",
)
async def get_mapped_try(asked: Ask) -> Response:
    """Get an attempt of a mapped task instance, in Airflow's shape."""
    return await _try(asked)


async def _tries(asked: Ask) -> Response:
    scope = asked.mapped_scope()
    found = [_as_try(scope, one) for one in await _standing(asked, scope)]
    return answer(200, {"task_instances": found, "total_entries": len(found)})


async def _try(asked: Ask) -> Response:
    scope, number = asked.mapped_scope(), asked.number("task_try_number")
    # the last, where one number was used twice
    for one in reversed(await _standing(asked, scope)):
        if one.try_number == number:
            return answer(200, _as_try(scope, one))
    raise HTTPException(404, f"attempt {number} of task instance {scope} was not found")


async def _standing(asked: Ask, scope: TaskScope) -> list[Attempt]:
    """Return the attempts of the incarnation that stands, oldest first: in another one their numbers begin again."""
    await find_task_instance(asked, scope)
    found = await asked.read(asked.backend.attempts, scope)
    return [one for one in reversed(found) if one.incarnation == found[0].incarnation]


def _listed(found: list[Attempt]) -> Response:
    return answer(200, {"attempts": [_shape(one) for one in found], "total_entries": len(found)})


def _shape(one: Attempt) -> dict[str, Any]:
    return {
        "try_number": one.try_number,
        "attempt_id": one.attempt_id,
        "incarnation": one.incarnation,
        "state": one.state,
        "host": one.host,
        "pid": one.pid,
        "started_at": to_text(one.started_at),
        "beat_at": to_text(one.beat_at) if one.beat_at else None,
        "ended_at": to_text(one.ended_at) if one.ended_at else None,
        "reason": one.reason,
    }


def _as_try(scope: TaskScope, one: Attempt) -> dict[str, Any]:
    return {
        **task_facts(scope, one.started_at, one.ended_at),
        "try_number": one.try_number,
        "state": one.state if one.state in _AS_IN_AIRFLOW else "failed",
        "hostname": one.host,
        "pid": one.pid,
    }
