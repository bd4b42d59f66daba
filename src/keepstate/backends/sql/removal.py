"""The removal of whole runs and assets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.backends.answers import Applied
from keepstate.backends.fencing import BURIED
from keepstate.backends.sql import assets
from keepstate.backends.sql import statements as sql
from keepstate.backends.sql.access import Access
from keepstate.backends.sql.sessions import find_repeated, note
from keepstate.scope import RunScope

if TYPE_CHECKING:
    from keepstate.backends.requests import Session
    from keepstate.backends.sql.database import Row, Transaction
    from keepstate.backends.sql.dialects import Dialect
    from keepstate.scope import AssetScope


class Removal(Access):
    """Those verbs of `Backend` that remove a whole run or asset."""

    def delete_run(self, dag_id: str, run_id: str, *, now: int, session: Session | None = None) -> int:
        """See `Backend.delete_run`."""

        def erase(own: Session | None) -> int:
            return self._write(lambda tx: self._erase_run(tx, RunScope(dag_id, run_id), now, own))

        return self._numbered(session, erase)

    def _erase_run(self, tx: Transaction, run: RunScope, now: int, session: Session | None) -> int:
        scopes = _lock_run(tx, self._db.dialect, run)
        repeated = find_repeated(tx, session, self.address)
        if repeated:
            return repeated.version
        count = _erase_rows_of_run(tx, scopes, now)
        note(tx, session, Applied(count, 0), now)
        return count

    def delete_asset(self, scope: AssetScope, *, now: int, session: Session | None = None) -> bool:
        """See `Backend.delete_asset`."""

        def erase(own: Session | None) -> bool:
            return self._write(lambda tx: self._erase_asset(tx, scope, now, own))

        return self._numbered(session, erase)

    def _erase_asset(self, tx: Transaction, scope: AssetScope, now: int, session: Session | None) -> bool:
        scope_id = _lock_asset(tx, self._db.dialect, scope)
        repeated = find_repeated(tx, session, self.address)
        if repeated:
            return repeated.version == 1
        if scope_id is not None:
            _erase_rows_of_asset(tx, scope_id)
        note(tx, session, Applied(int(scope_id is not None), 0), now)
        return scope_id is not None


def _lock_run(tx: Transaction, dialect: Dialect, run: RunScope) -> list[Row]:
    """Return id and kind of a run's scopes, which nobody else changes from here on."""
    # By a statement of its own: who adds a task instance holds this lock until the next statement sees it.
    tx.one(dialect.render(sql.LOCK_SCOPE), {"digest": run.digest})
    return tx.all(dialect.render(sql.SCOPES_OF_RUN), {"dag_id": run.dag_id, "run_id": run.run_id})


def _erase_rows_of_run(tx: Transaction, scopes: list[Row], now: int) -> int:
    """Erase all rows of a run, but for the bare rows that tell latecomers they are late; return how many tasks it had."""
    for scope_id, _ in scopes:
        tx.run(sql.ERASE_ALL_ENTRIES, {"scope_id": scope_id})
        tx.run(sql.ERASE_LOG, {"scope_id": scope_id})
        tx.run(sql.STRIP_ATTEMPTS, {"id": scope_id})
        tx.run(sql.BURY_SCOPE, {"id": scope_id, "now": now, "sweep_at": now + BURIED})
    return sum(kind == "task" for _, kind in scopes)


def _lock_asset(tx: Transaction, dialect: Dialect, scope: AssetScope) -> int | None:
    """Return the id of an asset's scope, which nobody else changes from here on, or ``None`` where it is not known."""
    found = assets.find(tx.all, scope)
    # who writes to it has finished before, or finds nothing afterwards
    if found is None or tx.one(dialect.render(sql.LOCK_SCOPE_BY_ID), {"id": found[0]}) is None:
        return None
    return int(found[0])


def _erase_rows_of_asset(tx: Transaction, scope_id: int) -> None:
    """Erase an asset and all its rows."""
    tx.run(sql.ERASE_ALL_ENTRIES, {"scope_id": scope_id})
    tx.run(sql.ERASE_LOG, {"scope_id": scope_id})
    tx.run(sql.ERASE_ATTEMPTS, {"id": scope_id})
    tx.run(sql.DELETE_ASSET, {"id": scope_id})
    tx.run(sql.DELETE_SCOPE, {"id": scope_id})
