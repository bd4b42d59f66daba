"""Long lists in pages."""

from __future__ import annotations

from dataclasses import dataclass

from keepstate.web.addresses import with_query

PER_PAGE = 50


@dataclass(frozen=True)
class Pager:
    """Which part of a list is shown. ``first`` and ``last`` count from 1; both are 0 where nothing of it is."""

    first: int
    last: int
    total: int
    before: str | None
    after: str | None


def pager(path: str, number: int, total: int, size: int = PER_PAGE, **query: object) -> Pager:
    """Return the pager of page ``number`` at ``path``, the other parameters of its query kept."""
    before = (number - 1) * size
    first, last = (before + 1, min(before + size, total)) if before < total else (0, 0)
    pages = max(-(-total // size), 1)

    def at(other: int) -> str:
        return with_query(path, page=other if other > 1 else None, **query)

    return Pager(
        first,
        last,
        total,
        at(min(number - 1, pages)) if number > 1 else None,
        at(number + 1) if number < pages else None,
    )
