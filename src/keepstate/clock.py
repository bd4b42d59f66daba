"""Time as the store keeps it: whole microseconds since 1970 in UTC, handed in and never patched."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

Clock = Callable[[], int]
"""Returns now, in microseconds since 1970-01-01 UTC."""

SECOND = 1_000_000
DAY = 86_400 * SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def system_clock() -> int:
    """Return the wall clock in microseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1000


def to_datetime(micros: int) -> datetime:
    """Return the aware UTC datetime of ``micros``."""
    return _EPOCH + timedelta(microseconds=micros)


def to_micros(moment: datetime) -> int:
    """Return the microseconds since 1970 of an aware datetime."""
    return (moment - _EPOCH) // _MICROSECOND


def optional_datetime(micros: int | None) -> datetime | None:
    """Return the aware UTC datetime of ``micros``, or ``None``."""
    return None if micros is None else to_datetime(micros)


def to_text(moment: datetime) -> str:
    """Return an aware UTC datetime as RFC 3339 writes it, with microseconds and a Z."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
