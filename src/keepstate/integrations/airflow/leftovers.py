"""On Airflow 3.3 with its own state store: saying that keepstate's tables still hold something."""

from __future__ import annotations

import logging
from typing import Any

from airflow.listeners import hookimpl

from keepstate.clock import system_clock
from keepstate.integrations.airflow.components import if_scheduler

log = logging.getLogger("keepstate")


@hookimpl  # type: ignore[untyped-decorator]
def on_starting(component: Any) -> None:
    """Look once, where the scheduler starts, and beside it."""
    if_scheduler(component, warn)


def warn() -> None:
    """Warn while there are entries that no task will find; whatever is the matter, this raises nothing."""
    try:
        count = live_entries()
    except Exception as exc:  # noqa: BLE001 - nobody asked for this
        log.debug("keepstate could not look for what it kept before: %s", exc)
        return
    if count:
        log.warning(
            "keepstate's tables in Airflow's metadata database hold %d entries of before, which tasks don't see, as Airflow "
            "keeps its state itself: to go on with them, set [state_store] backend = "
            "keepstate.integrations.airflow.StoreBackend",
            count,
        )


def live_entries() -> int:
    """Return how many entries that have not expired are in keepstate's tables, without making any."""
    from airflow import settings
    from sqlalchemy import inspect, text

    engine: Any = settings.engine
    if not inspect(engine).has_table("keepstate_entry"):
        return 0
    query = text("SELECT COUNT(*) FROM keepstate_entry WHERE expires_at IS NULL OR expires_at > :now")
    with engine.connect() as connection:
        return int(connection.execute(query, {"now": system_clock()}).scalar() or 0)
