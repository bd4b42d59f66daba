"""The worker API in the OpenAPI document: from the same annotations that the requests are read by."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from keepstate.backends.base import Backend
from keepstate.server.admission import VERBS_ADMITTED
from keepstate.server.worker import PATH
from keepstate.wire import PROTOCOL, VERBS, answer_schema, request_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

_TAG = "Worker API"
_REFUSALS: dict[int, str] = {
    400: "The body is no JSON.",
    401: "Nobody known sent this.",
    403: "The token's role or its patterns do not include this.",
    404: "What had to be there is not.",
    408: "The body did not come in time.",
    409: "Another version, a later attempt or a living process stands in the way.",
    413: "The body is too large.",
    415: "The body is packed by something else than gzip.",
    422: "A part of the request is not what it has to be.",
    500: "The store, or the server, failed.",
    501: "The store can't do this.",
    503: "The store can't be reached or written to now.",
    507: "There is no room left where the store lives.",
}
_ERROR = {
    "type": "object",
    "properties": {
        "detail": {"description": "What happened, for people."},
        "kind": {"type": "string", "description": "The class of the error in `keepstate`."},
        "facts": {"type": "object", "description": "Its attributes."},
    },
    "required": ["detail"],
}


def describe(document: dict[str, Any]) -> None:
    """Add every verb to an OpenAPI document."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["WorkerError"] = _ERROR
    for verb in VERBS:
        document["paths"][f"{PATH}v{PROTOCOL}/{verb}"] = {"post": _operation(verb, schemas)}


def _operation(verb: str, schemas: dict[str, Any]) -> dict[str, Any]:
    promise = (vars(Backend)[verb].__doc__ or "").strip().partition("\n")[0]
    right = VERBS_ADMITTED[verb][0]
    answer = {
        "type": "object",
        "properties": {"answer": _moved(answer_schema(verb), schemas)},
        "required": ["answer"],
        "additionalProperties": False,
    }
    return {
        "tags": [_TAG],
        "operationId": f"worker_{verb}",
        "summary": promise.replace("``", "`"),
        "description": f"Needs the right to {right.value}.",
        "security": [{"token": []}],
        "parameters": [],
        "requestBody": _content(_moved(request_schema(verb), schemas), required=True),
        "responses": {
            "200": {"description": "It is done, and committed.", **_content(answer)},
            **dict(_refusals(_REFUSALS)),
        },
    }


def _refusals(statuses: Iterable[int]) -> Iterable[tuple[str, dict[str, Any]]]:
    schema = {"$ref": "#/components/schemas/WorkerError"}
    for status in statuses:
        told = f"{HTTPStatus(status).phrase}: {_REFUSALS[status]}"
        yield str(status), {"description": told, **_content(schema)}


def _content(schema: dict[str, Any], **more: bool) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}, **more}


def _moved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose named parts are among ``schemas`` now, under names that are the worker API's own."""
    moved: dict[str, Any] = json.loads(json.dumps(schema).replace("#/$defs/", "#/components/schemas/Worker"))
    parts = moved.pop("$defs", {})
    schemas.update({f"Worker{name}": part for name, part in parts.items()})
    return moved
