"""Rows of lists, and the removal of whole runs and assets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.backends.sql import assets
from keepstate.backends.sql import statements as sql
from keepstate.clock import DAY, to_datetime
from keepstate.scope import AssetInfo, AssetScope, RunInfo, TaskInstanceInfo, TaskScope

if TYPE_CHECKING:
    from keepstate.backends.sql.database import Row, Transaction
    from keepstate.backends.sql.dialects import Dialect

# an attempt of a deleted run is known as such for this long; no task outlives its deleted run by more
_BURIED = 7 * DAY


def run_of(row: Row) -> RunInfo:
    """Read a row of ``RUNS``."""
    dag_id, run_id, state, try_number, created_at, updated_at = row
    return RunInfo(dag_id, run_id, state, try_number, to_datetime(created_at), to_datetime(updated_at))


def task_instance_of(row: Row) -> TaskInstanceInfo:
    """Read a row of ``TASK_INSTANCES``."""
    dag_id, run_id, task_id, map_index, state, try_number, version, created_at, updated_at, entries = row
    return TaskInstanceInfo(
        scope=TaskScope(dag_id, run_id, task_id, map_index),
        state=state,
        try_number=try_number,
        version=version,
        entries=entries,
        created_at=to_datetime(created_at),
        updated_at=to_datetime(updated_at),
    )


def asset_of(row: Row) -> AssetInfo:
    """Read a row of ``ASSETS``."""
    asset_id, name, uri, entries, updated_at = row
    return AssetInfo(asset_id, name, uri, entries, to_datetime(updated_at))


def delete_run(tx: Transaction, dialect: Dialect, dag_id: str, run_id: str, now: int) -> int:
    """Erase all rows of a run, but for the bare rows that tell latecomers they are late."""
    scopes = tx.all(dialect.render(sql.SCOPES_OF_RUN), {"dag_id": dag_id, "run_id": run_id})
    for scope_id, _ in scopes:
        tx.run(sql.ERASE_ALL_ENTRIES, {"scope_id": scope_id})
        tx.run(sql.ERASE_LOG, {"scope_id": scope_id})
        tx.run(sql.STRIP_ATTEMPTS, {"id": scope_id})
        tx.run(sql.BURY_SCOPE, {"id": scope_id, "now": now, "sweep_at": now + _BURIED})
    return sum(kind == "task" for _, kind in scopes)


def delete_asset(tx: Transaction, dialect: Dialect, scope: AssetScope) -> bool:
    """Erase an asset and all its rows."""
    found = assets.find(tx.all, scope)
    # who writes to it has finished before, or finds nothing afterwards
    if found is None or tx.one(dialect.render(sql.LOCK_SCOPE_BY_ID), {"id": found[0]}) is None:
        return False
    erase_contents(tx, found[0])
    tx.run(sql.DELETE_ASSET, {"id": found[0]})
    tx.run(sql.DELETE_SCOPE, {"id": found[0]})
    return True


def erase_contents(tx: Transaction, scope_id: int) -> int:
    """Erase the entries, the log and the attempts of a scope; return how many attempts there were."""
    tx.run(sql.ERASE_ALL_ENTRIES, {"scope_id": scope_id})
    tx.run(sql.ERASE_LOG, {"scope_id": scope_id})
    return tx.run(sql.ERASE_ATTEMPTS, {"id": scope_id})
