"""Routes that are not FastAPI's: as light as Starlette's, and known to figures and log by their template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Match
from starlette.routing import Route as PlainRoute

if TYPE_CHECKING:
    from starlette.types import Scope


class Route(PlainRoute):
    """A route that leaves itself in the request's scope, as FastAPI's do."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for this route, and what that adds to its scope."""
        match, child = super().matches(scope)
        if match is not Match.NONE:
            child["route"] = self
        return match, child
