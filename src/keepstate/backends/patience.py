"""Trying again while trouble may pass: with growing, jittered pauses, until the time allowed is over."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from keepstate.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 2.0
# a server's restart leaves a pool full of them
_MOST_DEAD_CONNECTIONS = 20


class _Asked(threading.local):
    at: float | None = None


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
    return timeout if at is None else max(at + timeout - time.monotonic(), 0.0)


class Patience:
    """How long one request is still tried."""

    def __init__(self, address: str, timeout: float, since: float) -> None:
        """Allow ``timeout`` seconds from ``since`` on, a time of ``time.monotonic``."""
        self._address = address
        self._timeout = timeout
        self._deadline = since + timeout
        self._pause = _FIRST_PAUSE
        self._dead_connections = 0

    @property
    def left(self) -> float:
        """Seconds until the time is over, below 0 once it is."""
        return self._deadline - time.monotonic()

    def wait(self, trouble: Exception, *, at_once: bool = False, at_least: float = 0.0) -> None:
        """Pause before the next attempt, or raise ``BackendUnavailableError`` when the time is over.

        ``at_once``: a pooled connection turned out to be dead, and the next one may work. ``at_least`` are the seconds for
        which the other side asked not to be bothered.
        """
        left = self.left
        if left <= 0:
            raise BackendUnavailableError(
                f"the store {self._address} could not be reached within {self._timeout:g} s: {trouble}; "
                "check that it runs, or allow more with KEEPSTATE_RETRY_TIMEOUT",
                address=self._address,
            ) from trouble.__cause__ or trouble
        if at_once and self._dead_connections < _MOST_DEAD_CONNECTIONS:
            self._dead_connections += 1
            return
        pause = max(self._pause * random.uniform(0.5, 1.5), at_least)  # noqa: S311 - jitter is no secret
        time.sleep(min(left, pause))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
