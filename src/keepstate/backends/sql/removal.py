"""The removal of whole runs and assets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.backends.sql import assets
from keepstate.backends.sql import statements as sql
from keepstate.clock import DAY

if TYPE_CHECKING:
    from keepstate.backends.sql.database import Row, Transaction
    from keepstate.backends.sql.dialects import Dialect
    from keepstate.scope import AssetScope, RunScope

# an attempt of a deleted run is known as such for this long; no task outlives its deleted run by more
BURIED = 7 * DAY


def lock_run(tx: Transaction, dialect: Dialect, run: RunScope) -> list[Row]:
    """Return id and kind of a run's scopes, which nobody else changes from here on."""
    return tx.all(dialect.render(sql.SCOPES_OF_RUN), {"dag_id": run.dag_id, "run_id": run.run_id})


def erase_run(tx: Transaction, scopes: list[Row], now: int) -> int:
    """Erase all rows of a run, but for the bare rows that tell latecomers they are late; return how many tasks it had."""
    for scope_id, _ in scopes:
        tx.run(sql.ERASE_ALL_ENTRIES, {"scope_id": scope_id})
        tx.run(sql.ERASE_LOG, {"scope_id": scope_id})
        tx.run(sql.STRIP_ATTEMPTS, {"id": scope_id})
        tx.run(sql.BURY_SCOPE, {"id": scope_id, "now": now, "sweep_at": now + BURIED})
    return sum(kind == "task" for _, kind in scopes)


def lock_asset(tx: Transaction, dialect: Dialect, scope: AssetScope) -> int | None:
    """Return the id of an asset's scope, which nobody else changes from here on, or ``None`` where it is not known."""
    found = assets.find(tx.all, scope)
    # who writes to it has finished before, or finds nothing afterwards
    if found is None or tx.one(dialect.render(sql.LOCK_SCOPE_BY_ID), {"id": found[0]}) is None:
        return None
    return int(found[0])


def erase_asset(tx: Transaction, scope_id: int) -> None:
    """Erase an asset and all its rows."""
    tx.run(sql.ERASE_ALL_ENTRIES, {"scope_id": scope_id})
    tx.run(sql.ERASE_LOG, {"scope_id": scope_id})
    tx.run(sql.ERASE_ATTEMPTS, {"id": scope_id})
    tx.run(sql.DELETE_ASSET, {"id": scope_id})
    tx.run(sql.DELETE_SCOPE, {"id": scope_id})
