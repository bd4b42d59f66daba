"""keepstate's tables in Airflow's metadata database, for processes that may open it: the API server, and all of 2.11's."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from keepstate.connect import connect
from keepstate.integrations.airflow import configuration

if TYPE_CHECKING:
    from keepstate.store import StateStore

_lock = threading.Lock()
_open: dict[int, StateStore] = {}


def store() -> StateStore:
    """Return the store over Airflow's own engine, making or upgrading its tables at the first call of a process.

    Processes that start together wait for each other. Raises what `keepstate.connect` raises; the next call tries again.
    """
    pid = os.getpid()
    with _lock:
        if pid not in _open:
            from airflow import settings

            _open[pid] = connect(settings.engine, settings=configuration.load())
        return _open[pid]
