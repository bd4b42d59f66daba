"""Airflow's users, with Airflow's permissions, before routes of keepstate's server and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from keepstate.server.auth import refuse_other_sites

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import FastAPI

    from keepstate.server.roles import Caller

_CALLER = "keepstate.caller"
_CHANGES_NOTHING = frozenset({"GET", "HEAD"})


def add_route(
    app: FastAPI,
    route: Any,
    method: str,
    needed: Callable[..., object],
    as_caller: Callable[[Request, Any], Awaitable[Caller]],
) -> None:
    """Have ``app`` answer as ``route`` does, once Airflow knows the user and grants what is ``needed``.

    ``as_caller`` makes of the request and Airflow's user the caller that the route asks for.
    """
    from airflow.api_fastapi.core_api.security import get_user

    async def answer(request: Request, user: Any) -> Any:
        request.scope[_CALLER] = await as_caller(request, user)
        return await route.endpoint(request)

    # FastAPI reads the annotations, which are texts here
    answer.__annotations__ = {"request": Request, "user": Annotated[Any, Depends(get_user)], "return": Any}
    app.add_api_route(
        route.path, answer, methods=[method], dependencies=[Depends(needed)], response_class=Response
    )


class Airflow:
    """The host of routes that were added so."""

    name = "Airflow"

    def __init__(self, *, edits: bool) -> None:
        """See `keepstate.server.service.Host`."""
        self.edits = edits

    async def caller_of(self, request: Request) -> Caller:
        """Return the user that Airflow has let in."""
        caller: Caller = request.scope[_CALLER]
        return caller


def refuse_other_pages(request: Request) -> None:
    """Raise 403 for a change that did not come from a page of this Airflow's: a browser sends its cookie with others, too."""
    if request.method not in _CHANGES_NOTHING:
        from urllib.parse import urlsplit

        from airflow.configuration import conf

        # a proxy may send another name on than people know
        refuse_other_sites(request, urlsplit(conf.get("api", "base_url", fallback="") or "").netloc)
