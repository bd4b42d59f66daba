"""SQLite through the standard library: several threads and processes on one file, durable when a write returns."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from keepstate.backends.sql.database import Params, Row, TransientError
from keepstate.backends.sql.dialects import SQLITE
from keepstate.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigurationError,
    StoreCorruptedError,
    StoreFullError,
    StoreReadOnlyError,
)

# UPSERT, which every write uses, came with 3.24
_OLDEST_SQLITE = (3, 24, 0)


class SqliteDatabase:
    """One SQLite file. Connections are pooled, opened when needed, and left behind in a forked child."""

    dialect = SQLITE

    def __init__(self, path: Path, *, timeout: float) -> None:
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise ConfigurationError(
                f"this Python has SQLite {sqlite3.sqlite_version}, and keepstate needs 3.24 or newer; "
                "use a newer Python build, or PostgreSQL through KEEPSTATE_URL"
            )
        self.path = path
        self.address = f"sqlite:///{path}"
        self._timeout = timeout
        self._reset()
        _open_databases.add(self)

    def _reset(self) -> None:
        self._idle: list[sqlite3.Connection] = []
        # Threads of one process take turns here, which is fair and wakes at once; SQLite's own waiting is neither.
        self._turn = threading.Lock()

    def query(self, sql: str, params: Params) -> list[Row]:
        """Run one statement by itself and return its rows."""
        connection = self._take()
        try:
            rows = connection.execute(sql, params).fetchall()
        except sqlite3.Error as exc:
            connection.close()
            raise self._translate(exc) from exc
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return rows

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        """Open a write transaction; readers go on meanwhile, other writers wait."""
        if not self._turn.acquire(timeout=self._timeout):
            raise TransientError(f"another thread has been writing for {self._timeout:g} s")
        try:
            connection = self._take()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield SqliteTransaction(connection)
                connection.execute("COMMIT")
            except sqlite3.Error as exc:
                self._give_up(connection)
                raise self._translate(exc) from exc
            except BaseException:
                self._give_up(connection)
                raise
            self._idle.append(connection)
        finally:
            self._turn.release()

    def close(self) -> None:
        """Close the pooled connections; the last one folds the write-ahead log into the file."""
        _open_databases.discard(self)
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _give_up(self, connection: sqlite3.Connection) -> None:
        # closing rolls back; a connection that failed is not worth keeping
        connection.close()

    def _connect(self) -> sqlite3.Connection:
        if not self.path.parent.is_dir():
            raise ConfigurationError(
                f"the folder {self.path.parent} for the store {self.address} does not exist; create it, or name another",
                address=self.address,
            )
        if self.path.is_dir():
            raise ConfigurationError(
                f"the store {self.address} names a folder; name a file in it, like {self.path / 'keepstate.db'}",
                address=self.address,
            )
        try:
            connection = sqlite3.connect(
                self.path,
                timeout=self._timeout,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
            )
        except sqlite3.Error as exc:
            raise self._translate(exc) from exc
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            # FULL syncs the log at every commit: what set() returned from survives a power loss
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as exc:
            connection.close()
            raise self._translate(exc) from exc
        if mode != "wal":
            connection.close()
            raise ConfigurationError(
                f"the file system of {self.address} does not let SQLite share a write-ahead log (a network drive?); "
                "put KEEPSTATE_HOME on a local disk, or use PostgreSQL through KEEPSTATE_URL",
                address=self.address,
            )
        return connection

    def _translate(self, exc: sqlite3.Error) -> Exception:
        """Return what an error of the driver means here. SQLite's words are stable; codes came with Python 3.11."""
        text = str(exc)
        for fragment, kind, advice in _MEANINGS:
            if fragment in text:
                if kind is TransientError:
                    return TransientError(f"another process has been writing for {self._timeout:g} s")
                if kind is StoreReadOnlyError and os.access(self.path, os.W_OK):
                    advice = "its folder may not be written, and SQLite needs to place its log there"
                message = f"the store {self.address} {advice} ({text})"
                return kind(message, address=self.address)
        return BackendError(f"SQLite failed on {self.address}: {text}", address=self.address)


_MEANINGS: tuple[tuple[str, type[Exception], str], ...] = (
    ("is locked", TransientError, ""),
    ("database is busy", TransientError, ""),
    (
        "disk is full",
        StoreFullError,
        "has no room left on its disk; nothing was half-written, free some room and go on",
    ),
    (
        "readonly database",
        StoreReadOnlyError,
        "may only be read by this user; check its owner and permissions",
    ),
    ("read-only", StoreReadOnlyError, "may only be read by this user; check its owner and permissions"),
    (
        "file is not a database",
        StoreCorruptedError,
        "is not a SQLite file; it was left as it is, name another file",
    ),
    (
        "malformed",
        StoreCorruptedError,
        "is damaged; restore it from a backup, or move it away to start a new one",
    ),
    (
        "no such table: keepstate_",
        StoreCorruptedError,
        "lacks a table of keepstate; restore it from a backup",
    ),
    (
        "no such column",
        StoreCorruptedError,
        "has tables that differ from keepstate's; restore it from a backup",
    ),
    (
        "unable to open database file",
        BackendUnavailableError,
        "can't be opened; check that its folder exists and may be written by this user",
    ),
    (
        "disk I/O error",
        BackendUnavailableError,
        "can't be read or written; check the disk, or a limit on file sizes",
    ),
)


class SqliteTransaction:
    """Statements between BEGIN IMMEDIATE and COMMIT."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def all(self, sql: str, params: Params) -> list[Row]:
        """Return all rows."""
        return self._execute(sql, params).fetchall()

    def one(self, sql: str, params: Params) -> Row | None:
        """Return the first row, if any."""
        row: Row | None = self._execute(sql, params).fetchone()
        return row

    def run(self, sql: str, params: Params) -> int:
        """Return how many rows changed."""
        return self._execute(sql, params).rowcount


# A connection must not be used in a forked child, nor closed there: closing would touch the parent's locks and log.
_open_databases: weakref.WeakSet[SqliteDatabase] = weakref.WeakSet()
_left_behind: list[list[sqlite3.Connection]] = []


def _leave_connections_behind() -> None:
    for database in list(_open_databases):
        _left_behind.append(database._idle)  # noqa: SLF001 - the class's own fork hook
        database._reset()  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_connections_behind)
