"""What tests of code that uses keepstate, and of backends for it, are made from.

`ManualClock` is time that a test moves. `keepstate.testing.fixtures` has a ``task_state_store`` for tests of DAGs, and
`keepstate.testing.contract` the suite that every backend passes; these two need pytest, the rest does not.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from keepstate.clock import to_datetime, to_micros

__all__ = ["ManualClock"]

_START = datetime(2026, 1, 1, tzinfo=timezone.utc)


class ManualClock:
    """A clock that stands still until it is told to go on: ``keepstate.connect("memory:", clock=ManualClock())``."""

    def __init__(self, start: datetime = _START) -> None:
        """Begin at ``start``, an aware datetime."""
        self._micros = to_micros(start)

    def __call__(self) -> int:
        """Return the time in microseconds since 1970, as every clock of keepstate's does."""
        return self._micros

    @property
    def now(self) -> datetime:
        """The time as an aware UTC datetime."""
        return to_datetime(self._micros)

    def advance(self, by: timedelta) -> None:
        """Let ``by`` go past; a negative one sets the clock back."""
        self._micros += by // timedelta(microseconds=1)
