"""A page of the entries of a place: the same for task instances and assets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.web.paging import PER_PAGE, Pager, pager
from keepstate.web.shown import EntryShown, entry_shown

if TYPE_CHECKING:
    from keepstate.web.asked import Asked
    from keepstate.web.place import Place


@dataclass(frozen=True)
class Entries:
    """Some of the entries that hang on ``place``, by key; ``may_write`` shows what changes them."""

    place: Place
    entries: tuple[EntryShown, ...]
    pager: Pager
    may_write: bool


def entries_of(asked: Asked, place: Place) -> Entries:
    """Return the entries that the query asks for. However many there are, only one page of them is read."""
    number = asked.page_number()
    found = asked.backend.read(
        place.scope, None, now=asked.store.clock(), limit=PER_PAGE, offset=(number - 1) * PER_PAGE
    )
    shown = tuple(entry_shown(stored, place.scope, asked.addresses) for stored in found.entries)
    return Entries(place, shown, pager(place.base, number, found.total or 0), asked.may_write)
