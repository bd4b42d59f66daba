"""Bringing a database's tables to the version that this keepstate knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.backends.sql.migrations import LATEST, applied, pending
from keepstate.errors import ConfigurationError, StoreVersionError

if TYPE_CHECKING:
    from keepstate.backends.sql.database import Database, Transaction

_CURRENT = "SELECT MAX(number) FROM keepstate_migration"
_CREATE = "CREATE TABLE keepstate_migration (number INTEGER NOT NULL PRIMARY KEY, name {key} NOT NULL, applied_at BIGINT NOT NULL)"
_NOTE = "INSERT INTO keepstate_migration (number, name, applied_at) VALUES (:number, :name, :now)"
_FORGET = "DELETE FROM keepstate_migration WHERE number = :number"


def current(database: Database) -> int | None:
    """Return the number of the last migration applied, or ``None`` when the database holds no store yet."""
    found = database.query(database.dialect.has_table, {})
    if not found or found[0][0] is None:
        return None
    return int(database.query(_CURRENT, {})[0][0] or 0)


def upgrade(database: Database, *, now: int) -> list[str]:
    """Apply what is pending and return the names; many processes may call this at once.

    Raises ``StoreVersionError`` when a newer keepstate made the store.
    """
    number = current(database)
    _refuse_newer(database, number)
    if number == LATEST:
        return []
    with database.transaction() as tx:
        found = _locked(database, tx)
        if found is None:
            tx.run(_fill(database, _CREATE), {})
        number = found or 0
        _refuse_newer(database, number)
        steps = pending(number)
        for step in steps:
            _run(database, tx, step.up)
            tx.run(_NOTE, {"number": step.number, "name": step.name, "now": now})
    return [step.name for step in steps]


def downgrade(database: Database, target: int) -> list[str]:
    """Take migrations back down to number ``target`` and return their names. What they held is lost."""
    if not 0 <= target <= LATEST:
        raise ConfigurationError(f"a store can be taken to revision 0 to {LATEST}, not {target}")
    with database.transaction() as tx:
        number = _locked(database, tx) or 0
        _refuse_newer(database, number)
        steps = applied(number, target)
        for step in steps:
            _run(database, tx, step.down)
            tx.run(_FORGET, {"number": step.number})
    return [step.name for step in steps]


def _locked(database: Database, tx: Transaction) -> int | None:
    """Return the revision, once no other process migrates: another one may have been faster."""
    if database.dialect.lock_migrations:
        tx.one(database.dialect.lock_migrations, {})
    found = tx.one(database.dialect.has_table, {})
    if not found or found[0] is None:
        return None
    row = tx.one(_CURRENT, {})
    return int(row[0] or 0) if row else 0


def _refuse_newer(database: Database, number: int | None) -> None:
    if number is not None and number > LATEST:
        raise StoreVersionError(
            f"the store {database.address} is at revision {number}, and this keepstate knows up to {LATEST}: "
            "a newer keepstate made it; upgrade with pip install --upgrade keepstate",
            address=database.address,
        )


def _run(database: Database, tx: Transaction, statements: tuple[str, ...]) -> None:
    for statement in statements:
        tx.run(_fill(database, statement), {})


def _fill(database: Database, statement: str) -> str:
    return statement.format(**database.dialect.types)
