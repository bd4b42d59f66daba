"""The store of processes that may open Airflow's metadata database: the API server's, and all of 2.11's."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from keepstate.connect import connect, route, tables_at
from keepstate.integrations.airflow import configuration
from keepstate.integrations.airflow.hooks import is_below_3_3

if TYPE_CHECKING:
    from keepstate.settings import Settings
    from keepstate.store import StateStore

_lock = threading.Lock()
_open: dict[int, StateStore] = {}


def store() -> StateStore:
    """Return the store that tasks reach through this process, making or upgrading its tables at the first call.

    It is at ``KEEPSTATE_URL`` or in the class of ``[state_store] backend``, if these are set here, and else beside Airflow's
    own tables, over connections like Airflow's. Processes that start together wait for each other. Raises what
    `keepstate.connect` raises; the next call tries again.
    """
    pid = os.getpid()
    with _lock:
        if pid not in _open:
            ours = configuration.load()
            _open[pid] = connect(_apart(_place(ours)), settings=ours)
        return _open[pid]


def tables() -> Any:
    """Return the tables of that store without making or upgrading any; raises what `connect.tables_at` raises."""
    ours = configuration.load()
    return tables_at(_place(ours), ours)


def _place(ours: Settings) -> Any:
    from airflow import settings

    if ours.url is not None:
        return ours.url
    # from 3.3 on, a class that is not ours is Airflow's own affair
    return None if is_below_3_3() and route(None, ours) == "backend" else settings.engine


def _apart(place: Any) -> Any:
    """Return an engine that connects as Airflow's does, and takes no connection from its pool; a URL is returned as it is.

    Who asks for state often holds one of Airflow's sessions. With one pool for both, as many of these as it has connections
    would wait for each other. The new pool is a copy of Airflow's, with its size and with how it connects: what is configured
    for that, arguments and events among it, is in no URL.
    """
    if place is None or isinstance(place, str):
        return place
    from sqlalchemy.engine import Engine

    return Engine(place.pool.recreate(), place.dialect, place.url)
