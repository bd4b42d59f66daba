"""The server as an ASGI application: what is answered at which path, and what stands around all of it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response

from keepstate.connect import tokens_of
from keepstate.server import answers, health, rest, worker
from keepstate.server.auth import caller_of
from keepstate.server.below import Below
from keepstate.server.cleaning import clean_again_and_again
from keepstate.server.headers import SecurityHeaders
from keepstate.server.limits import BodyLimits
from keepstate.server.metrics import CountingBackend, Metrics
from keepstate.server.observing import Observing
from keepstate.server.roles import Right
from keepstate.server.routes import Route
from keepstate.server.service import Service, service_of
from keepstate.server.tokens import Tokens
from keepstate.server.work import PATIENCE, Work
from keepstate.store import StateStore
from keepstate.web import LARGEST_FORM, PATHS, of_no_page
from keepstate.web import routes as pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

# Forms of the login are small.
_AROUND = 65_536


def create_service(store: StateStore) -> Service:
    """Make what the server stands on, over an open SQL store. Raises ``UnsupportedError`` for a store of another kind."""
    tokens = Tokens(tokens_of(store), store.clock)
    metrics = Metrics()
    # where nothing is tried again, a line still takes its time
    patience = min(max(store.settings.retry_timeout, 1.0), PATIENCE)
    counted = StateStore(CountingBackend(store.backend, metrics), settings=store.settings, clock=store.clock)
    return Service(counted, Work(one_writer=store.has_one_writer, patience=patience), tokens, metrics)


def create_app(service: Service, *, cleanup_interval: float = 0, root_path: str = "") -> FastAPI:
    """Make the application. ``cleanup_interval`` is in seconds; 0 leaves cleaning up to others.

    ``root_path`` is where a proxy serves it, without a slash at its end.

    When it shuts down, it finishes what has begun. The store stays open: it is the caller's.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.health = health.Health(service)
        cleaning = (
            asyncio.create_task(clean_again_and_again(service, cleanup_interval))
            if cleanup_interval
            else None
        )
        try:
            yield
        finally:
            if cleaning is not None:
                cleaning.cancel()
                with suppress(asyncio.CancelledError):
                    await cleaning
            await asyncio.to_thread(service.work.close)

    app = FastAPI(
        title="keepstate",
        version=version("keepstate"),
        description="State of tasks and assets that outlives the attempt. The paths below `/api/v2` have Airflow's shapes.",
        openapi_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        # FastAPI's own, in newer versions, looks for each request whether the environment wants it, and would then send what
        # stands in messages of exceptions; here, /metrics and the access log say what there is to say
        telemetry={"tracing": False, "metrics": False, "logs": False},
        middleware=[
            *([Middleware(Below, path=root_path)] if root_path else []),
            Middleware(Observing, metrics=service.metrics, clock=service.store.clock),
            Middleware(
                BodyLimits,
                bounds={
                    worker.PATH: worker.LARGEST_BODY,
                    # REST itself refuses what is above the set limit, with 422
                    rest.PATH: rest.LARGEST_BODY,
                    **dict.fromkeys(PATHS, LARGEST_FORM),
                    "": _AROUND,
                },
                outermost=True,
            ),
            Middleware(worker.WorkerApi),
            Middleware(SecurityHeaders),
        ],
    )
    app.state.service = service
    answers.install(app)
    app.add_exception_handler(404, _nothing_there)
    rest.describe(app)
    app.router.routes += [
        # not as included routers, which FastAPI asks twice for each request
        *(route for router in rest.routers() for route in router.routes),
        *health.routes,
        *pages,
        Route("/metrics", _metrics),
    ]
    return app


async def _nothing_there(request: Request, exc: Exception) -> Response:
    """Answer for a path that leads nowhere: to people with a page, to programs with JSON."""
    for_people = request.method in {"GET", "HEAD"} and "text/html" in request.headers.get("accept", "")
    if for_people and not request.scope["path"].startswith("/api/"):
        return await of_no_page(request)
    return answers.http_exception(request, exc)


async def _metrics(request: Request) -> Response:
    """Answer with the figures, to whoever may read everything: they tell of all dags together."""
    caller = await caller_of(request)
    caller.require(Right.READ)
    if caller.limited:
        raise HTTPException(403, "the figures tell of all dags and assets, and this token is for some only")
    return Response(service_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
