"""Telling open connections that their process has forked: no socket and no request number may be shared by two processes."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Carried(Protocol):
    """Something that a fork carries into a child."""

    def after_fork_in_child(self) -> None:
        """Leave behind in a forked child what is the parent's."""
        ...


_carried: weakref.WeakSet[Carried] = weakref.WeakSet()


def carry(it: Carried) -> None:
    """Have ``it`` told of forks for as long as it is alive."""
    _carried.add(it)


def _after_in_child() -> None:
    for it in list(_carried):
        it.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
