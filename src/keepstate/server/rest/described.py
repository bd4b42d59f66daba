"""Operations: how they are described in the OpenAPI document, and how a request comes to them.

Having FastAPI take a request apart costs more than storing an entry does. So what an operation takes is said here, once: the
document shows it, and `asking` goes by it. What is in the path and the body Schemathesis compares with what is described.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from keepstate.server.rest.asking import Ask, ask
from keepstate.server.rest.models import Problem, Problems

if TYPE_CHECKING:
    from pydantic import BaseModel

    from keepstate.server.roles import Right


class _KeyConvertor(Convertor[str]):
    """Everything up to the end of the path. Starlette's own ``path`` ends at a line break, which a key may have."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("keepstate_key", _KeyConvertor())

Endpoint = Callable[[Ask], Awaitable[Response]]
"""What answers a request of somebody who may send it."""

OpenEndpoint = Callable[[Request], Awaitable[Response]]
"""What answers anybody."""

Parameter = dict[str, Any]

SECURITY: list[dict[str, list[str]]] = [{"token": []}]
NO_CONTENT = 204
INVALID = 422
_WORTH_RETRYING = frozenset({503})

_NO_DOTS = r"(?!\.{1,2}$)"
_ID: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 250,
    "pattern": rf"^{_NO_DOTS}[^/\x00-\x1f\x7f-\x9f]+$",
}
_KEY: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 512,
    "pattern": r"^(?!([^\x00]*/)?\.{1,2}(/|$))[^\x00]+$",
}
_LARGEST_INDEX = 2**31 - 1


def _path(name: str, description: str, schema: dict[str, Any]) -> Parameter:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def query(name: str, description: str, schema: dict[str, Any]) -> Parameter:
    """Describe a parameter of the query."""
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


DAG_ID = _path("dag_id", "The dag.", _ID)
RUN_ID = _path("dag_run_id", "The run.", _ID)
TASK_ID = _path("task_id", "The task.", _ID)
KEY = _path(
    "key", "The key. It may have slashes, percent-encoded or not, but no segments `.` and `..`.", _KEY
)
ASSET_ID = _path(
    "asset_id", "The number of the asset, as `GET /api/v2/assets` tells it.", {"type": "integer"}
)
MAP_INDEX_IN_PATH = _path(
    "map_index", "The map index.", {"type": "integer", "minimum": -1, "maximum": _LARGEST_INDEX}
)
TRY_NUMBER = _path("task_try_number", "The number of the attempt.", {"type": "integer"})
MAP_INDEX = query(
    "map_index",
    "The map index; -1 unless the task is mapped.",
    {"type": "integer", "minimum": -1, "maximum": _LARGEST_INDEX, "default": -1},
)
WINDOW = [
    query(
        "limit",
        "How many at most; 1,000 is the most there ever are.",
        {"type": "integer", "minimum": 0, "default": 50},
    ),
    query("offset", "How many to skip.", {"type": "integer", "minimum": 0, "default": 0}),
]
CONDITIONS = [
    {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": schema,
    }
    for name, description, schema in (
        (
            "If-Match",
            'Only if the entry stands at this version (an `ETag`, like `"7"`, or several), or with `*` if there is one.',
            {"type": "string"},
        ),
        ("If-None-Match", "`*`: only if there is no such entry.", {"type": "string", "enum": ["*"]}),
    )
]
TASK_INSTANCE = [DAG_ID, RUN_ID, TASK_ID]
ALL_MAP_INDICES = query(
    "all_map_indices", "Of every map index of the task.", {"type": "boolean", "default": False}
)
FORGET = query("forget", "Their history too.", {"type": "boolean", "default": False})

_ETAG = {
    "ETag": {
        "description": "The version of the entry, for `If-Match`.",
        "schema": {"type": "string", "pattern": '^"[1-9][0-9]*"$'},
    }
}
_RETRY_AFTER = {
    "Retry-After": {"description": "Seconds after which to try again.", "schema": {"type": "integer"}}
}
_ALWAYS: dict[int, str] = {
    401: "Nobody known sent this.",
    403: "The token's role lacks the right to this.",
    422: "A part of the request is not what it has to be.",
    503: "The store can't be reached or written to now.",
}
_OF_BODIES: dict[int, str] = {
    408: "The body did not come in time.",
    413: "The body is too large.",
}
_OF_WRITES: dict[int, str] = {507: "There is no room left where the store lives."}


def operation(  # noqa: PLR0913 - all are facts of one operation
    router: APIRouter,
    method: str,
    path: str,
    *,
    parameters: list[Parameter],
    right: Right,
    answer: type[BaseModel] | None = None,
    status: int = 200,
    body: type[BaseModel] | None = None,
    etag: bool = False,
    absent: str | None = None,
    conditional: bool = False,
) -> Callable[[Endpoint], Endpoint]:
    """Add the decorated endpoint to ``router``, with what it takes, what it answers and what can be the matter.

    It is called for who has the ``right``, with the request taken apart; another parameter in the query than those of
    ``parameters`` is refused. The first line of its docstring is its summary, the rest its description, and so is the right
    that it needs. ``absent`` says what a 404 means.
    """
    if conditional:
        parameters = [*parameters, *CONDITIONS]
    extra: dict[str, Any] = {"parameters": parameters, "security": SECURITY}
    if body is not None:
        extra["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body.model_json_schema()}},
        }
    problems = _problems(method, has_body=body is not None, absent=absent, conditional=conditional)
    fine: dict[str, Any] = {"description": "Done." if status == NO_CONTENT else "Here it is."}
    if etag:
        fine["headers"] = _ETAG
    taken = frozenset(one["name"] for one in parameters if one["in"] == "query")

    def add(endpoint: Endpoint) -> Endpoint:
        async def answered(request: Request) -> Response:
            return await endpoint(await ask(request, right, taken))

        router.add_api_route(
            path,
            answered,
            methods=[method],
            response_model=answer,
            status_code=status,
            responses={**problems, status: fine},
            openapi_extra=extra,
            response_class=Response if answer is None else JSONResponse,
            **_said_of(endpoint, f"Needs the right to {right.value}."),
        )
        return endpoint

    return add


def open_operation(
    router: APIRouter, path: str, *, answer: type[BaseModel]
) -> Callable[[OpenEndpoint], OpenEndpoint]:
    """Add the decorated endpoint to ``router``: a GET without parameters, which needs no token. Else as `operation`."""

    def add(endpoint: OpenEndpoint) -> OpenEndpoint:
        router.add_api_route(
            path,
            endpoint,
            methods=["GET"],
            response_model=answer,
            responses={200: {"description": "Here it is."}},
            openapi_extra={"parameters": [], "security": []},
            **_said_of(endpoint, "Anybody may ask."),
        )
        return endpoint

    return add


def _said_of(endpoint: Callable[..., Awaitable[Response]], needs: str) -> dict[str, Any]:
    """Return what the document calls an operation and says of it."""
    summary, _, description = (endpoint.__doc__ or "").strip().partition("\n")
    return {
        "name": endpoint.__name__,
        "summary": summary.rstrip("."),
        "description": f"{inspect.cleandoc(description)}\n\n{needs}".strip(),
    }


def _problems(
    method: str, *, has_body: bool, absent: str | None, conditional: bool
) -> dict[int | str, dict[str, Any]]:
    found = dict(_ALWAYS)
    if absent is not None:
        found[404] = absent
    if conditional:
        found[412] = "The entry does not meet the condition of the request."
    if method != "GET":
        found |= _OF_WRITES
    if has_body:
        found |= _OF_BODIES
    return {
        code: {
            "model": Problems if code == INVALID else Problem,
            "description": description,
            **({"headers": _RETRY_AFTER} if code in _WORTH_RETRYING else {}),
        }
        for code, description in sorted(found.items())
    }
