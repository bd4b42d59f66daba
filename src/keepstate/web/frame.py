"""What stands around every page: its title, the way to it, and who looks at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request

    from keepstate.web.addresses import Addresses


@dataclass(frozen=True)
class Crumb:
    """A step of the way to a page; the last one, which is the page, leads nowhere."""

    text: str
    href: str | None = None


@dataclass(frozen=True)
class Frame:
    """What stands around a page. ``text`` is what the search was for, ``mark`` what is shown, where that is live.

    Part of the pages of a ``host``, it has no login and no navigation of its own.
    """

    title: str
    user: str
    role: str
    addresses: Addresses
    section: str
    here: str
    crumbs: tuple[Crumb, ...] = ()
    text: str = ""
    mark: str = ""
    host: str = ""


def here(request: Request) -> str:
    """Return the path and query that were asked for, as they were written: decoded, a path might mean another one."""
    scope = request.scope
    path, query = (
        scope["raw_path"].decode("ascii", "replace"),
        scope["query_string"].decode("ascii", "replace"),
    )
    return f"{path}?{query}" if query else path
