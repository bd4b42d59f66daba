"""No error of a driver leaves a SQL backend: each is translated, into the tree or into another attempt."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import psycopg
import psycopg.errors
import pymysql
import pymysql.constants.ER
import pytest
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError
from typing_extensions import Self

from keepstate.backends.sql.database import AlreadyDoneError, RepeatedRequestError, TransientError
from keepstate.backends.sql.mysql import MysqlDatabase
from keepstate.backends.sql.mysql import open_url as open_mysql
from keepstate.backends.sql.postgresql import PostgresDatabase, make_engine
from keepstate.backends.sql.sqlite import SqliteDatabase
from keepstate.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigurationError,
    KeepstateError,
    StoreCorruptedError,
    StoreFullError,
    StoreReadOnlyError,
)
from tests.backends.stores import open_file, open_url, task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from keepstate.backends.sql.database import Database
    from keepstate.store import StateStore

# ---------------------------------------------------------------------------------------------------- SQLite

# sqlite3_errstr() of every primary result code, and what extended codes and the library itself say besides
SAID_BY_SQLITE = {
    "SQL logic error": BackendError,
    "access permission denied": BackendError,
    "query aborted": BackendError,
    "database is locked": TransientError,
    "database table is locked": TransientError,
    "database schema is locked: main": TransientError,
    "out of memory": BackendError,
    "attempt to write a readonly database": StoreReadOnlyError,
    "interrupted": BackendError,
    "disk I/O error": BackendUnavailableError,
    "database disk image is malformed": StoreCorruptedError,
    "malformed database schema (keepstate_entry)": StoreCorruptedError,
    "unknown operation": BackendError,
    "database or disk is full": StoreFullError,
    "unable to open database file": BackendUnavailableError,
    "locking protocol": TransientError,
    "database schema has changed": BackendError,
    "string or blob too big": BackendError,
    "UNIQUE constraint failed: keepstate_scope.digest": BackendError,
    "datatype mismatch": BackendError,
    "bad parameter or other API misuse": BackendError,
    "large file support is disabled": BackendError,
    "authorization denied": BackendError,
    "column index out of range": BackendError,
    "file is not a database": StoreCorruptedError,
    "no such table: keepstate_log": StoreCorruptedError,
    "no such column: log_rows": StoreCorruptedError,
    "table keepstate_entry has no column named log_rows": StoreCorruptedError,
    "something that no SQLite has said yet": BackendError,
}


@pytest.mark.parametrize(("said", "meaning"), SAID_BY_SQLITE.items())
def test_what_sqlite_says_has_a_meaning(tmp_path: Path, said: str, meaning: type[Exception]) -> None:
    """Of whatever class the driver makes it; an error of the tree has the address, and the driver's words."""
    path = tmp_path / "keepstate.db"
    path.touch()
    database = SqliteDatabase(path, timeout=1)
    for kind in (sqlite3.OperationalError, sqlite3.DatabaseError, sqlite3.InterfaceError, sqlite3.Error):
        found = database.translate(kind(said))
        assert type(found) is meaning
        if isinstance(found, KeepstateError):
            assert said in str(found)
            assert vars(found) == {"address": f"sqlite:///{path}"}


VERBS: dict[str, Callable[[StateStore], object]] = {
    "get": lambda store: task(store).get("n"),
    "first get of an attempt": lambda store: task(store, "new", try_number=1).get("n"),
    "set": lambda store: task(store).set("n", 1),
    "set_many": lambda store: task(store).set_many({"n": 1, "m": 2}),
    "increment": lambda store: task(store).increment("n"),
    "delete": lambda store: task(store).delete("n"),
    "clear": lambda store: task(store).clear(),
    "history": lambda store: task(store).history("n"),
    "asset": lambda store: store.asset("orders").set("n", 1),
    "runs": lambda store: store.runs(),
    "delete_run": lambda store: store.delete_run("etl", "2026-11-29"),
    "delete_asset": lambda store: store.delete_asset("orders"),
    "cleanup": lambda store: store.cleanup(),
    "check_writable": lambda store: store.backend.check_writable(),
}


class FailingAt:
    """A connection's cursor whose statement number ``n`` fails in a real SQLite, by its authorizer."""

    def __init__(self, connection: Any, n: int) -> None:
        self._connection = connection
        self._cursor = connection.raw.cursor()
        self._left = n
        self.failed = False

    def execute(self, sql: str, *params: Any) -> Any:
        self._left -= 1
        if self._left >= 0:
            return self._cursor.execute(sql, *params)
        # a comment makes it a statement that is not prepared yet, so that the authorizer is asked
        self.failed = True
        self._connection.raw.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)
        try:
            return self._cursor.execute(f"{sql} -- {self._left}", *params)
        finally:
            self._connection.raw.set_authorizer(None)

    def close(self) -> None:
        self._cursor.close()


@pytest.mark.parametrize("verb", VERBS)
def test_whatever_statement_fails_in_sqlite(tmp_path: Path, verb: str) -> None:
    """The error is of the tree, nothing of the write is kept, and the next one works."""
    with open_file(tmp_path / "keepstate.db") as store:
        task(store).set_many({"n": 0, "m": 0})
        store.asset("orders").set("n", 0)
        before = dict(task(store).items())
        for number in range(100):
            (connection,) = store.backend._db._idle  # type: ignore[attr-defined]
            hand = connection.hand = FailingAt(connection, number)
            refused = _refused(lambda: VERBS[verb](store))
            assert hand.failed == (refused is not None)
            if refused is None:
                connection.hand = connection.raw.cursor()
                break
            assert isinstance(refused, BackendError)
            assert isinstance(refused.__cause__, sqlite3.Error)
            assert dict(task(store).items()) == before
        else:
            raise AssertionError("the verb has no end")
        assert number > 0
        task(store).set("n", 7)


def _refused(verb: Callable[[], object]) -> KeepstateError | None:
    try:
        verb()
    except KeepstateError as exc:
        return exc
    return None


# ------------------------------------------------------------------------------------------------ PostgreSQL

STATES = {
    state: error
    for error in vars(psycopg.errors).values()
    if isinstance(error, type) and isinstance(state := getattr(error, "sqlstate", None), str)
}

MEANINGS = {
    "53100": StoreFullError,
    "25006": StoreReadOnlyError,
    "42501": ConfigurationError,
    "28P01": ConfigurationError,
    "28000": ConfigurationError,
    "3D000": ConfigurationError,
    "3F000": ConfigurationError,
    "57P04": ConfigurationError,
    "42P01": StoreCorruptedError,
    "42703": StoreCorruptedError,
    "XX001": StoreCorruptedError,
    "XX002": StoreCorruptedError,
    "40001": TransientError,
    "40P01": TransientError,
    "40003": TransientError,
    "53300": TransientError,
    "53200": TransientError,
    "55P03": TransientError,
    "57014": TransientError,
    "57P01": TransientError,
    "57P02": TransientError,
    "57P03": TransientError,
    "25P03": TransientError,
    "08006": TransientError,
    "23505": TransientError,
    "22021": BackendError,
    "22P02": BackendError,
    "42601": BackendError,
    "54000": BackendError,
    "58030": BackendError,
    "XX000": BackendError,
}


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    """A bare database."""
    database = PostgresDatabase(make_engine(postgres_url), owned=True)
    yield database
    database.close()


def test_every_sqlstate_has_a_meaning(database: PostgresDatabase) -> None:
    """Raised by the server itself, by a single statement and within a transaction; none leaves as the driver's."""
    assert len(STATES) > 200
    for state in STATES:
        # an error of class 00, 01 or 02 is none
        if state[:2] in {"00", "01", "02"}:
            continue
        statement = f"DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '{state}'; END $$"
        for run in (_alone, _within):
            with pytest.raises((KeepstateError, TransientError)) as caught:
                run(database, statement)
            kind = type(caught.value)
            assert kind is MEANINGS.get(state, kind), state
            assert isinstance(caught.value.__cause__, psycopg.Error)
            assert not isinstance(caught.value.__cause__, SQLAlchemyError)
            if isinstance(caught.value, BackendError):
                assert caught.value.address == database.address
    assert database.query("SELECT 1", {}) == [(1,)]


def _alone(database: Database, statement: str) -> None:
    database.query(statement, {})


def _within(database: Database, statement: str) -> None:
    with database.transaction() as tx:
        tx.run(statement, {})


def test_a_repeated_request_is_told_from_other_missing_values(database: PostgresDatabase) -> None:
    """By the column that refused the NULL, whatever language the server speaks."""
    with database.transaction() as tx:
        tx.run("CREATE TABLE t (number INTEGER NOT NULL, other INTEGER NOT NULL)", {})
    with pytest.raises(RepeatedRequestError):
        database.query("INSERT INTO t VALUES (NULL, 1) RETURNING 1", {})
    with pytest.raises(BackendError, match="other"):
        database.query("INSERT INTO t VALUES (1, NULL) RETURNING 1", {})


def _fail_each_statement(url: str, verb: str, error: type[Exception]) -> None:
    """Do a verb again and again, each time with another of its statements failing on the server, until none does."""
    with open_url(url, timeout=1) as store:
        task(store).set_many({"n": 0, "m": 0})
        store.asset("orders").set("n", 0)
        before = dict(task(store).items())
        for number in range(100):
            with FailingOnServer(store, number) as hand:
                refused = _refused(lambda: VERBS[verb](store))
            assert hand.failed == (refused is not None)
            if refused is None:
                break
            assert isinstance(refused, BackendError)
            assert isinstance(refused.__cause__, error)
            assert dict(task(store).items()) == before
        else:
            raise AssertionError("the verb has no end")
        assert number > 0
        task(store).set("n", 7)


@pytest.mark.parametrize("verb", VERBS)
def test_whatever_statement_fails_in_postgres(postgres_url: str, verb: str) -> None:
    """The error is of the tree, nothing of the write is kept, and the next one works."""
    _fail_each_statement(postgres_url, verb, psycopg.Error)


class FailingOnServer:
    """Has the statement number ``n`` of the store's connection be one that the server refuses."""

    def __init__(self, store: StateStore, n: int) -> None:
        self._store = store
        self._left = n
        self.failed = False

    def __enter__(self) -> Self:
        (lent,) = self._store.backend._db._warm  # type: ignore[attr-defined]
        self._info = lent.info
        self._cursor = self._info["keepstate_cursor"]
        self._info["keepstate_cursor"] = self
        return self

    def __exit__(self, *_: object) -> None:
        self._info["keepstate_cursor"] = self._cursor

    def execute(self, sql: str, params: Any = None) -> Any:
        self._left -= 1
        if self._left == -1 and sql not in {"COMMIT", "ROLLBACK"}:
            self.failed = True
            sql, params = "SELECT nonsense from nowhere in particular", None
        return self._cursor.execute(sql, params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


def test_an_error_of_an_event_handler_is_translated_too(postgres_url: str) -> None:
    """An engine that was handed in may run whatever its owner likes."""
    engine = make_engine(postgres_url)
    with open_url(engine) as store:
        task(store).set("n", 1)

        def refuse(*_: object) -> None:
            raise SQLAlchemyError("no connections on Sundays")

        event.listen(engine, "checkout", refuse)
        with pytest.raises(BackendError, match="no connections on Sundays"):
            task(store).get("n")
        event.remove(engine, "checkout", refuse)
        assert task(store).get("n") == 1
    engine.dispose()


# ----------------------------------------------------------------------------------------------------- MySQL

NUMBERS: dict[int, type[Exception]] = {
    1021: StoreFullError,
    1114: StoreFullError,
    1037: TransientError,
    1040: TransientError,
    1044: ConfigurationError,
    1045: ConfigurationError,
    1046: ConfigurationError,
    1047: TransientError,
    1049: ConfigurationError,
    1053: TransientError,
    1054: StoreCorruptedError,
    1062: TransientError,
    1064: BackendError,
    1142: ConfigurationError,
    1143: ConfigurationError,
    1146: StoreCorruptedError,
    1153: ConfigurationError,
    1158: TransientError,
    1194: StoreCorruptedError,
    1203: TransientError,
    1205: TransientError,
    1213: TransientError,
    1226: TransientError,
    1227: ConfigurationError,
    1290: StoreReadOnlyError,
    1317: TransientError,
    1366: BackendError,
    1406: BackendError,
    1665: ConfigurationError,
    1698: ConfigurationError,
    1792: StoreReadOnlyError,
    1836: StoreReadOnlyError,
    1927: TransientError,
    1969: TransientError,
    3024: TransientError,
    3101: TransientError,
    3169: TransientError,
    4031: TransientError,
}
CHANGING_TABLES = {1050, 1051, 1060, 1061, 1091}


def test_every_number_has_a_meaning(mysql_url: str) -> None:
    """Raised by the server itself, by a single statement and within a transaction; none leaves as the driver's."""
    database = open_mysql(mysql_url)
    numbers = {number for number in vars(pymysql.constants.ER).values() if isinstance(number, int)}
    assert len(numbers) > 400
    for number in sorted(numbers | set(NUMBERS)):
        statement = f"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'on purpose'"
        for run in (_alone, _within):
            with pytest.raises((KeepstateError, TransientError, AlreadyDoneError)) as caught:
                run(database, statement)
            kind = type(caught.value)
            if run is _within and number in CHANGING_TABLES:
                assert kind is AlreadyDoneError
            else:
                assert kind is NUMBERS.get(number, kind), number
            assert "on purpose" in str(caught.value)
            assert isinstance(caught.value.__cause__, pymysql.Error)
            if isinstance(caught.value, BackendError):
                assert caught.value.address == database.address
    assert database.query("SELECT 1", {}) == [(1,)]
    database.close()


@pytest.mark.parametrize(
    ("error", "kind", "at_once"),
    [
        (pymysql.OperationalError(2006, "MySQL server has gone away"), TransientError, True),
        (
            pymysql.OperationalError(2013, "Lost connection to MySQL server during query"),
            TransientError,
            True,
        ),
        (pymysql.InterfaceError(0, ""), TransientError, True),
        (pymysql.OperationalError(2003, "Can't connect to MySQL server on 'h'"), TransientError, False),
        (pymysql.OperationalError(2020, "Got packet bigger than"), ConfigurationError, False),
        (pymysql.ProgrammingError("closed"), TransientError, True),
    ],
    ids=lambda value: str(value.args[0]) if isinstance(value, Exception) else "",
)
def test_what_the_client_says_has_a_meaning(
    mysql_url: str, error: pymysql.Error, kind: type[Exception], at_once: bool
) -> None:
    """A connection that is lost is replaced at once."""
    database = open_mysql(mysql_url)
    with pytest.raises(kind) as caught, database.transaction():
        raise error
    assert getattr(caught.value, "at_once", False) is at_once
    assert database.query("SELECT 1", {}) == [(1,)]
    database.close()


@pytest.mark.parametrize("verb", sorted(VERBS)[:4])
def test_whatever_statement_fails_in_mysql(mysql_url: str, verb: str) -> None:
    """The error is of the tree, nothing of the write is kept, and the next one works."""
    _fail_each_statement(mysql_url, verb, pymysql.Error)


def test_a_mysql_database_is_told_its_driver_s_text_in_one_line(mysql_url: str) -> None:
    """With the number by which it is looked up."""
    database: MysqlDatabase = open_mysql(mysql_url)
    with pytest.raises(BackendError, match=r"failed: You have an error in your SQL syntax.*\(error 1064\)$"):
        database.query("SELECT nonsense FROM\n\n nowhere (", {})
    database.close()
