"""REST inside Airflow: the URLs of 3.3's state stores, answered by keepstate with Airflow's own users and permissions."""

from __future__ import annotations

import logging
import re
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from keepstate.integrations.airflow import metadata
from keepstate.scope import AssetInfo, TaskScope
from keepstate.server import answers
from keepstate.server.rest import asset_state, history, task_state
from keepstate.server.roles import Caller, Role
from keepstate.server.work import Work
from keepstate.store import StateStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from keepstate.backends.base import Applied, Backend, Batch, Clear

log = logging.getLogger("keepstate")

PATHS = re.compile(
    r"/api/v2/(dags/[^/]+/dagRuns/[^/]+/taskInstances/[^/]+|assets/[^/]+)/state-store(-history|-restore)?(/|$)"
)
"""What is answered here."""

_METHODS = {"GET": "GET", "PUT": "PUT", "PATCH": "PUT", "POST": "PUT", "DELETE": "DELETE"}
"""Airflow's name of what each method does to a task instance or an asset."""

_user: ContextVar[str] = ContextVar("keepstate_airflow_user")


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
    from airflow.api_fastapi.core_api.security import (
        get_user,
        requires_access_asset,
        requires_access_dag,
    )

    app = FastAPI(openapi_url=None, redirect_slashes=False)
    app.state.service = _Service()
    answers.install(app)
    for room in (task_state, asset_state, history):
        for route in room.router.routes:
            (method,) = getattr(route, "methods", set()) - {"HEAD"}
            path, endpoint = getattr(route, "path", ""), getattr(route, "endpoint", None)
            needed = (
                requires_access_asset(method=_METHODS[method])
                if path.startswith("/api/v2/assets")
                else requires_access_dag(method=_METHODS[method], access_entity=DagAccessEntity.TASK_INSTANCE)
            )
            app.add_api_route(
                path,
                _as_user(endpoint, get_user),
                methods=[method],
                dependencies=[Depends(needed)],
                response_class=Response,
            )
    return app


def _as_user(endpoint: Any, get_user: Any) -> Callable[..., Awaitable[Any]]:
    async def answer(request: Request, user: Any) -> Any:
        _user.set(str(user.get_name()))
        if request.method != "GET" and "dag_id" in request.path_params:
            await request.app.state.service.work.read(_demand_task_instance, request)
        # the routes ask for a token, and the tokens of this service stand for the user that Airflow has found
        headers = [*request.scope["headers"], (b"authorization", b"Bearer airflow")]
        headers = [one for one in headers if one[0] != b"authorization"] + headers[-1:]
        return await endpoint(Request({**request.scope, "headers": headers}, request.receive))

    # FastAPI reads the annotations, which are texts here
    answer.__annotations__ = {"request": Request, "user": Annotated[Any, Depends(get_user)], "return": Any}
    return answer


class _Service:
    """What the server's routes stand on, over the store of Airflow."""

    def __init__(self) -> None:
        self.tokens = _Users()
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


class _Users:
    """Stands where the server has its tokens: whoever has come here has been let in by Airflow."""

    def known(self, text: str, kind: str) -> Caller:
        """Return the user of this request."""
        del text, kind
        return Caller("airflow", _user.get(), Role.EDITOR)


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


_NEVER = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TIMES_OF_ASSETS = sum(one.endswith("_at") for one in AssetInfo.__dataclass_fields__)


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
