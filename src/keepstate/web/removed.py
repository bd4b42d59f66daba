"""Keys that were deleted or cleared, as long as their history lasts: so that a mistake can be undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.clock import to_datetime
from keepstate.web.shown import WriterShown, writer_shown

if TYPE_CHECKING:
    from datetime import datetime

    from keepstate.web.asked import Asked
    from keepstate.web.place import Place

MOST = 200
"""How many are shown, the last removed first."""


@dataclass(frozen=True)
class RemovedKey:
    """A key that is gone."""

    key: str
    removed_at: datetime
    writer: WriterShown | None


@dataclass(frozen=True)
class Removed:
    """The keys of a place that are gone; ``cut`` says that there are more."""

    place: Place
    keys: tuple[RemovedKey, ...]
    cut: bool
    days: int


def removed_of(asked: Asked, place: Place) -> Removed:
    """Return the keys that were removed."""
    _, changes = asked.backend.changes(place.scope, after=0, now=asked.store.clock())
    gone = [change for change in reversed(changes) if change.action != "set"]
    keys = tuple(
        RemovedKey(
            change.key,
            to_datetime(change.updated_at),
            writer_shown(change.writer, place.scope, asked.addresses),
        )
        for change in gone[:MOST]
    )
    return Removed(place, keys, len(gone) > MOST, asked.store.settings.history_days)
