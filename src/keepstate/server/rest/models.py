"""The shapes of entries and their history: what bodies have to be, and what answers are.

Bodies are read by these models. Answers are written as text, since a value is stored as JSON text already; the models
describe them in the OpenAPI document, and the tests hold the answers to it.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)

from keepstate.clock import to_micros
from keepstate.retention import LAST_INSTANT

DEFAULT = "default"

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII)
_MOMENT: TypeAdapter[datetime] = TypeAdapter(AwareDatetime)

_ANY_VALUE: dict[str, Any] = {
    "description": "Any JSON value but null.",
    "anyOf": [
        {"type": "string"},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "array", "items": {}},
        {"type": "object", "additionalProperties": True},
    ],
}


def _some_value(value: Any) -> Any:
    if value is None:
        raise ValueError("must not be null; DELETE removes an entry")
    return value


def _moment(value: Any) -> Any:
    """Return microseconds since 1970, ``None`` for never, or ``"default"``."""
    if value is None or value == DEFAULT:
        return value
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        raise ValueError('must be "default", null, or a time with its offset from UTC (RFC 3339)')
    try:
        micros = to_micros(_MOMENT.validate_python(value))
    except ValidationError as exc:
        raise ValueError(exc.errors()[0]["msg"]) from None
    if micros > LAST_INSTANT:
        raise ValueError("must not be after the year 9999; null is never")
    return micros


def _whole(value: Any) -> Any:
    """Refuse what only looks like a whole number; to JSON, 7.0 is one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        # pydantic takes this for its own
        raise ValueError("must be a whole number")  # noqa: TRY004
    return value


Value = Annotated[Any, PlainValidator(_some_value), WithJsonSchema(_ANY_VALUE)]
ExpiresAt = Annotated[
    Any,
    PlainValidator(_moment),
    WithJsonSchema(
        {
            "description": "When the entry expires: `default` as configured, null for never, or a time with its offset.",
            "anyOf": [{"const": DEFAULT}, {"type": "string", "format": "date-time"}, {"type": "null"}],
        }
    ),
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class BodyWithValue(_Body):
    """A body with a value to be stored."""

    value: Value


class TaskStateStoreBody(BodyWithValue):
    """An entry of a task instance to be written."""

    expires_at: ExpiresAt = DEFAULT


class TaskStateStorePatchBody(BodyWithValue):
    """A value to be written over another one; the expiry stays."""


class AssetStateStoreBody(BodyWithValue):
    """An entry of an asset to be written."""


class RestoreBody(_Body):
    """The version to be written back."""

    version: Annotated[int, Field(ge=1, le=2**63 - 2), BeforeValidator(_whole)]


# ------------------------------------------------------------------------------------------------ answers


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


Damaged = Annotated[
    str | None,
    Field(
        description="In lists only, and only where the store has something that is no value in its place, which keepstate "
        "did not write: what that is, as text. The value is null then, which no value is."
    ),
]


class TaskStateStoreResponse(_Answer):
    """An entry of a task instance."""

    key: str
    value: JsonValue
    damaged: Damaged = None
    updated_at: datetime
    expires_at: datetime | None


class TaskStateStoreCollectionResponse(_Answer):
    """Entries of a task instance, ordered by key; the total counts all of them."""

    task_state_store: list[TaskStateStoreResponse]
    total_entries: int


class AssetStateStoreLastUpdatedBy(_Answer):
    """Who last wrote an entry of an asset."""

    kind: Literal["task", "watcher", "api"]
    dag_id: str | None
    run_id: str | None
    task_id: str | None
    map_index: int | None


class AssetStateStoreResponse(_Answer):
    """An entry of an asset."""

    key: str
    value: JsonValue
    damaged: Damaged = None
    updated_at: datetime
    last_updated_by: AssetStateStoreLastUpdatedBy | None


class AssetStateStoreCollectionResponse(_Answer):
    """Entries of an asset, ordered by key; the total counts all of them."""

    asset_state_store: list[AssetStateStoreResponse]
    total_entries: int


class WriterResponse(_Answer):
    """Who wrote a version."""

    kind: Literal["task", "watcher", "api", "cli", "web"]
    dag_id: str | None
    run_id: str | None
    task_id: str | None
    map_index: int | None
    try_number: int | None
    name: str | None
    token: str | None


class VersionResponse(_Answer):
    """A version of a key. Where the key was removed, or the value was too large to be kept, the value is null."""

    key: str
    version: int
    action: Literal["set", "delete", "clear", "reset"]
    value: JsonValue
    damaged: Damaged = None
    size: int
    sha256: str | None
    written_at: datetime
    expires_at: datetime | None
    writer: WriterResponse | None


class HistoryResponse(_Answer):
    """The versions of a key that are kept, newest first."""

    history: list[VersionResponse]
    total_entries: int


class Problem(_Answer):
    """What is the matter."""

    detail: str


class ProblemPlace(_Answer):
    """What is the matter with one part of a request."""

    type: str
    loc: list[str | int]
    msg: str


class Problems(_Answer):
    """What is the matter with a request, part by part."""

    detail: list[ProblemPlace]
