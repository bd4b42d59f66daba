"""PostgreSQL through SQLAlchemy's engine and pool, 1.4 and 2. An engine that was handed in stays the caller's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from keepstate.backends.sql.database import Params, RepeatedRequestError, Row, TransientError
from keepstate.backends.sql.dialects import POSTGRESQL, Dialect
from keepstate.errors import (
    BackendError,
    ConfigurationError,
    StoreCorruptedError,
    StoreFullError,
    StoreReadOnlyError,
)

try:
    import sqlalchemy
    from sqlalchemy.engine import Connection, Engine, make_url
    from sqlalchemy.exc import DBAPIError, NoSuchModuleError
    from sqlalchemy.exc import TimeoutError as PoolTimeoutError
except ImportError as exc:  # pragma: no cover - the bare install's test runs this in a process of its own
    raise ConfigurationError(
        'a PostgreSQL store needs SQLAlchemy and a driver: pip install "keepstate[postgres]"',
        extra="postgres",
    ) from exc

_DIALECTS = {"postgresql": POSTGRESQL}
_NAMED = re.compile(r":(\w+)")


@lru_cache(maxsize=256)
def _driver_style(sql: str) -> str:
    """Turn ``:name`` into the drivers' ``%(name)s``; no statement has a colon or a percent sign otherwise."""
    return _NAMED.sub(r"%(\1)s", sql)


class EngineDatabase:
    """A database behind a SQLAlchemy engine."""

    def __init__(self, engine: Engine, *, owned: bool) -> None:
        dialect = _DIALECTS.get(engine.dialect.name)
        if dialect is None:
            raise ConfigurationError(
                f"keepstate has no dialect for {engine.dialect.name!r} databases; use SQLite or PostgreSQL"
            )
        self.dialect: Dialect = dialect
        self.address = _address(engine)
        self._engine = engine
        self._owned = owned
        # one statement by itself needs no BEGIN and COMMIT around it: one round trip instead of three
        self._single = engine.execution_options(isolation_level="AUTOCOMMIT")

    def query(self, sql: str, params: Params) -> list[Row]:
        """Run one statement by itself and return its rows."""
        with self._translated(), self._single.connect() as connection:
            return _execute(connection, sql, params).fetchall()  # type: ignore[no-any-return]

    @contextmanager
    def transaction(self) -> Iterator[EngineTransaction]:
        """Open a transaction; it commits on leaving."""
        with self._translated(), self._engine.begin() as connection:
            yield EngineTransaction(connection)

    def close(self) -> None:
        """Close the pool, if the engine was made here."""
        if self._owned:
            self._engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as exc:
            raise self._translate(exc) from exc
        except PoolTimeoutError as exc:
            raise TransientError("all connections of the pool are in use") from exc

    def _translate(self, exc: DBAPIError) -> Exception:
        """Return what an error means here, by its SQLSTATE (PostgreSQL manual, appendix A)."""
        cause = exc.orig
        text = " ".join(str(cause).split())
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if state is None:
            # no answer from a server at all: refused, cut off, or a name that can't be resolved
            return (
                TransientError(text)
                if exc.connection_invalidated or _is_connection_trouble(cause)
                else self._other(text)
            )
        if state == "23502" and "number" in text:
            return RepeatedRequestError()
        for prefix, kind, advice in _MEANINGS:
            if state.startswith(prefix):
                if kind is TransientError:
                    return TransientError(text)
                return kind(f"the store {self.address} {advice} ({text})", address=self.address)
        return self._other(text)

    def _other(self, text: str) -> BackendError:
        return BackendError(f"the database of {self.address} failed: {text}", address=self.address)


_MEANINGS: tuple[tuple[str, type[Exception], str], ...] = (
    ("08", TransientError, ""),  # connection exceptions
    ("40001", TransientError, ""),  # serialization failure
    ("40P01", TransientError, ""),  # deadlock detected
    ("53300", TransientError, ""),  # too many connections
    ("55P03", TransientError, ""),  # lock not available
    ("57P", TransientError, ""),  # the server shuts down, crashed, or is starting
    (
        "53100",
        StoreFullError,
        "has no room left on its disk; nothing was half-written, free some room and go on",
    ),
    ("25006", StoreReadOnlyError, "is read-only now, perhaps after a failover; name the primary server"),
    ("42501", ConfigurationError, "does not let this user in; grant it the rights to its tables"),
    ("28", ConfigurationError, "refuses the user or password of its URL"),
    ("3D000", ConfigurationError, "names a database that does not exist; create it first"),
    ("42P01", StoreCorruptedError, "lacks a table of keepstate; run `keepstate db upgrade`"),
    ("42703", StoreCorruptedError, "has tables that differ from keepstate's; run `keepstate db check`"),
)


def _is_connection_trouble(cause: BaseException | None) -> bool:
    return type(cause).__name__ in {
        "OperationalError",
        "InterfaceError",
        "ConnectionTimeout",
        "InternalError",
    }


class EngineTransaction:
    """Statements between BEGIN and COMMIT."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def all(self, sql: str, params: Params) -> list[Row]:
        """Return all rows."""
        return _execute(self._connection, sql, params).fetchall()  # type: ignore[no-any-return]

    def one(self, sql: str, params: Params) -> Row | None:
        """Return the first row, if any."""
        return _execute(self._connection, sql, params).fetchone()  # type: ignore[no-any-return]

    def run(self, sql: str, params: Params) -> int:
        """Return how many rows changed."""
        return int(_execute(self._connection, sql, params).rowcount)


def _execute(connection: Connection, sql: str, params: Params) -> Any:  # noqa: ANN401 - differs between 1.4 and 2
    return connection.exec_driver_sql(_driver_style(sql), dict(params))


def make_engine(url: str) -> Engine:
    """Make the engine for a ``postgresql://`` URL, with psycopg 3, or psycopg2 where SQLAlchemy is 1.4."""
    try:
        parsed = make_url(url)
    except Exception as exc:
        # the text of the URL may hold a password, and SQLAlchemy's message repeats it
        raise ConfigurationError(
            "the store's URL can't be read as postgresql://USER:PASSWORD@HOST:PORT/DATABASE; "
            "special characters in the password need percent-encoding"
        ) from exc
    if parsed.drivername in {"postgresql", "postgres"}:
        driver = "psycopg2" if sqlalchemy.__version__.startswith("1.") else "psycopg"
        parsed = parsed.set(drivername=f"postgresql+{driver}")
    try:
        return sqlalchemy.create_engine(parsed)
    except (ImportError, NoSuchModuleError) as exc:
        raise ConfigurationError(
            f'the driver for {parsed.drivername} is not installed: pip install "keepstate[postgres]"',
            extra="postgres",
        ) from exc


def _address(engine: Engine) -> str:
    url = engine.url.set(drivername=engine.dialect.name, query={})
    return str(url.render_as_string(hide_password=True))
