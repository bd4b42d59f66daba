"""Pages that can't be shown, and changes that can't be made: told to people, without a trace and without a secret."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse

from keepstate.errors import BackendError, InvalidIdError, KeepstateError
from keepstate.server import answers
from keepstate.server.auth import recognise
from keepstate.server.roles import ForbiddenError
from keepstate.server.service import service_of
from keepstate.web.addresses import Addresses
from keepstate.web.forms import sentence
from keepstate.web.frame import Frame, here
from keepstate.web.rendering import render

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

log = logging.getLogger("keepstate.server")

_UNAUTHENTICATED = 401
_NOT_FOUND = 404
_HEADINGS = {
    401: "You are not logged in",
    403: "You are not allowed to do this",
    404: "Not found",
    409: "This can't be done now",
    413: "This is too large",
    429: "Too many wrong logins",
    503: "The store can't be reached",
}


@dataclass(frozen=True)
class Trouble:
    """A page that can't be shown, and why."""

    frame: Frame
    status: int
    heading: str
    message: str


def answer(request: Request, exc: Exception) -> Response:
    """Return the page for an error. Who is not logged in is sent to do that, and comes back then."""
    if isinstance(exc, ClientDisconnect):
        # there is nobody left to show it to, and nothing is wrong here
        raise exc
    host = service_of(request).host
    status, message = _told(request, exc)
    if status == _UNAUTHENTICATED:
        if host is None:
            return _to_login(request)
        message = f"Log in to {host.name}, then open this page there again."
    headers = exc.headers if isinstance(exc, HTTPException) else None
    if "hx-request" in request.headers:
        return PlainTextResponse(message, status, headers)
    caller = request.scope.get("keepstate.caller")
    heading = _HEADINGS.get(status, "Something went wrong")
    frame = Frame(
        heading,
        caller.name if caller else "",
        caller.role.value if caller else "",
        Addresses(request.scope.get("root_path", "")),
        "",
        here(request),
        host=host.name if host else "",
    )
    return HTMLResponse(render("trouble.html", Trouble(frame, status, heading, message)), status, headers)


async def of_no_page(request: Request) -> Response:
    """Return the page for an address that leads nowhere, with the way on for whoever is logged in."""
    with suppress(HTTPException, KeepstateError):
        await recognise(request)
    return answer(request, HTTPException(_NOT_FOUND, "There is no page at this address."))


def _told(request: Request, exc: Exception) -> tuple[int, str]:
    """Return the status of an error, and what people are told of it."""
    if isinstance(exc, HTTPException):
        return exc.status_code, sentence(str(exc.detail))
    if isinstance(exc, ForbiddenError):
        return 403, sentence(str(exc))
    if isinstance(exc, InvalidIdError):
        # no such id is ever given, so there is nothing of that name
        return 404, "This does not exist, or you are not allowed to see it."
    what = f"{request.method} {request.scope['path']}"
    if isinstance(exc, BackendError):
        # where the database is concerns those who run the server
        log.error("%s: %s", what, exc)
        return answers.status_of(exc), "Try again later. The server's log has the details."
    if isinstance(exc, KeepstateError):
        return answers.status_of(exc), sentence(str(exc))
    log.error("%s: a fault of the server's", what, exc_info=exc)
    return 500, "An error occurred on the server. Its log has the details."


def _to_login(request: Request) -> Response:
    if "hx-request" in request.headers:
        # the page that the script runs in, not the part that it asked for
        return PlainTextResponse("", _UNAUTHENTICATED, {"HX-Refresh": "true"})
    addresses = Addresses(request.scope.get("root_path", ""))
    target = here(request) if request.method == "GET" else addresses.dags()
    return RedirectResponse(addresses.login(target), 303)
