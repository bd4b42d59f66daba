"""SQLite through the standard library: several threads and processes on one file, durable when a write returns."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from keepstate.allowance import latest, time_left
from keepstate.backends.sql import forking
from keepstate.backends.sql.database import Params, Row, TransientError
from keepstate.backends.sql.dialects import SQLITE
from keepstate.backends.sql.sqlite_connection import Connection
from keepstate.backends.sql.turnstile import Turnstile
from keepstate.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigurationError,
    StoreCorruptedError,
    StoreFullError,
    StoreReadOnlyError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

# UPSERT, which every write uses, came with 3.24
_OLDEST_SQLITE = (3, 24, 0)

# Half of SQLite's default: 10 % less time for a small value, and no more than 6 % more for one of 60 KB. A quarter would
# make the trees of a large store deeper.
_PAGE_SIZE = 2048

# Between looks at whether another process still writes. The lock goes to whoever looks in the short time between two writes
# of the others: with longer pauses, some would wait several times as long, and no more would be written altogether.
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.005


# How long it may take until reading notices that the file is another one; writing looks each time.
_SAME_FILE_FOR = 1.0


class SqliteDatabase:
    """One SQLite file. Connections are pooled, opened when needed, and closed before a fork.

    A file that is deleted, moved or replaced while it is in use is neither written to any longer, as nobody would find what
    is in it, nor made anew: `BackendUnavailableError`, until it is back.
    """

    dialect = SQLITE

    def __init__(self, path: Path, *, timeout: float, private: bool = False) -> None:
        """Use the file at ``path``; where there is none, it is made, with ``private`` for its owner's eyes only."""
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise ConfigurationError(
                f"this Python has SQLite {sqlite3.sqlite_version}, and keepstate needs 3.24 or newer; "
                "use a newer Python build, or PostgreSQL through KEEPSTATE_URL"
            )
        # a process that changes its folder keeps its store
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would also follow links
        self.address = f"sqlite:///{self.path}"
        self._name = str(self.path)
        self._timeout = timeout
        self._private = private
        self._file: tuple[int, int] | None = None
        self._look_at = 0.0
        self._stranded = False
        self._pid = os.getpid()
        self._reset()
        forking.carry(self)

    def _reset(self) -> None:
        self._idle: list[Connection] = []
        # threads of one process take turns here, which is fair and wakes at once; waiting for a file's lock is neither
        self._turn = Turnstile(1)

    # ------------------------------------------------------------------------------------------ statements

    def query(self, sql: str, params: Params) -> list[Row]:
        """Run one statement by itself and return its rows."""
        connection = self._take()
        try:
            rows = connection.rows(sql, params)
        except sqlite3.Error as exc:
            self._drop(connection)
            raise self.translate(exc) from exc
        except BaseException:
            self._drop(connection)
            raise
        self._give_back(connection)
        return rows

    def transaction(self) -> SqliteTransaction:
        """Open a write transaction; readers go on meanwhile, other writers wait."""
        return SqliteTransaction(self)

    def begin(self) -> Connection:
        """Take this process's turn, and return a connection that holds the file's write lock.

        Waiting happens here rather than in SQLite's busy handler, which can't be interrupted, would keep a fork waiting,
        and counts its time anew for every statement.
        """
        left = time_left(self._timeout)
        deadline = time.monotonic() + left
        if not self._turn.enter(left):
            raise TransientError(f"another thread has been writing for {self._timeout:g} s")
        pause = _FIRST_PAUSE
        try:
            while True:
                connection = self._take()
                try:
                    if not connection.is_wal:
                        self._demand_wal(connection)
                    connection.hand.execute("BEGIN IMMEDIATE")
                    self._demand_same_file()
                except sqlite3.Error as exc:
                    error = self.translate(exc)
                    if not isinstance(error, TransientError):
                        self._drop(connection)
                        raise error from exc
                    self._give_back(connection)
                    left = min(deadline, latest()) - time.monotonic()
                    if left <= 0:
                        raise error from exc
                except BaseException:
                    self._drop(connection)
                    raise
                else:
                    return connection
                time.sleep(min(left, pause * random.uniform(0.5, 1.5)))  # noqa: S311 - jitter is no secret
                pause = min(pause * 2, _LONGEST_PAUSE)
        except BaseException:
            self._turn.leave()
            raise

    def commit(self, connection: Connection) -> None:
        """Make a transaction durable, and let the next thread have its turn."""
        try:
            connection.hand.execute("COMMIT")
        except BaseException as exc:
            self.roll_back(connection)
            if isinstance(exc, sqlite3.Error):
                raise self.translate(exc) from exc
            raise
        self._give_back(connection)
        self._turn.leave()

    def roll_back(self, connection: Connection) -> None:
        """Undo a transaction, and let the next thread have its turn."""
        try:
            self._drop(connection)
        finally:
            self._turn.leave()

    # ----------------------------------------------------------------------------------------- connections

    def close(self) -> None:
        """Close the pooled connections; the last one folds the write-ahead log into the file."""
        self._close_idle()

    def before_fork(self, *, quiet: bool) -> None:
        """Close the connections, as SQLite must not be carried over a fork."""
        self._stranded = not quiet
        self._close_idle()

    def after_fork_in_child(self) -> None:
        """Start with no connection and no turn taken."""
        self._reset()

    def _close_idle(self) -> None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            connection.close()

    def _take(self) -> Connection:
        """Return a connection that nobody else uses; a fork waits until it is given back or dropped."""
        if self._stranded and os.getpid() != self._pid:
            raise BackendError(
                f"the store {self.address} can't be used in this process: it was forked from within a write; "
                "start such processes with the spawn method, or before the store is used",
                address=self.address,
            )
        forking.traffic.enter()
        try:
            if time.monotonic() >= self._look_at:
                self._demand_same_file()
            try:
                return self._idle.pop()
            except IndexError:
                return self._connect()
        except BaseException:
            forking.traffic.leave()
            raise

    def _give_back(self, connection: Connection) -> None:
        self._idle.append(connection)
        forking.traffic.leave()

    def _drop(self, connection: Connection) -> None:
        # closing rolls back; a connection that failed is not worth keeping
        try:
            connection.close()
        finally:
            forking.traffic.leave()

    def _connect(self) -> Connection:
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
        self._demand_same_file()
        try:
            if self._private:
                self._make_private()
            connection = Connection(
                sqlite3.connect(
                    self.path,
                    timeout=0,
                    isolation_level=None,
                    check_same_thread=False,
                    cached_statements=64,
                )
            )
        except sqlite3.Error as exc:
            raise self.translate(exc) from exc
        try:
            # FULL syncs the log at every commit: what set() returned from survives a power loss. On macOS a sync needs
            # a word of its own to reach the disk.
            connection.hand.execute("PRAGMA synchronous = FULL")
            connection.hand.execute("PRAGMA fullfsync = ON")
            (mode,) = connection.hand.execute("PRAGMA journal_mode").fetchone()
            connection.is_wal = mode == "wal"
            if not connection.is_wal and connection.hand.execute("PRAGMA page_count").fetchone() == (0,):
                # a write logs three pages of mostly small rows; a growing log is what a young store waits for
                connection.hand.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
                self._demand_wal(connection)
            if self._file is None:
                self._file = _identity(self._name)
        except sqlite3.Error as exc:
            connection.close()
            raise self.translate(exc) from exc
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_private(self) -> None:
        """Make the file before SQLite does, which would let the umask decide; its log gets the rights of the file."""
        # where it can't be made, SQLite says why
        with suppress(OSError):
            os.close(os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    def _demand_same_file(self) -> None:
        """Raise where another file, or none, is now where the one was that this process has been using."""
        if self._file is not None and _identity(self._name) != self._file:
            self._close_idle()
            raise BackendUnavailableError(
                f"the file of the store {self.address} was deleted, moved or replaced while it was in use, and nothing more is "
                "written; put it back, or start this process anew to go on with what is there now",
                address=self.address,
            )
        self._look_at = time.monotonic() + _SAME_FILE_FOR

    def _demand_wal(self, connection: Connection) -> None:
        """Switch the file to a write-ahead log; where something is in it, on writing only: a newer keepstate's stays as it is."""
        (mode,) = connection.hand.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise ConfigurationError(
                f"the file system of {self.address} does not let SQLite share a write-ahead log (a network drive?); "
                "put KEEPSTATE_HOME on a local disk, or use PostgreSQL through KEEPSTATE_URL",
                address=self.address,
            )
        connection.is_wal = True

    # ---------------------------------------------------------------------------------------------- errors

    def translate(self, exc: sqlite3.Error) -> Exception:
        """Return what an error of the driver means here. SQLite's words are stable; codes came with Python 3.11."""
        text = str(exc)
        if any(fragment in text for fragment in _PASSING):
            return TransientError(f"another process has been writing for {self._timeout:g} s")
        kind, advice = next(
            ((kind, advice) for fragment, kind, advice in _MEANINGS if fragment in text),
            (BackendError, "failed"),
        )
        folder = self.path.parent
        if kind is BackendUnavailableError and not self.path.exists() and not os.access(folder, os.W_OK):
            kind, advice = (
                StoreReadOnlyError,
                f"is not there, and can't be made as {folder} may not be written",
            )
        elif kind is BackendUnavailableError and _is_full(folder):
            kind, advice = StoreFullError, _FULL
        elif kind is StoreReadOnlyError and not os.access(folder, os.W_OK):
            advice = (
                f"can't be used as {folder} may not be written, where SQLite places its log, even to read"
            )
        return kind(f"the store {self.address} {advice} ({text})", address=self.address)


def _identity(name: str) -> tuple[int, int] | None:
    """Return what tells a file from another of the same name, or ``None`` where there is none."""
    try:
        found = os.stat(name)  # noqa: PTH116 - at every write, where a Path takes twice the time
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


_FULL = "has no room left on its disk; nothing was half-written, free some room and go on"
_READ_ONLY = "may only be read by this user; check its owner and permissions"
_FOREIGN = "has tables that differ from keepstate's; restore it from a backup, or name another file"

# trying again may work; the last is a race between processes that open the log at once
_PASSING = ("is locked", "database is busy", "locking protocol")

_MEANINGS: tuple[tuple[str, type[BackendError], str], ...] = (
    ("disk is full", StoreFullError, _FULL),
    ("readonly database", StoreReadOnlyError, _READ_ONLY),
    ("read-only", StoreReadOnlyError, _READ_ONLY),
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
    ("no such column", StoreCorruptedError, _FOREIGN),
    ("has no column", StoreCorruptedError, _FOREIGN),
    (
        "unable to open database file",
        BackendUnavailableError,
        "can't be opened; check that it may be read and written by this user, and how many files are open",
    ),
    (
        "disk I/O error",
        BackendUnavailableError,
        "can't be read or written; check the disk, its quota, or a limit on file sizes",
    ),
)

# what SQLite needs at once: the index of a write-ahead log
_LEAST_ROOM = 32 * 1024


def _is_full(folder: Path) -> bool:
    """Whether a disk has no room: SQLite calls it an I/O error when it can't make the index of its log."""
    try:
        return shutil.disk_usage(folder).free < _LEAST_ROOM
    except OSError:
        return False


class SqliteTransaction:
    """Statements between BEGIN IMMEDIATE and COMMIT."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    def __enter__(self) -> Self:
        self._connection = self._database.begin()
        self._execute = self._connection.hand.execute
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc is None:
            self._database.commit(self._connection)
            return
        self._database.roll_back(self._connection)
        if isinstance(exc, sqlite3.Error):
            raise self._database.translate(exc) from exc

    def all(self, sql: str, params: Params) -> list[Row]:
        """Return all rows."""
        return self._connection.rows(sql, params)

    def one(self, sql: str, params: Params) -> Row | None:
        """Return the first row, if any."""
        row: Row | None = self._execute(sql, params).fetchone()
        return row

    def run(self, sql: str, params: Params) -> int:
        """Return how many rows changed."""
        return self._execute(sql, params).rowcount

    def run_many(self, sql: str, rows: Sequence[Params]) -> int:
        """Run a statement for each; return how many rows changed."""
        return self._connection.hand.executemany(sql, rows).rowcount if rows else 0
