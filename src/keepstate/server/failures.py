"""Counting wrong logins by the address that they came from."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ALLOWED = 10
WITHIN = 60.0
_MOST_ADDRESSES = 10_000


class Failures:
    """How many wrong logins each address sent lately. Called on the event loop only."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Count, by a clock in seconds."""
        self._now = monotonic
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()

    def note(self, address: str) -> int:
        """Note one more, and return for how many whole seconds the address has to wait: 0 while it has tried few enough."""
        times = self._seen.setdefault(address, deque(maxlen=ALLOWED + 1))
        self._seen.move_to_end(address)
        while len(self._seen) > _MOST_ADDRESSES:
            self._seen.popitem(last=False)
        times.append(self._now())
        return self.wait(address)

    def wait(self, address: str) -> int:
        """Return for how many whole seconds an address has to wait before it may try again; 0 for not at all."""
        times = self._seen.get(address)
        if times is None or len(times) <= ALLOWED:
            return 0
        return max(math.ceil(times[0] + WITHIN - self._now()), 0)
