"""Logging a browser in and out: with a token typed into a form, or with a link that serves once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, RedirectResponse

from keepstate.clock import SECOND
from keepstate.server.auth import COOKIE, failed, refuse_other_sites
from keepstate.server.limits import body_within
from keepstate.server.routes import Route
from keepstate.server.service import service_of
from keepstate.server.tokens import SESSION_LASTS
from keepstate.web import trouble
from keepstate.web.addresses import Addresses
from keepstate.web.asked import fields_of
from keepstate.web.frame import Frame
from keepstate.web.rendering import render

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from keepstate.server.roles import Caller
    from keepstate.web.asked import Endpoint

_MOST = 4096
# Back to a page of ours, and never to another host: no second slash or backslash that a browser takes for one.
_OWN_PATH = re.compile(r"/(?![/\\])[^\x00-\x1f\\]*")
# what a browser resolves before it asks
_DOTS = re.compile(r"/(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Login:
    """The form; ``trouble`` says why the last try was none, ``target`` where a login leads."""

    frame: Frame
    trouble: str
    target: str


async def show(request: Request) -> Response:
    """Show the form; with a ``code`` from a login link, log in at once."""
    code = request.query_params.get("code")
    target = _target(request, request.query_params.get("next", ""))
    if code is None:
        return _form(request, "", target)
    service = service_of(request)
    caller = await service.work.write(service.tokens.spend_login, code)
    return await _logged_in(
        request, caller, target, "This link was used already, or is older than ten minutes."
    )


async def log_in(request: Request) -> Response:
    """Take a token from the form, and give the browser a session for it."""
    refuse_other_sites(request)
    fields = fields_of(await body_within(request, _MOST))
    target = _target(request, fields.get("next", ""))
    service = service_of(request)
    caller = await service.work.read(service.tokens.check, fields.get("token", "").strip())
    return await _logged_in(request, caller, target, "This token is unknown, expired or revoked.")


async def log_out(request: Request) -> Response:
    """End the browser's session."""
    refuse_other_sites(request)
    service = service_of(request)
    caller = await service.work.read(service.tokens.check, request.cookies.get(COOKIE, ""), "session")
    if caller is not None:
        await service.work.write(service.tokens.revoke, caller.token_id)
    answer = RedirectResponse("login", 303)
    answer.delete_cookie(COOKIE, path=_cookie_path(request), httponly=True, samesite="strict")
    return answer


async def _logged_in(request: Request, caller: Caller | None, target: str, otherwise: str) -> Response:
    """Give the browser a session in the name of ``caller``; where there is none, or no longer, show the form once more."""
    service = service_of(request)
    session = None if caller is None else await service.work.write(service.tokens.open_session, caller)
    if session is None:
        failed(request)
        return _form(request, otherwise, target, 401)
    answer = RedirectResponse(target, 303)
    answer.set_cookie(
        COOKIE,
        session,
        max_age=SESSION_LASTS // SECOND,
        path=_cookie_path(request),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


def _route(path: str, call: Endpoint, method: str) -> Route:
    async def endpoint(request: Request) -> Response:
        try:
            return await call(request)
        except Exception as exc:  # noqa: BLE001 - whatever it is, a person waits for a page
            return trouble.answer(request, exc)

    return Route(path, endpoint, methods=[method])


def _form(request: Request, trouble: str, target: str, status: int = 200) -> Response:
    frame = Frame("Log in", "", "", Addresses(request.scope.get("root_path", "")), "", "")
    return HTMLResponse(render("login.html", Login(frame, trouble, target)), status)


def _cookie_path(request: Request) -> str:
    # two servers below one name don't log each other out
    return request.scope.get("root_path", "") or "/"


def _target(request: Request, text: str) -> str:
    """Return where a login leads: below our own path, as what else the host serves is not ours to lead to."""
    home = request.scope.get("root_path", "") + "/"
    ours = text.startswith(home) and _OWN_PATH.fullmatch(text) and not _DOTS.search(text.partition("?")[0])
    return text if ours else home


routes = [
    _route("/login", show, "GET"),
    _route("/login", log_in, "POST"),
    _route("/logout", log_out, "POST"),
]
