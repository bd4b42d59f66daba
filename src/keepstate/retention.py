"""When an entry expires: a ``timedelta``, ``NEVER_EXPIRE``, or ``None`` for the configured default."""

from __future__ import annotations

from datetime import timedelta

from keepstate.clock import DAY
from keepstate.errors import InvalidRetentionError, InvalidTypeError

NEVER_EXPIRE: timedelta = timedelta.max
"""Keep an entry until it is deleted. Equal to ``timedelta.max``, as in Airflow 3.3, and compared by equality."""

# 9999-12-31T23:59:59.999999Z: the last instant that a datetime, and so every reader, can express.
LAST_INSTANT = 253_402_300_799_999_999


def expiry(retention: timedelta | None, *, now: int, default_days: int) -> int | None:
    """Return when an entry written ``now`` expires, in microseconds since 1970, or ``None`` for never.

    ``default_days`` counts when ``retention`` is ``None``; 0 there means never.
    Raises ``InvalidTypeError`` for what is no ``timedelta``, ``InvalidRetentionError`` for one that is zero,
    negative, or ends after the year 9999.
    """
    if retention is None:
        return now + default_days * DAY if default_days else None
    if not isinstance(retention, timedelta):
        raise InvalidTypeError(
            f"retention must be a datetime.timedelta, NEVER_EXPIRE or None, not {type(retention).__name__}; "
            f"write for example timedelta(days={retention!r})"
            if isinstance(retention, (int, float))
            else f"retention must be a datetime.timedelta, NEVER_EXPIRE or None, not {type(retention).__name__}",
            path="retention",
        )
    if retention == NEVER_EXPIRE:
        return None
    # total_seconds() would round; pendulum's Duration is a timedelta whose floor division is its own
    micros = (retention.days * 86_400 + retention.seconds) * 1_000_000 + retention.microseconds
    if micros <= 0:
        raise InvalidRetentionError(
            f"retention must be longer than zero, not {retention}; use NEVER_EXPIRE to keep an entry, "
            "or delete() to remove it"
        )
    moment = now + micros
    if moment > LAST_INSTANT:
        raise InvalidRetentionError(
            f"retention {retention} ends after the year 9999; use NEVER_EXPIRE to keep an entry for good"
        )
    return moment
