"""What becomes of an open store when its process forks.

Nothing of a connection may be shared by parent and child. For a server's connections it is enough that the child forgets
them. SQLite needs more: a child inherits not only connections but the library's belief that this process holds locks on
the file, and its mutexes as they were. A connection that the child opens then shares locks which it does not have, and
writes into a log that the parent may delete. So SQLite's connections are closed before a fork, once no thread is inside
the library; parent and child open new ones when they next need them.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Protocol

# longer than a commit takes on any disk that works
_PATIENCE = 10.0


class Carried(Protocol):
    """Something that a fork carries into a child."""

    def before_fork(self, *, quiet: bool) -> None:
        """Prepare for a fork. ``quiet``: no thread is inside SQLite, and none comes in until the fork is over."""
        ...

    def after_fork_in_child(self) -> None:
        """Leave behind in a forked child what is the parent's."""
        ...


class Traffic:
    """Knows which threads are inside SQLite, and keeps others out while the process forks."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget whoever was inside: in a forked child, those are the parent's threads."""
        self._inside: set[int] = set()
        self._stopped = False
        self._may_go = threading.Event()

    def enter(self) -> None:
        """Come in; wait while the process forks."""
        me = threading.get_ident()
        self._inside.add(me)
        # whoever stops the traffic looks at the set afterwards, so one of both sees the other
        while self._stopped:
            self._inside.discard(me)
            self._may_go.wait()
            self._inside.add(me)

    def leave(self) -> None:
        """Go out."""
        self._inside.discard(threading.get_ident())

    def stop(self, patience: float) -> bool:
        """Keep others out, and wait until nobody is inside; return whether that came about in time."""
        self._may_go.clear()
        self._stopped = True
        deadline = time.monotonic() + patience
        pause = 0.0001
        while self._inside:
            if threading.get_ident() in self._inside or time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 2, 0.005)
        return True

    def go(self) -> None:
        """Let everybody in again."""
        self._stopped = False
        self._may_go.set()


traffic = Traffic()
_carried: weakref.WeakSet[Carried] = weakref.WeakSet()


def carry(it: Carried) -> None:
    """Have ``it`` told of forks for as long as it is alive."""
    _carried.add(it)


def _before() -> None:
    quiet = traffic.stop(_PATIENCE) if _carried else True
    for it in list(_carried):
        it.before_fork(quiet=quiet)


def _after_in_child() -> None:
    traffic.reset()
    for it in list(_carried):
        it.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=traffic.go, after_in_child=_after_in_child)
