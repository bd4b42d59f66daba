"""Being served below a path of a proxy's, such as ``/keepstate``: ASGI middleware around everything else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from keepstate.errors import ConfigurationError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_PATH = re.compile(r"(/(?!\.\.?(?:/|$))[A-Za-z0-9._~-]+)*/?", re.ASCII)
OWN = frozenset(
    {
        "api",
        "assets",
        "dags",
        "docs",
        "events",
        "health",
        "login",
        "logout",
        "metrics",
        "openapi.json",
        "search",
        "static",
    }
)
"""What paths of the server's own begin with. Below one, nobody could tell whether a proxy has taken the path off."""


def checked(path: str) -> str:
    """Return the path without a slash at its end. Raises ``ConfigurationError`` for what is no path."""
    if not _PATH.fullmatch(path):
        raise ConfigurationError(
            f"{path!r} is no path to serve below; it begins with a slash, and has letters, digits and ._~-, "
            "like /keepstate, and no part that is . or .."
        )
    first = path.strip("/").partition("/")[0]
    if first in OWN:
        raise ConfigurationError(
            f"{path!r} is no path to serve below, as the server has paths of its own that begin with /{first}; take "
            "another, like /keepstate"
        )
    return path.rstrip("/")


class Below:
    """Tells an application that it is below ``path``: links then begin with that.

    A proxy may take the path off the requests that it hands on, or leave it: what comes is brought into the same form, which is
    the one that ASGI has for it.
    """

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            scope = {**scope, "root_path": self._path}
            if scope["path"] == self._path:
                # without the slash, it is the same page
                scope["path"] += "/"
                scope["raw_path"] = self._path.encode() + b"/"
            elif not _is_below(scope["path"], self._path):
                scope["path"] = self._path + scope["path"]
                scope["raw_path"] = self._path.encode() + scope["raw_path"]
        await self._app(scope, receive, send)


def path_below(scope: Scope) -> str:
    """Return the path of a request as the application's own routes have it."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and _is_below(path, root) else path


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")
