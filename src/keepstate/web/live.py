"""Changes as they happen: server-sent events (HTML standard, 9.2) that say that a page shows something else by now.

A page carries a *mark* of what it shows, made from versions and states. Its browser holds a connection that tells it of another
mark; it then asks for the page's part anew. After an interruption, a restart of the server for one, the browser connects again by
itself and says which mark it has seen, so nothing is missed.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from keepstate.errors import KeepstateError
from keepstate.server.auth import caller_of
from keepstate.server.roles import ForbiddenError, Right
from keepstate.server.routes import Route
from keepstate.server.service import service_of
from keepstate.web.addresses import EVENTS
from keepstate.web.asked import Asked
from keepstate.web.marks import EVERY, Marks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from keepstate.server.roles import Caller
    from keepstate.web.asked import Watch

_STILL_HERE = 15.0

_LONGEST_AT_A_HOST = 10.0
"""Seconds for which events are sent at once where a host's server sends them: nobody tells us when that ends, and it waits."""


def events(path: str, watch: Watch) -> Route:
    """Make the route of a page's events."""

    async def endpoint(request: Request) -> Response:
        try:
            caller = await caller_of(request)
            caller.require(Right.READ)
            mark = await _mark(request, caller, watch)
        except (KeepstateError, ForbiddenError):
            return Response(None, 404)
        seen = request.headers.get("last-event-id") or request.query_params.get("mark", "")
        return StreamingResponse(
            _stream(request, watch, mark, seen),
            media_type="text/event-stream",
            # a proxy that gathered the answer before it passed it on would pass nothing on
            headers={"X-Accel-Buffering": "no"},
        )

    return Route(EVENTS + path, endpoint)


async def _stream(request: Request, watch: Watch, mark: str, seen: str) -> AsyncIterator[str]:
    """Yield an event for each new mark, until the browser goes, the server ends, or the login does."""
    service = service_of(request)
    yield "retry: 500\n\n: here\n\n"
    spoke = time.monotonic()
    until = spoke + (_LONGEST_AT_A_HOST if service.host else math.inf)
    while not service.ending.is_set() and time.monotonic() < until:
        if mark != seen:
            seen = mark
            yield f"id: {mark}\ndata: {mark}\n\n"
            spoke = time.monotonic()
        elif time.monotonic() - spoke > _STILL_HERE:
            # keeps proxies from thinking that nobody is there, and finds out that nobody is
            yield ": here\n\n"
            spoke = time.monotonic()
        await asyncio.sleep(EVERY)
        try:
            mark = await _mark(request, await caller_of(request), watch)
        except (HTTPException, KeepstateError):
            # the browser finds out why when it connects again
            return


async def _mark(request: Request, caller: Caller, watch: Watch) -> str:
    service = service_of(request)
    state = request.app.state
    if not hasattr(state, "marks"):
        state.marks = Marks()
    marks: Marks = state.marks
    asked = Asked(request, caller, service)
    # for each pattern apart, as a list depends on it
    key = (request.scope["path"], asked.page_number(), asked.query("q"), caller.dags, caller.assets)
    return await service.work.read(marks.get, key, lambda: watch(asked))
