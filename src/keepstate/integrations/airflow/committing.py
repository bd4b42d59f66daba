"""Changes that have to wait until Airflow has committed its own, as both are in one SQLite file."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.orm import Session

from keepstate.integrations.airflow import metadata

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("keepstate")

_POSTPONED = "keepstate_postponed"


def now_or_after(session: Any, change: Callable[[], object]) -> None:
    """Make a change, or have it made right after ``session`` commits, where waiting for the file would be for ever.

    What is postponed raises nothing, and is dropped when the session is rolled back.
    """
    if _holds_the_file(session):
        session.info.setdefault(_POSTPONED, []).append(change)
    else:
        change()


def _holds_the_file(session: Any) -> bool:
    if session is None or metadata.store().settings.url is not None:
        return False
    if session.get_bind().dialect.name != "sqlite":
        return False
    # sqlite3 begins a transaction with the first change
    return bool(getattr(session.connection().connection.dbapi_connection, "in_transaction", False))


def _make_postponed(session: Any) -> None:
    for change in session.info.pop(_POSTPONED, ()):
        try:
            change()
        except Exception as exc:  # noqa: BLE001 - Airflow's own is committed, and what is left over is cleaned up later
            log.warning("State that was to be cleared with a success is still there: %s", exc)


event.listen(Session, "after_commit", _make_postponed)
event.listen(Session, "after_rollback", lambda session: session.info.pop(_POSTPONED, None))
