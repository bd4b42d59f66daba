"""Keys that were deleted or cleared, as long as their history lasts: so that a mistake can be undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.clock import to_datetime
from keepstate.web.place import LATEST
from keepstate.web.shown import WriterShown, writer_shown

if TYPE_CHECKING:
    from datetime import datetime

    from keepstate.web.asked import Asked
    from keepstate.web.place import Place

MOST = 200
"""How many are shown, the last removed first."""

LOOKED_BACK = 500
"""How many changes are looked back on where so many keys, or more, are alive: the values of these are read along."""


@dataclass(frozen=True)
class RemovedKey:
    """A key that is gone."""

    key: str
    removed_at: datetime
    writer: WriterShown | None


@dataclass(frozen=True)
class Removed:
    """The keys of a place that are gone; ``cut`` says that there may be more."""

    place: Place
    keys: tuple[RemovedKey, ...]
    cut: bool
    days: int


def removed_of(asked: Asked, place: Place) -> Removed:
    """Return the keys that were removed."""
    now, info = asked.store.clock(), place.task_instance or place.asset
    after = 0
    if info is not None and info.entries >= LOOKED_BACK:
        version, _ = asked.backend.changes(place.scope, after=LATEST, now=now)
        after = max(version - LOOKED_BACK, 0)
    _, changes = asked.backend.changes(place.scope, after=after, now=now)
    gone = [change for change in reversed(changes) if change.action != "set"]
    keys = tuple(
        RemovedKey(
            change.key,
            to_datetime(change.updated_at),
            writer_shown(change.writer, place.scope, asked),
        )
        for change in gone[:MOST]
    )
    return Removed(place, keys, len(gone) > MOST or after > 0, asked.store.settings.history_days)
