"""The tables of a SQL store, for those who look after them: which revision they are at, and whether they are whole."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from keepstate.backends.sql import upgrade
from keepstate.backends.sql.database import Database, TransientError
from keepstate.backends.sql.dialects import SQLITE
from keepstate.backends.sql.migrations import LATEST, pending
from keepstate.errors import BackendUnavailableError, KeepstateError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_DAMAGE = 5

_EXPIRED = """
SELECT s.dag_id, s.run_id, s.task_id, s.map_index, e.entry_key
FROM keepstate_entry e JOIN keepstate_scope s ON s.id = e.scope_id
WHERE e.sweep_at <= :now AND e.expires_at <= :now AND e.value IS NOT NULL AND s.task_id IS NOT NULL
ORDER BY s.dag_id, s.run_id, s.task_id, s.map_index, e.entry_key
"""


class Tables:
    """keepstate's tables in one database. Nothing here makes or upgrades them unasked."""

    latest = LATEST
    """The revision that this keepstate works with."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.address = database.address

    def current(self) -> int | None:
        """Return the revision that the tables are at, or ``None`` where there are none yet."""
        path = getattr(self._database, "path", None)
        if path is not None and not path.exists():
            # asking SQLite would make the file
            return None
        with self._reached():
            return upgrade.current(self._database)

    def upgrade(self, *, now: int) -> list[str]:
        """Make the tables, or bring them to the latest revision; return the names of the steps taken."""
        with self._reached():
            return upgrade.upgrade(self._database, now=now)

    def downgrade(self, target: int) -> list[str]:
        """Take the tables back to revision ``target``; return the names of the steps. What they held is lost."""
        with self._reached():
            return upgrade.downgrade(self._database, target)

    def problems(self) -> list[str]:
        """Return what is wrong with tables at the latest revision: what is missing, and in SQLite what is damaged."""
        found: list[str] = []
        with self._reached():
            if self._database.dialect is SQLITE:
                told = [str(row[0]) for row in self._database.query("PRAGMA quick_check(5)", {})]
                # what is found comes in several lines, of which the first says where
                damage = [
                    line
                    for text in told
                    for line in text.splitlines()
                    if line != "ok" and not line.startswith("***")
                ]
                if damage:
                    found.append(
                        f"the file is damaged ({'; '.join(damage[:_MOST_DAMAGE])}); restore it from a backup, or save what can "
                        "still be read with `keepstate export --skip-damaged`"
                    )
            for table, columns in _expected().items():
                if not self._has(table, columns):
                    found += self._missing(table, columns)
        return found

    def expired(self, *, now: int) -> list[tuple[str, str, str, int, str]]:
        """Return the entries of task instances that have expired and were not cleaned up yet: their four ids and their key."""
        with self._reached():
            rows = self._database.query(_EXPIRED, {"now": now})
        return [(row[0], row[1], row[2], int(row[3]), row[4]) for row in rows]

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _missing(self, table: str, columns: list[str]) -> list[str]:
        lacking = [column for column in columns if not self._has(table, [column])]
        if lacking == columns:
            return [f"the table {table} is missing"]
        return [f"the table {table} has no column {column}" for column in lacking]

    def _has(self, table: str, columns: list[str]) -> bool:
        try:
            self._database.query(f"SELECT {', '.join(columns)} FROM {table} WHERE 1 = 0", {})
        except BackendUnavailableError:
            raise
        except KeepstateError:
            return False
        return True

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except TransientError as exc:
            raise BackendUnavailableError(
                f"the store {self.address} could not be reached: {exc}; check that it runs",
                address=self.address,
            ) from exc.__cause__ or exc


def _expected() -> dict[str, list[str]]:
    """Return the columns of each table, as the migrations make them in an empty database in memory."""
    connection = sqlite3.connect(":memory:")
    try:
        for step in pending(0):
            for statement in step.up:
                connection.execute(upgrade.filled(SQLITE, statement))
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'keepstate_%'"
        )
        return {
            name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            for (name,) in tables.fetchall()
        }
    finally:
        connection.close()
