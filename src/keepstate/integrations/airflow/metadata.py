"""The store of processes that may open Airflow's metadata database: the API server's, and all of 2.11's."""

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
    """Return the store that tasks reach through this process, making or upgrading its tables at the first call.

    It is at ``KEEPSTATE_URL``, if that is set here, and else beside Airflow's own tables, over Airflow's engine. Processes that start together wait for each other. Raises what `keepstate.connect` raises; the next call tries again.
    """
    pid = os.getpid()
    with _lock:
        if pid not in _open:
            from airflow import settings

            ours = configuration.load()
            _open[pid] = connect(ours.url or settings.engine, settings=ours)
        return _open[pid]
