"""What changed between two JSON values: the places where they differ, and what stood and stands there."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    _Pair = tuple[Any, Any, str]

MOST_CHANGES = 40
"""How many places are told of; who wants more looks at the values."""

_MOST_CHARACTERS = 200
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ABSENT = object()


@dataclass(frozen=True)
class Change:
    """A place in a value, with what stood there and what stands there now: JSON, or ``None`` for nothing."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Difference:
    """The changes from one value to another, in the order of the newer one; ``more`` of them are left out."""

    changes: tuple[Change, ...]
    more: bool = False


def difference(before: Any, after: Any) -> Difference:
    """Return how ``after`` differs from ``before``. ``1`` and ``1.0`` differ, and so do ``True`` and ``1``."""
    found: list[Change] = []
    for change in _changes(before, after):
        if len(found) == MOST_CHANGES:
            return Difference(tuple(found), more=True)
        found.append(change)
    return Difference(tuple(found))


def _changes(before: Any, after: Any) -> Iterator[Change]:
    # without recursion: values may be nested as deep as values may be; and one place after the other, as there may be millions
    stack: list[Iterator[_Pair]] = [iter([(before, after, "")])]
    while stack:
        pair = next(stack[-1], None)
        if pair is None:
            stack.pop()
            continue
        one, other, place = pair
        if type(one) is dict and type(other) is dict:
            stack.append(_members(one, other, place))
        elif type(one) is list and type(other) is list:
            stack.append(_items(one, other, place))
        elif not _same(one, other):
            yield Change(place.removeprefix("."), _text(one), _text(other))


def _members(one: dict[str, Any], other: dict[str, Any], place: str) -> Iterator[_Pair]:
    for name in chain(other, (name for name in one if name not in other)):
        yield one.get(name, _ABSENT), other.get(name, _ABSENT), place + _member(name)


def _items(one: list[Any], other: list[Any], place: str) -> Iterator[_Pair]:
    for index, (first, second) in enumerate(zip_longest(one, other, fillvalue=_ABSENT)):
        yield first, second, f"{place}[{index}]"


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _member(name: str) -> str:
    return f".{name}" if _PLAIN_NAME.fullmatch(name) else f"[{json.dumps(name, ensure_ascii=False)}]"


def _text(value: Any) -> str | None:
    if value is _ABSENT:
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
