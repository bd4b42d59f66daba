"""The JSON of the protocol's types, made from their annotations: there is no second description to keep alike."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from keepstate.wire.bounds import bounds_of
from keepstate.wire.codec import (
    REQUIRED,
    STAMPED,
    Codec,
    Many,
    Moment,
    Nothing,
    Nullable,
    OneOf,
    Part,
    Plain,
    Record,
    Several,
)

NAMES: dict[str, Any] = {
    "Callable": Callable,
    "Iterator": Iterator,
    "Sequence": Sequence,
    "datetime": datetime,
}
"""What the protocol's modules import for type checkers only."""


_SIMPLE: dict[Any, Codec] = {
    str: Plain(str),
    int: Plain(int),
    bool: Plain(bool),
    datetime: Moment(),
    type(None): Nothing(),
}


@lru_cache(maxsize=256)
def codec_of(hint: Any) -> Codec:
    """Return the codec of a type. Raises ``TypeError`` for what no verb of the protocol has."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _record_of(hint)
    if origin in {Union, types.UnionType}:
        return _union_of([one for one in inner if one is not type(None)], nullable=type(None) in inner)
    if origin is tuple and inner[1:] != (...,):
        return Several([codec_of(one) for one in inner])
    if origin in {list, tuple, Sequence}:
        return Many(codec_of(inner[0]), tuple if origin is tuple else list)
    raise TypeError(f"the protocol has no JSON for {hint!r}")


def _union_of(kinds: list[Any], *, nullable: bool) -> Codec:
    codec: Codec
    if len(kinds) == 1:
        codec = codec_of(kinds[0])
    else:
        records: dict[type, Record] = {
            kind: record for kind in kinds if isinstance(record := codec_of(kind), Record)
        }
        plain = [Plain(kind) for kind in kinds if kind not in records]
        codec = OneOf(records, *plain)
    return Nullable(codec) if nullable else codec


def _record_of(kind: type) -> Record:
    hints = get_type_hints(kind, localns=NAMES)
    fields = [one for one in dataclasses.fields(kind) if one.init]
    return Record(
        kind.__name__,
        [
            Part(one.name, codec_of(hints[one.name]), _default(one), bounds_of(kind.__name__, one.name))
            for one in fields
            if one.name != STAMPED
        ],
        kind,
        stamped=any(one.name == STAMPED for one in fields),
    )


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return REQUIRED if field.default is dataclasses.MISSING else field.default
