"""Finding out who sent a request: a bearer token, or the session cookie of a browser that logged in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from keepstate.server.service import service_of

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection, Request

    from keepstate.server.roles import Caller

COOKIE = "keepstate_session"
_CHANGES_NOTHING = frozenset({"GET", "HEAD", "OPTIONS"})


class UnauthenticatedError(HTTPException):
    """Nobody known sent this: 401. A mistyped, an expired and a revoked token get the same answer."""

    def __init__(self, detail: str) -> None:
        super().__init__(401, detail, {"WWW-Authenticate": 'Bearer realm="keepstate"'})


async def caller_of(request: Request) -> Caller:
    """Return who sent a request.

    Raises ``HTTPException``: 401 for nobody known, 403 for a change that another site had a browser send.
    """
    caller = await recognise(request)
    if caller is None:
        raise UnauthenticatedError(
            "no token was sent (as `Authorization: Bearer …`); `keepstate token create` makes one"
        )
    return caller


async def recognise(request: Request) -> Caller | None:
    """Return who sent a request, or ``None`` where it names nobody. Raises as `caller_of` for what it names wrongly."""
    host = service_of(request).host
    if host is not None:
        return await host.caller_of(request)
    header = request.headers.get("authorization")
    if header is not None:
        scheme, _, text = header.partition(" ")
        if scheme.lower() != "bearer":
            raise UnauthenticatedError("only `Authorization: Bearer …` is understood")
        return await _caller(request, text.strip(), "token")
    session = request.cookies.get(COOKIE)
    if session is None:
        return None
    caller = await _caller(request, session, "session")
    if request.method not in _CHANGES_NOTHING:
        refuse_other_sites(request)
    return caller


async def _caller(request: Request, text: str, kind: str) -> Caller:
    service = service_of(request)
    caller = service.tokens.known(text, kind)
    if caller is None:
        caller = await service.work.read(service.tokens.check, text, kind)
        if caller is not None:
            # who reads must not wait for those who write
            service.work.write_later(service.tokens.note_use, caller)
    if caller is None:
        raise UnauthenticatedError(
            "this token is not known, or no longer"
            if kind == "token"
            else "this login has ended; log in again"
        )
    # for the access log
    request.scope["keepstate.caller"] = caller
    return caller


def failed(request: HTTPConnection) -> None:
    """Note that a login was wrong; raise 429 for an address that has tried too many.

    Right ones go on working from there, or one person could lock out all behind the same address. A wrong bearer token is
    just that, however often it comes: it is a program's, which would take "later" for a reason to go on.
    """
    wait = service_of(request).failures.note(request.client.host if request.client else "")
    if wait:
        raise HTTPException(
            429, f"too many wrong logins from this address; try again in {wait} s", {"Retry-After": str(wait)}
        )


def refuse_other_sites(request: HTTPConnection, *places: str) -> None:
    """Raise 403 for a change that a page of another site had a browser send, with our cookie.

    ``places`` are further hosts that we go by, each with its port if it has one.

    Browsers tell with ``Sec-Fetch-Site`` or ``Origin`` (Fetch standard, 3.2; Fetch Metadata), which no page can forge. What
    sends neither is no browser, and has no business with its cookie.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        allowed = site == "same-origin"
    else:
        # the scheme is not compared, as a proxy may bring TLS
        _, _, place = request.headers.get("origin", "").partition("://")
        allowed = place in {request.headers.get("host"), *places} and place != ""
    if not allowed:
        raise HTTPException(403, "a browser may change something only from keepstate's own pages")
