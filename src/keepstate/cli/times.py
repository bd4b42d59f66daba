"""Times as people read them, and durations as they write them: ``90s``, ``30m``, ``12h``, ``7d``, ``1d12h``."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from keepstate.clock import to_text
from keepstate.errors import InvalidInputError
from keepstate.retention import NEVER_EXPIRE

WAIT = timedelta(days=10_000)
"""Longer than this nothing is waited for; the system's own clocks end not far beyond."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+", re.ASCII)
_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)


def duration(
    text: str, option: str, *, longer_than_zero: bool = False, longest: timedelta = timedelta.max
) -> timedelta:
    """Return the duration that ``text`` says; raise ``InvalidInputError`` naming the option when it says none."""
    word = text.strip().lower()
    if word != "0" and not _DURATION.fullmatch(word):
        raise InvalidInputError(f"{option} takes a duration like 90s, 10m, 12h or 7d, not {text!r}")
    total = timedelta()
    try:
        for number, unit in _PART.findall(word):
            total += timedelta(**{_UNITS[unit]: float(number)})
    except OverflowError:
        raise InvalidInputError(f"{option} is longer than any calendar: {text!r}") from None
    if total > longest:
        raise InvalidInputError(f"{option} can't be longer than {longest.days} days: {text!r}")
    if longer_than_zero and not total:
        raise InvalidInputError(f"{option} must be longer than zero")
    return total


def retention(text: str) -> timedelta:
    """Return the retention that ``text`` says: a duration longer than zero, or ``never``."""
    if text.strip().lower() == "never":
        return NEVER_EXPIRE
    found = duration(text, "--retention")
    if not found:
        raise InvalidInputError(
            "--retention must be longer than zero; `never` keeps an entry until it is deleted"
        )
    return found


def instant(moment: datetime | None) -> str | None:
    """Return a time as JSON has it, or ``None``."""
    return None if moment is None else to_text(moment)


def ago(moment: datetime, now: datetime) -> str:
    """Return how long ago something was: ``3 min ago``."""
    seconds = int((now - moment).total_seconds())
    return "just now" if seconds < 1 else f"{span(seconds)} ago"


def took(began: datetime, ended: datetime | None) -> str:
    """Return how long something that has ended took."""
    if ended is None:
        return ""
    seconds = int((ended - began).total_seconds())
    return "< 1 s" if seconds < 1 else span(seconds)


def ahead(moment: datetime | None, now: datetime) -> str:
    """Return when something will be: ``in 29 d``, or ``never``."""
    if moment is None:
        return "never"
    seconds = max(round((moment - now).total_seconds()), 1)
    # to the nearest: what lasts 30 d has not 29 d left a moment later
    size = next(size for size, _ in _STEPS if seconds >= size - size // 100)
    return f"in {span(max(round(seconds / size), 1) * size)}"


def span(seconds: int) -> str:
    """Return how long something took: ``3 min``."""
    size, unit = next(step for step in _STEPS if seconds >= step[0])
    return f"{seconds // size} {unit}"
