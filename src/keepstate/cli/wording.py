"""Numbers and lists of names in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_NAMED = 5


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return a number with what is counted: ``1 run``, ``2,000 runs``. ``several`` is its plural, where an s is not."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def first_of(names: Sequence[str]) -> str:
    """Return the first few of several names, and how many more there are."""
    shown = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return shown if more <= 0 else f"{shown} and {more:,} more"


def names_of(what: str, names: Sequence[str]) -> str:
    """Return what the names are of, and the first few of these: ``the keys 'a', 'b'``."""
    return f"{what if len(names) == 1 else f'{what}s'} {first_of(names)}"
