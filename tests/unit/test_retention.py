"""When an entry expires, to the microsecond."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepstate import NEVER_EXPIRE
from keepstate.clock import DAY, to_datetime, to_micros
from keepstate.errors import InvalidRetentionError, InvalidTypeError
from keepstate.retention import expiry

NOW = to_micros(datetime(2026, 11, 29, tzinfo=timezone.utc))
LAST = to_micros(datetime.max.replace(tzinfo=timezone.utc))
MICROSECOND = timedelta(microseconds=1)


@given(st.timedeltas(min_value=MICROSECOND, max_value=timedelta(days=2_000_000)))
def test_a_retention_counts_from_now(retention: timedelta) -> None:
    """Exactly, whatever its length."""
    moment = expiry(retention, now=NOW, default_days=30)
    assert moment is not None
    assert to_datetime(moment) == to_datetime(NOW) + retention


@given(st.integers(min_value=0, max_value=1_000_000))
def test_none_means_the_default_days(days: int) -> None:
    """Zero of them means never."""
    assert expiry(None, now=NOW, default_days=days) == (NOW + days * DAY if days else None)


@pytest.mark.parametrize("never", [NEVER_EXPIRE, timedelta.max, pickle.loads(pickle.dumps(NEVER_EXPIRE))])
@pytest.mark.parametrize("days", [0, 30])
def test_never_means_never(never: timedelta, days: int) -> None:
    """Compared by equality."""
    assert expiry(never, now=NOW, default_days=days) is None
    assert never == timedelta.max


@pytest.mark.parametrize(
    "retention", [timedelta(0), -MICROSECOND, timedelta(days=-1, microseconds=1), timedelta.min]
)
def test_a_retention_is_longer_than_zero(retention: timedelta) -> None:
    """Else it is refused, with what to use instead."""
    with pytest.raises(InvalidRetentionError, match=r"longer than zero.*NEVER_EXPIRE.*delete\(\)"):
        expiry(retention, now=NOW, default_days=30)


def test_a_retention_ends_within_the_calendar() -> None:
    """The last microsecond of the year 9999 is the last that can be expressed."""
    longest = (LAST - NOW) * MICROSECOND
    assert expiry(longest, now=NOW, default_days=30) == LAST
    for too_long in (longest + MICROSECOND, timedelta.max - MICROSECOND):
        with pytest.raises(InvalidRetentionError, match="year 9999"):
            expiry(too_long, now=NOW, default_days=30)


def test_the_default_days_never_leave_the_calendar() -> None:
    """The largest default that the settings take still ends before the year 9999."""
    moment = expiry(None, now=NOW, default_days=1_000_000)
    assert moment is not None
    assert moment < LAST


@pytest.mark.parametrize("wrong", [30, 0, 1.5, True])
def test_a_bare_number_is_refused_with_an_example(wrong: Any) -> None:
    """It has no unit."""
    with pytest.raises(InvalidTypeError, match=rf"timedelta\(days={wrong}\)") as caught:
        expiry(wrong, now=NOW, default_days=30)
    assert caught.value.path == "retention"


@pytest.mark.parametrize("wrong", ["30d", b"", [1], object(), timedelta])
def test_another_type_is_refused(wrong: Any) -> None:
    """With what may be given."""
    with pytest.raises(InvalidTypeError, match=r"must be a datetime\.timedelta, NEVER_EXPIRE or None, not"):
        expiry(wrong, now=NOW, default_days=30)


def test_a_subclass_whose_arithmetic_is_its_own_is_taken_for_what_it_is() -> None:
    """As pendulum's Duration, whose floor division and total differ from the standard library's."""

    class Duration(timedelta):
        def __floordiv__(self, other: Any) -> Any:
            raise AssertionError("its own arithmetic was asked")

        def total_seconds(self) -> float:
            raise AssertionError("its own arithmetic was asked")

    assert expiry(Duration(days=2, microseconds=1), now=NOW, default_days=30) == NOW + 2 * DAY + 1
