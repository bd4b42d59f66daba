"""Superseded attempts on Airflow 2.11, which end without touching the state of their task."""

from __future__ import annotations

import functools
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from keepstate.errors import StaleAttemptError

if TYPE_CHECKING:
    from keepstate.backends.base import Backend

log = logging.getLogger("keepstate")

_noticed: list[str] = []


class Watched:
    """A backend that notes when it refuses this process as a superseded attempt."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._backend, name)
        return _watching(member) if callable(member) else member


def _watching(verb: Any) -> Any:
    @functools.wraps(verb)
    def ask(*args: Any, **given: Any) -> Any:
        try:
            return verb(*args, **given)
        except StaleAttemptError as exc:
            _noticed.append(str(exc))
            raise

    return ask


def leave_if_noticed() -> None:
    """End this process at once, with success, if it was refused as a superseded attempt.

    It is the process that Airflow forked for this attempt alone; the one that waits for it leaves the task instance as it
    is.
    """
    if not _noticed:
        return
    log.error("This attempt ends here, and leaves its task to the later one: %s", _noticed[0])
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
