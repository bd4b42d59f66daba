"""A page of the entries of a place: the same for task instances and assets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.web.paging import PER_PAGE, Pager, pager
from keepstate.web.place import standing
from keepstate.web.shown import EntryShown, entry_shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from keepstate.backends.answers import StoredEntry
    from keepstate.web.asked import Asked
    from keepstate.web.place import Place

LOOKED_THROUGH = 10_000
"""How many entries are looked through for a part of a key; a whole key is found among any number."""

_AT_ONCE = 250


@dataclass(frozen=True)
class Entries:
    """Some of the entries that hang on ``place``, by key; ``may_edit`` shows what changes them.

    ``text`` is what their keys have to have in them; ``more`` says that not all of these are shown. ``findable``: there are so
    many that one looks for a key.
    """

    place: Place
    entries: tuple[EntryShown, ...]
    pager: Pager
    may_edit: bool
    findable: bool
    text: str = ""
    more: bool = False


def entries_of(asked: Asked, place: Place) -> Entries:
    """Return the entries that the query asks for. However many there are, only one page of them is read."""
    text = asked.query("q").strip()
    if text:
        return _with(asked, place, text)
    number = asked.page_number()
    found = asked.backend.read(
        place.scope, None, now=asked.store.clock(), limit=PER_PAGE, offset=(number - 1) * PER_PAGE
    )
    total = found.total or 0
    pages = pager(place.base, number, total)
    return Entries(place, _shown(asked, place, found.entries), pages, asked.may_edit, total > PER_PAGE)


def _with(asked: Asked, place: Place, text: str) -> Entries:
    """Return the first entries that have a text in their key: the key itself before all others, however many there are."""
    wanted, now, backend = text.casefold(), asked.store.clock(), asked.backend
    exactly = standing(asked, place, text)
    found = [] if exactly is None else [exactly]
    offset = 0
    # values come along with the keys: a few at a time, and no more than are shown
    while len(found) <= PER_PAGE and offset < LOOKED_THROUGH:
        batch = backend.read(place.scope, None, now=now, limit=_AT_ONCE, offset=offset).entries
        found += [entry for entry in batch if wanted in entry.key.casefold() and entry.key != text]
        offset += _AT_ONCE
        if len(batch) < _AT_ONCE:
            offset = LOOKED_THROUGH
    shown = _shown(asked, place, found[:PER_PAGE])
    pages = pager(place.base, 1, len(shown), q=text)
    return Entries(place, shown, pages, asked.may_edit, True, text, len(found) > PER_PAGE)  # noqa: FBT003 - a field


def _shown(asked: Asked, place: Place, entries: Iterable[StoredEntry]) -> tuple[EntryShown, ...]:
    return tuple(entry_shown(stored, place.scope, asked) for stored in entries)
