"""Styles, scripts and pictures: everything comes from here, and works without the internet."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response

from keepstate.server.routes import Route

if TYPE_CHECKING:
    from starlette.requests import Request

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# where its address has its content's hash
_KEPT = "public, max-age=31536000, immutable"
_ASKED_ANEW = "no-cache"


async def _serve(request: Request) -> Response:
    name: str = request.path_params["name"]
    found = _files().get(name)
    if found is None:
        raise HTTPException(404)
    # while a server is brought up to date, the new pages may ask the old one
    kept = _KEPT if request.query_params.get("v") == _version(name) else _ASKED_ANEW
    return Response(found, media_type=_TYPES[PurePosixPath(name).suffix], headers={"Cache-Control": kept})


def address_of(name: str) -> str:
    """Return a file's address below the prefix; another content has another address, so it may be kept for ever."""
    return f"/static/{name}?v={_version(name)}"


@cache
def _version(name: str) -> str:
    return hashlib.sha256(_files()[name]).hexdigest()[:12]


@cache
def _files() -> dict[str, bytes]:
    """Return the files by their names: only what is listed is served, so no name leads elsewhere."""
    root = files("keepstate.web").joinpath("static")
    found = {entry.name: entry for entry in root.iterdir()}
    found |= {f"vendor/{entry.name}": entry for entry in root.joinpath("vendor").iterdir()}
    return {
        name: entry.read_bytes()
        for name, entry in found.items()
        if entry.is_file() and PurePosixPath(name).suffix in _TYPES
    }


routes = [Route("/static/{name:path}", _serve)]
