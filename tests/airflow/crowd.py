"""Asks Airflow 3.3's state store for something from two sessions at once, in a process that may have two connections."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from airflow.state import TaskScope, get_state_backend
from airflow.utils.session import create_session
from sqlalchemy import text

SCOPE = TaskScope(dag_id="crowded", run_id="r", task_id="t")
BOTH = threading.Barrier(2, timeout=60)


def write(number: int) -> None:
    """Write while a session holds the one connection, and another the other."""
    with create_session(scoped=False) as session:
        session.execute(text("SELECT 1"))
        BOTH.wait()
        get_state_backend().set(SCOPE, str(number), str(number), session=session)


with ThreadPoolExecutor(2) as threads:
    list(threads.map(write, range(2)))
