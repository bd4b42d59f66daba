"""How often an attempt is followed by another, and after what pause."""

from __future__ import annotations

from datetime import timedelta

from keepstate.errors import InvalidInputError, InvalidTypeError

# Airflow's own bound: no pause is longer than a day
_LONGEST_PAUSE = 86_400.0
_LONGEST_SLEEP = 1e9


class RetryPolicy:
    """How many attempts may follow a failed one, and the pause before each, in seconds.

    With a ``backoff`` the pause grows by that factor from one failure to the next. It is never longer than ``longest``.
    """

    def __init__(self, retries: int, delay: float, backoff: float, longest: float) -> None:
        self.retries = retries
        self.delay = delay
        self.backoff = backoff
        self.longest = longest

    @classmethod
    def of(
        cls,
        retries: int,
        retry_delay: timedelta | float,
        retry_exponential_backoff: bool | float,  # noqa: FBT001 - Airflow's name and types
        max_retry_delay: timedelta | float | None,
    ) -> RetryPolicy:
        """Make a policy of Airflow's four parameters: seconds or timedeltas; ``True`` doubles, a number is the factor.

        Raises ``InvalidInputError`` and ``InvalidTypeError`` naming the parameter.
        """
        if type(retries) is not int:
            raise InvalidTypeError(f"retries must be a whole number, not {retries!r:.80}", path="retries")
        if retries < 0:
            raise InvalidInputError(f"retries must be 0 or more, not {retries}")
        backoff = 2.0 if retry_exponential_backoff is True else retry_exponential_backoff or 1.0
        if not isinstance(backoff, (int, float)):
            raise InvalidTypeError(
                f"retry_exponential_backoff must be True, False or a factor, not {backoff!r:.80}",
                path="retry_exponential_backoff",
            )
        if not 1 <= backoff < float("inf"):
            raise InvalidInputError(f"retry_exponential_backoff must be a factor of 1 or more, not {backoff}")
        delay = seconds("retry_delay", retry_delay)
        # without a bound of its own, what was asked for is waited for, and only its growth is bounded
        longest = max(delay, _LONGEST_PAUSE) if backoff == 1 else _LONGEST_PAUSE
        if max_retry_delay is not None:
            longest = seconds("max_retry_delay", max_retry_delay)
        return cls(retries, delay, float(backoff), longest)

    def pause_after(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        try:
            pause = self.delay * self.backoff ** (failures - 1)
        except OverflowError:
            pause = self.longest if self.delay else 0.0
        # time.sleep() takes no more than some centuries
        return float(min(pause, self.longest, _LONGEST_SLEEP))


def seconds(name: str, value: timedelta | float) -> float:
    """Return a duration in seconds; refuse a negative one, naming the parameter."""
    # pendulum's durations are timedeltas
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InvalidTypeError(f"{name} must be a timedelta or seconds, not {value!r:.80}", path=name)
    if not 0 <= number < float("inf"):
        raise InvalidInputError(f"{name} must be zero or longer, not {value!r}")
    return float(number)
