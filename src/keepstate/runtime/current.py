"""What is current where a piece of code stands: its run, and the task that it is part of."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Generic, TypeVar

from keepstate.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


class Current(Generic[T]):
    """One thing that is current, by context: coroutines and threads that run side by side each have their own.

    A thread that was started without a context (a pool's, say) finds the one that the process has, if there is but one.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._here: ContextVar[T | None] = ContextVar(f"keepstate_{kind}", default=None)
        # by identity, and how often: what is entered may be equal to something else
        self._active: dict[int, tuple[T, int]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def entered(self, thing: T) -> Iterator[T]:
        """Make ``thing`` current inside the block."""
        before = self._here.get()
        self._here.set(thing)
        self._count(thing, 1)
        try:
            yield thing
        finally:
            self._count(thing, -1)
            self._here.set(before)

    def _count(self, thing: T, step: int) -> None:
        with self._lock:
            count = self._active.get(id(thing), (thing, 0))[1] + step
            if count:
                self._active[id(thing)] = thing, count
            else:
                del self._active[id(thing)]

    def here(self) -> T | None:
        """Return what this very context has entered, or ``None``."""
        return self._here.get()

    def find(self) -> T | None:
        """Return what is current, or ``None``. Raises ``InvalidInputError`` where that can't be told."""
        thing = self._here.get()
        if thing is not None:
            return thing
        with self._lock:
            active = [one for one, _ in self._active.values()]
        if len(active) > 1:
            raise InvalidInputError(
                f"this thread was started without a context while {len(active)} {self._kind}s were active, so which of "
                "them it belongs to can't be told; start it with contextvars.copy_context().run, or hand over what it needs"
            )
        return active[0] if active else None
