"""The OpenAPI document, and a page that shows it: made here, so that it works without internet."""

from __future__ import annotations

import itertools
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from keepstate.server import worker_document
from keepstate.server.answers import answer
from keepstate.server.auth import caller_of

if TYPE_CHECKING:
    from fastapi import FastAPI

router = APIRouter()

_METHODS = ("get", "put", "patch", "post", "delete")


def describe(app: FastAPI) -> None:
    """Have ``app`` say in its description how requests are authenticated."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            found.setdefault("components", {})["securitySchemes"] = {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token that `keepstate token create` made.",
                }
            }
            worker_document.describe(found)
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """Serve the OpenAPI document to anybody with a token."""
    await caller_of(request)
    return answer(200, request.app.openapi())


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """Show the OpenAPI document to people."""
    await caller_of(request)
    return Response(_page(request.app), 200, {"Cache-Control": "no-cache"}, "text/html; charset=utf-8")


@router.get("/docs/style.css", include_in_schema=False)
async def style(request: Request) -> Response:  # noqa: ARG001 - an endpoint's signature
    """Serve the page's looks."""
    return Response(_file("docs.css"), 200, {"Cache-Control": "max-age=3600"}, "text/css; charset=utf-8")


@lru_cache(maxsize=8)
def _page(app: FastAPI) -> str:
    document = app.openapi()
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                operation = {**item[method], "method": method.upper(), "path": path}
                groups.setdefault(operation.get("tags", ["Other"])[0], []).append(operation)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["marked"] = _marked
    template = environment.from_string(_file("docs.html"))
    return template.render(document=document, groups=groups)


def _marked(text: str) -> Markup:
    """Return a text with what stands between backticks as code."""
    parts = (
        Markup("<code>{}</code>").format(part) if odd else escape(part)
        for part, odd in zip(text.split("`"), itertools.cycle((False, True)), strict=False)
    )
    return Markup().join(parts)


@lru_cache(maxsize=8)
def _file(name: str) -> str:
    return (files("keepstate.server.rest") / "pages" / name).read_text(encoding="utf-8")
