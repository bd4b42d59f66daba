"""What this server is and whether it is well, in Airflow's paths and shapes."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from keepstate.server.answers import answer
from keepstate.server.health import Health
from keepstate.server.rest.airflow_models import HealthResponse, VersionResponse
from keepstate.server.rest.described import open_operation

router = APIRouter(tags=["About"])


@open_operation(router, "/api/v2/version", answer=VersionResponse)
async def get_version(request: Request) -> Response:  # noqa: ARG001 - an endpoint's signature
    """Get the version of keepstate.

    Airflow's clients ask for it without a token.
    """
    return answer(200, {"version": version("keepstate"), "git_version": None})


@open_operation(router, "/api/v2/monitor/health", answer=HealthResponse)
async def get_health(request: Request) -> Response:
    """Tell whether the store can be read and written.

    Airflow's other parts are not there, so their status is null. `/health` tells the same by its status.
    """
    health: Health = request.app.state.health
    status = "healthy" if await health.ready() else "unhealthy"
    return answer(
        200,
        {
            "metadatabase": {"status": status},
            "scheduler": {"status": None, "latest_scheduler_heartbeat": None},
            "triggerer": {"status": None, "latest_triggerer_heartbeat": None},
            "dag_processor": {"status": None, "latest_dag_processor_heartbeat": None},
        },
    )
