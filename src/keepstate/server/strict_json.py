"""JSON that people and programs send, read strictly: what would be lost on the way in is refused instead."""

from __future__ import annotations

import json
from typing import Any


def strictly(text: str) -> Any:
    """Return what a JSON text stands for.

    Raises ``ValueError`` for what is no JSON (NaN is none), and for an object that has a name twice, of which one would be
    lost; ``RecursionError`` for one that is nested too deep.
    """
    return _decoder.decode(text)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of these members; raise ``ValueError`` for a name that is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        double = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the name {json.dumps(double, ensure_ascii=False):.80} stands twice in one object")
    return found


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=without_doubles)
