"""keepstate's pages of task instances inside Airflow: in a tab of Airflow's own page, for Airflow's users."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from keepstate.integrations.airflow.service import AirflowService
from keepstate.integrations.airflow.users import Airflow, add_route, refuse_other_pages
from keepstate.server.headers import SecurityHeaders
from keepstate.server.limits import BodyLimits
from keepstate.server.roles import Caller, Role
from keepstate.web import LARGEST_FORM, of_task_instances, static, trouble

if TYPE_CHECKING:
    from starlette.requests import Request

# What Airflow leaves in a tab's address for a task that is not mapped.
_UNMAPPED = re.compile(r"/mapped/(\{MAP_INDEX\}|%7BMAP_INDEX%7D|-1)(?=/|$)", re.IGNORECASE)


def create_app(prefix: str, *, edits: bool) -> Any:
    """Make the application, to be mounted at ``prefix``. ``edits``: Airflow's own pages change entries already."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag

    def needs(method: str) -> Any:
        return requires_access_dag(method=method, access_entity=DagAccessEntity.TASK_INSTANCE)

    changing = needs("PUT"), needs("DELETE")

    async def as_caller(request: Request, user: Any) -> Caller:
        refuse_other_pages(request)
        may_change = await run_in_threadpool(_are_granted, changing, request, user)
        return Caller(
            "airflow",
            str(user.get_name()),
            Role.EDITOR if may_change else Role.VIEWER,
            # that dag, and no asset
            dags=request.path_params["dag_id"],
            assets="",
        )

    app = FastAPI(
        openapi_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(SecurityHeaders, framed=True),
            Middleware(BodyLimits, bounds={"": LARGEST_FORM}),
        ],
    )
    for kind in (HTTPException, Exception):
        app.add_exception_handler(kind, trouble.answer)
    app.state.service = AirflowService(Airflow(edits=edits))
    for route in of_task_instances:
        for method in (route.methods or set()) - {"HEAD"}:
            add_route(app, route, method, needs("GET"), as_caller)
    app.router.routes += static.routes
    return _Addressed(app, prefix)


def _are_granted(checks: tuple[Any, ...], request: Request, user: Any) -> bool:
    try:
        for check in checks:
            check(request, user)
    except HTTPException:
        return False
    return True


class _Addressed:
    """Brings the addresses of requests into the form that the pages know."""

    def __init__(self, app: FastAPI, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            path, raw, root = scope["path"], scope["raw_path"].decode("ascii", "replace"), scope["root_path"]
            if not path.startswith(f"{root}/"):
                # a proxy took off what Airflow is below, and Airflow says so all the same
                around = root.removesuffix(self._prefix)
                path, raw = around + path, around + raw
            raw = _UNMAPPED.sub("", raw)
            scope = {**scope, "path": _UNMAPPED.sub("", path), "raw_path": raw.encode("ascii", "replace")}
        await self._app(scope, receive, send)
