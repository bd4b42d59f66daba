"""Marks of what a page shows, by which a change is noticed."""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = 0.4
"""Seconds between two looks at what a page shows, however many browsers show it."""

_MOST_REMEMBERED = 1000


class Marks:
    """The marks of pages, each looked for at most once in ``EVERY`` seconds. Threads share it."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[float, str]] = {}

    def get(self, key: tuple[Any, ...], look: Callable[[], object]) -> str:
        """Return the mark under ``key``, by ``look`` where it was not looked for just now."""
        now = time.monotonic()
        found = self._known.get(key)
        if found is not None and now - found[0] < EVERY:
            return found[1]
        mark = digest(look())
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[key] = now, mark
        return mark


def digest(facts: object) -> str:
    """Return a mark: the same for the same facts, in another process too."""
    return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()[:16]
