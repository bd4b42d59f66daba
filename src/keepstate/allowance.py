"""How long a thread's requests may still be tried, beyond what bounds each of them: time spent in a line, a process that ends."""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from keepstate.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from typing_extensions import Self

LAST_WORDS = 5.0
"""Seconds that a process which was told to end has for all that it still stores: whoever told it may kill it soon."""

# a store that was given up so many seconds ago is only asked once more by what shares an allowance
_GIVEN_UP_FOR = 10.0
_given_up: dict[str, float] = {}


class _Asked(threading.local):
    at: float | None = None
    latest: float = math.inf


_asked = _Asked()


@contextmanager
def counting_from(moment: float) -> Iterator[None]:
    """Have this thread's requests count their time from ``moment``, of ``time.monotonic``: they had waited before they began."""
    _asked.at = moment
    try:
        yield
    finally:
        _asked.at = None


def asked_at() -> float:
    """Return when the request of this thread was asked for: now, unless somebody has said when."""
    return _asked.at or time.monotonic()


def time_left(timeout: float) -> float:
    """Return how much of ``timeout`` seconds this thread's request has left."""
    at = _asked.at
    if at is None and _asked.latest == math.inf:
        return timeout
    now = time.monotonic()
    return max(min((now if at is None else at) + timeout, _asked.latest) - now, 0.0)


def latest() -> float:
    """Return until when this thread's requests may be tried, a time of ``time.monotonic``; infinity where nothing limits them."""
    return _asked.latest


class Allowance:
    """The time that all of this thread's requests within the block may take together, for a process on its way out.

    From `begin` on, or at once where ``seconds`` are given; an allowance around this one counts too. What is asked for when it
    is used up is tried once, and so is what is asked of a store that has just been tried in vain.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._around = math.inf

    def __enter__(self) -> Self:
        self._around = _asked.latest
        if self._seconds is not None:
            self.begin(self._seconds)
        return self

    def begin(self, seconds: float) -> None:
        """Allow so many seconds from now on; does nothing if it has begun. A signal's handler may call this."""
        if _asked.latest == self._around:
            _asked.latest = min(self._around, time.monotonic() + seconds)

    def lift(self) -> None:
        """Go on as if it had not begun."""
        _asked.latest = self._around

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lift()


def try_all(steps: Iterable[Callable[[], None]]) -> None:
    """Take every step, whatever becomes of the others; then raise the first trouble.

    Once a store could not be reached, the rest is tried without waiting for it again.
    """
    troubles: list[Exception] = []
    with Allowance() as allowance:
        for step in steps:
            try:
                step()
            except BackendUnavailableError as exc:
                troubles.append(exc)
                allowance.begin(0)
            except Exception as exc:  # noqa: BLE001 - a custom class may raise whatever it likes
                troubles.append(exc)
    if troubles:
        raise troubles[0]


def give_up(address: str) -> None:
    """Note that a store was tried in vain for as long as was allowed."""
    _given_up[address] = time.monotonic()


def until(address: str, deadline: float) -> float:
    """Return until when a store may be tried by this thread, ``deadline`` at the latest; minus infinity for: no more."""
    if _asked.latest == math.inf:
        return deadline
    if time.monotonic() - _given_up.get(address, -math.inf) < _GIVEN_UP_FOR:
        return -math.inf
    return min(deadline, _asked.latest)
