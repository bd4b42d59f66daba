"""A change that is decided by what stands there, and has to be decided anew where somebody else was faster."""

from __future__ import annotations

import random
import time

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05


class Race:
    """What one of several does who change the same at once, each over the version that it has read.

    One of them gets through each time. So there is progress, and no bound to how often it is tried.
    """

    def __init__(self) -> None:
        self._pause = _FIRST_PAUSE

    def lost(self) -> None:
        """Step back for a moment before the next try; the jitter spreads the crowd."""
        time.sleep(random.uniform(0, self._pause))  # noqa: S311 - jitter is no secret
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
