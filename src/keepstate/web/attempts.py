"""The attempts of a task instance on a time line, and what each of them wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.clock import to_datetime
from keepstate.scope import TaskScope
from keepstate.server.writers import writer_for

if TYPE_CHECKING:
    from datetime import datetime

    from keepstate.scope import Attempt
    from keepstate.web.asked import Asked
    from keepstate.web.place import Place

WIDTH = 1000
"""How wide the time line is, in its own unit."""

_NARROWEST = 6
_MOST_KEYS = 30
_MINUTE = 60
_HOUR = 3600
_DAY = 86_400


@dataclass(frozen=True)
class AttemptShown:
    """An attempt, and its bar on the time line. ``keys`` are those it wrote, as far as their history goes back."""

    try_number: int
    state: str
    started_at: datetime
    ended_at: datetime | None
    lasted: str
    left: int
    width: int
    where: str
    reason: str | None
    incarnation: int
    keys: tuple[str, ...]


def attempts_of(asked: Asked, place: Place, *, with_keys: bool) -> tuple[AttemptShown, ...]:
    """Return the attempts, oldest first."""
    assert isinstance(place.scope, TaskScope)  # noqa: S101 - assets have none
    found = asked.backend.attempts(place.scope)[::-1]
    if not found:
        return ()
    now = to_datetime(asked.store.clock())
    begin = min(attempt.started_at for attempt in found)
    end = max(begin, *(_end(attempt, now) for attempt in found))
    whole = (end - begin).total_seconds() or 1
    keys = _keys_by_attempt(asked, place) if with_keys else {}
    newest = max(attempt.incarnation for attempt in found)
    return tuple(
        _shown(
            attempt,
            now,
            begin,
            whole,
            # what earlier incarnations wrote is not told apart in the history of this one
            keys.get(attempt.try_number, ()) if attempt.incarnation == newest else (),
        )
        for attempt in found
    )


def _shown(
    attempt: Attempt, now: datetime, begin: datetime, whole: float, keys: tuple[str, ...]
) -> AttemptShown:
    seconds = max((_end(attempt, now) - attempt.started_at).total_seconds(), 0)
    width = max(round(seconds / whole * WIDTH), _NARROWEST)
    left = min(round((attempt.started_at - begin).total_seconds() / whole * WIDTH), WIDTH - width)
    return AttemptShown(
        attempt.try_number,
        attempt.state,
        attempt.started_at,
        attempt.ended_at,
        lasting(seconds),
        max(left, 0),
        width,
        f"{attempt.host}, process {attempt.pid}" if attempt.host else "",
        attempt.reason,
        attempt.incarnation,
        keys,
    )


def _end(attempt: Attempt, now: datetime) -> datetime:
    return attempt.ended_at or (now if attempt.state == "running" else attempt.beat_at or attempt.started_at)


def _keys_by_attempt(asked: Asked, place: Place) -> dict[int, tuple[str, ...]]:
    backend, now = asked.backend, asked.store.clock()
    found: dict[int, dict[str, None]] = {}
    for entry in backend.read(place.scope, None, now=now, limit=_MOST_KEYS).entries:
        for version in backend.history(place.scope, entry.key, now=now):
            writer = writer_for(asked.caller, version.writer)
            if version.action == "set" and writer is not None and writer.try_number is not None:
                found.setdefault(writer.try_number, {})[entry.key] = None
    return {number: tuple(keys) for number, keys in found.items()}


def lasting(seconds: float) -> str:
    """Return how long something took, in the two largest units."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - two digits
    whole = int(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"
