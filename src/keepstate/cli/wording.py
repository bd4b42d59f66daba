"""Numbers and lists of names in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_NAMED = 5


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return a number with what is counted: ``1 run``, ``2,000 runs``. ``several`` is its plural, where an s is not."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


class Names:
    """Names that are counted, of which only the first few are remembered: as text, these and how many more there were."""

    def __init__(self) -> None:
        self._count = 0
        self._first: list[str] = []

    def add(self, name: str) -> None:
        """Count one more."""
        self._count += 1
        if self._count <= _MOST_NAMED:
            self._first.append(name)

    def __len__(self) -> int:
        return self._count

    def __str__(self) -> str:
        shown = ", ".join(self._first)
        more = self._count - len(self._first)
        return f"{shown} and {more:,} more" if more else shown


def names_of(what: str, names: Sequence[str]) -> str:
    """Return what the names are of, and the first few of these: ``the keys 'a', 'b'``."""
    found = Names()
    for name in names:
        found.add(name)
    return f"{what if len(names) == 1 else f'{what}s'} {found}"
