"""Trying again while trouble may pass: with growing, jittered pauses, until the time allowed is over."""

from __future__ import annotations

import logging
import math
import random
import time

from keepstate.allowance import give_up, latest, until
from keepstate.errors import BackendUnavailableError

log = logging.getLogger("keepstate")

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 2.0

# how soon a pause learns that less time is left: an allowance may begin within it
_GLANCE = 0.2
# so many seconds nobody is told that a store does not answer: most troubles are over by then
_SILENCE = 2.0
# a server's restart leaves a pool full of them
_MOST_DEAD_CONNECTIONS = 20


class Patience:
    """How long one request is still tried."""

    def __init__(self, address: str, timeout: float, since: float) -> None:
        """Allow ``timeout`` seconds from ``since`` on, a time of ``time.monotonic``."""
        self._address = address
        self._timeout = timeout
        self._deadline = since + timeout
        self._pause = _FIRST_PAUSE
        self._dead_connections = 0
        self._telling = since + _SILENCE

    @property
    def left(self) -> float:
        """Seconds until the time is over, below 0 once it is."""
        return until(self._address, self._deadline) - time.monotonic()

    def wait(self, trouble: Exception, *, at_once: bool = False, at_least: float = 0.0) -> None:
        """Pause before the next attempt, or raise ``BackendUnavailableError`` when the time is over.

        ``at_once``: a pooled connection turned out to be dead, and the next one may work. ``at_least`` are the seconds for
        which the other side asked not to be bothered.
        """
        if self.left <= 0:
            raise self._over(trouble) from trouble.__cause__ or trouble
        if at_once and self._dead_connections < _MOST_DEAD_CONNECTIONS:
            self._dead_connections += 1
            return
        if time.monotonic() >= self._telling and self.left >= 1:
            self._telling = math.inf
            log.warning(
                "the store %s does not answer (%s); trying for another %.0f s",
                self._address,
                trouble,
                self.left,
            )
        pause = max(self._pause * random.uniform(0.5, 1.5), at_least)  # noqa: S311 - jitter is no secret
        over = time.monotonic() + pause
        while (left := min(over - time.monotonic(), self.left)) > 0:
            time.sleep(min(left, _GLANCE))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _over(self, trouble: Exception) -> BackendUnavailableError:
        give_up(self._address)
        if latest() < math.inf:
            bound, advice = "in the time left to a process that ends", "check that it runs"
        else:
            bound = f"within {self._timeout:g} s"
            advice = "check that it runs, or allow more with KEEPSTATE_RETRY_TIMEOUT"
        return BackendUnavailableError(
            f"the store {self._address} could not be reached {bound}: {trouble}; {advice}",
            address=self._address,
        )
