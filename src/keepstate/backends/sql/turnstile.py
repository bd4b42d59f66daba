"""Threads that wait for one of a few places, first come, first served."""

from __future__ import annotations

import threading
from collections import deque


class Turnstile:
    """A semaphore that is fair: a place that is given up goes to who has waited longest.

    `threading.Semaphore` and SQLAlchemy's pool let a running thread take a place again before the one they woke has got
    going; under load, some threads then wait until their time is over.
    """

    def __init__(self, places: int) -> None:
        self._lock = threading.Lock()
        self._free = places
        self._waiting: deque[threading.Lock] = deque()

    def enter(self, timeout: float) -> bool:
        """Take a place; wait for one for ``timeout`` seconds at most, and return whether there was one."""
        with self._lock:
            if self._free and not self._waiting:
                self._free -= 1
                return True
            if timeout <= 0:
                return False
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            if turn.acquire(timeout=timeout):
                return True
        except BaseException:
            self._give_up(turn)
            raise
        return not self._left(turn)

    def leave(self) -> None:
        """Give up a place."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1

    def _left(self, turn: threading.Lock) -> bool:
        """Leave the queue; false where the place was given at the last moment."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
            return False

    def _give_up(self, turn: threading.Lock) -> None:
        if not self._left(turn):
            self.leave()
