"""REST inside Airflow: the URLs of 3.3's state stores, answered by keepstate with Airflow's own users and permissions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from keepstate.integrations.airflow.service import AirflowService
from keepstate.integrations.airflow.users import Airflow, add_route
from keepstate.scope import TaskScope
from keepstate.server import answers
from keepstate.server.rest import asset_state, history, task_state
from keepstate.server.roles import Caller, Role

if TYPE_CHECKING:
    from starlette.requests import Request

PATHS = re.compile(
    r"/api/v2/(dags/[^/]+/dagRuns/[^/]+/taskInstances/[^/]+|assets/[^/]+)/state-store(-history|-restore)?(/|$)"
)
"""What is answered here."""

_METHODS = {"GET": "GET", "PUT": "PUT", "PATCH": "PUT", "POST": "PUT", "DELETE": "DELETE"}
"""Airflow's name of what each method does to a task instance or an asset."""


class RestMiddleware:
    """Answers the paths of the state stores, and hands all others on to Airflow.

    It stands before Airflow, as a mounted application may not have paths below ``/api/v2``.
    """

    def __init__(self, app: Any, prefix: str = "") -> None:
        """Wrap Airflow's ``app``, which is served under the path ``prefix``."""
        self._app = app
        self._prefix = prefix.rstrip("/")
        self._own: FastAPI | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        path = scope.get("path", "")
        if self._prefix and path.startswith(f"{self._prefix}/"):
            path = path[len(self._prefix) :]
        if scope["type"] != "http" or not PATHS.match(path):
            await self._app(scope, receive, send)
            return
        if self._own is None:
            self._own = create_app()
        await self._own({**scope, "path": path, "root_path": ""}, receive, send)


def create_app() -> FastAPI:
    """Make the application: the routes of keepstate's server, behind Airflow's checks instead of tokens."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_asset, requires_access_dag

    app = FastAPI(openapi_url=None, redirect_slashes=False)
    app.state.service = AirflowService(Airflow(edits=True))
    answers.install(app)
    for room in (task_state, asset_state, history):
        for route in room.router.routes:
            (method,) = getattr(route, "methods", set()) - {"HEAD"}
            needed = (
                requires_access_asset(method=_METHODS[method])
                if getattr(route, "path", "").startswith("/api/v2/assets")
                else requires_access_dag(method=_METHODS[method], access_entity=DagAccessEntity.TASK_INSTANCE)
            )
            add_route(app, route, method, needed, _as_caller)
    return app


async def _as_caller(request: Request, user: Any) -> Caller:
    if request.method != "GET" and "dag_id" in request.path_params:
        await request.app.state.service.work.read(_demand_task_instance, request)
    # what was asked for has been granted already
    return Caller("airflow", str(user.get_name()), Role.EDITOR)


def _demand_task_instance(request: Request) -> None:
    """Answer 404 where Airflow knows no such task instance; with ``all_map_indices``, none of the task."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    ids, query = request.path_params, request.query_params
    try:
        scope = TaskScope(ids["dag_id"], ids["dag_run_id"], ids["task_id"], int(query.get("map_index", "-1")))
    except ValueError:
        # the route itself says what is wrong
        return
    wanted = select(TaskInstance.task_id).where(
        TaskInstance.dag_id == scope.dag_id,
        TaskInstance.run_id == scope.run_id,
        TaskInstance.task_id == scope.task_id,
    )
    if query.get("all_map_indices", "false").lower() not in {"true", "1"}:
        wanted = wanted.where(TaskInstance.map_index == scope.map_index)
    with create_session(scoped=False) as session:
        if session.execute(wanted.limit(1)).first() is None:
            raise HTTPException(404, f"Airflow knows no task instance {scope}")
