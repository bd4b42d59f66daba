"""Bringing a database's tables to the version that this keepstate knows."""

from __future__ import annotations

import re
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from keepstate.backends.sql.database import AlreadyDoneError, TransientError
from keepstate.backends.sql.migrations import LATEST, applied, pending
from keepstate.errors import BackendError, ConfigurationError, StoreVersionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.backends.sql.database import Database, Transaction
    from keepstate.backends.sql.dialects import Dialect

_CURRENT = "SELECT MAX(number) FROM keepstate_migration"
_CREATE = "CREATE TABLE keepstate_migration (number INTEGER NOT NULL PRIMARY KEY, name {key} NOT NULL, applied_at BIGINT NOT NULL){table}"
_NOTE = "INSERT INTO keepstate_migration (number, name, applied_at) VALUES (:number, :name, :now)"
_FORGET = "DELETE FROM keepstate_migration WHERE number = :number"
_TABLE = re.compile(r"\s*CREATE TABLE (\w+)")


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
    with _alone(database) as tx:
        found = _revision(database, tx)
        if found is None:
            _run_one(database, tx, _CREATE)
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
    with _alone(database) as tx:
        number = _revision(database, tx) or 0
        _refuse_newer(database, number)
        steps = applied(number, target)
        for step in steps:
            _run(database, tx, step.down)
            tx.run(_FORGET, {"number": step.number})
    return [step.name for step in steps]


@contextmanager
def _alone(database: Database) -> Iterator[Transaction]:
    """Open a transaction that no other process migrates in."""
    dialect = database.dialect
    with database.transaction() as tx:
        got = tx.one(dialect.lock_migrations, {}) if dialect.lock_migrations else None
        if dialect.unlock_migrations is None:
            yield tx
            return
        if not got or not got[0]:
            raise TransientError("another process has been changing the tables for 30 s")
        try:
            yield tx
        except Exception:
            # what went wrong is the news; where the connection is lost, the lock is too
            with suppress(Exception):
                tx.one(dialect.unlock_migrations, {})
            raise
        tx.one(dialect.unlock_migrations, {})


def _revision(database: Database, tx: Transaction) -> int | None:
    """Return the revision, once no other process migrates: another one may have been faster."""
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
        _run_one(database, tx, statement)


def _run_one(database: Database, tx: Transaction, statement: str) -> None:
    """Run a statement; where it had been run before the process was killed, that will do."""
    try:
        tx.run(filled(database.dialect, statement), {})
    except AlreadyDoneError as exc:
        table, made_here = _TABLE.match(statement), database.dialect.made_here
        if table and not (made_here and tx.one(made_here, {"name": table[1]})):
            raise BackendError(
                f"the database of {database.address} failed: {exc}", address=database.address
            ) from exc.__cause__


def filled(dialect: Dialect, statement: str) -> str:
    """Return a statement of a migration as a database takes it."""
    return statement.format(**dialect.types, identity=secrets.token_hex(10))
