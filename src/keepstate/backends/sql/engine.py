"""PostgreSQL through SQLAlchemy's engine and pool, 1.4 and 2. An engine that was handed in stays the caller's.

The pool is SQLAlchemy's; statements go to the driver's own cursors, as what lies between would take longer than the
server does to store an entry.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from keepstate.allowance import time_left
from keepstate.backends.sql import forking
from keepstate.backends.sql.database import Params, RepeatedRequestError, Row, TransientError
from keepstate.backends.sql.dialects import POSTGRESQL, Dialect
from keepstate.backends.sql.turnstile import Turnstile
from keepstate.errors import (
    BackendError,
    ConfigurationError,
    StoreCorruptedError,
    StoreFullError,
    StoreReadOnlyError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

try:
    import sqlalchemy
    from sqlalchemy.engine import Engine, make_url
    from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError
    from sqlalchemy.exc import TimeoutError as PoolTimeoutError
except ImportError as exc:  # pragma: no cover - the bare install's test runs this in a process of its own
    raise ConfigurationError(
        'a PostgreSQL store needs SQLAlchemy and a driver: pip install "keepstate[postgres]"',
        extra="postgres",
    ) from exc

_DIALECTS = {"postgresql": POSTGRESQL}
_NAMED = re.compile(r":(\w+)")


def _by_name(sql: str, params: Params) -> tuple[bytes, Params]:
    """Return a statement and its parameters as every driver takes them."""
    return _named(sql), params


def _by_number(sql: str, params: Params) -> tuple[bytes, tuple[Any, ...]]:
    """Return them as PostgreSQL does, which leaves nothing to do for psycopg."""
    text, pick = _numbered(sql)
    return text, pick(params)


# In bytes, which know their hash: psycopg would encode a text, and hash what comes out, at each execution.


@lru_cache(maxsize=256)
def _named(sql: str) -> bytes:
    """Turn ``:name`` into ``%(name)s``; no statement has a colon or a percent sign otherwise."""
    return _NAMED.sub(r"%(\1)s", sql).encode()


@lru_cache(maxsize=256)
def _numbered(sql: str) -> tuple[bytes, Callable[[Params], tuple[Any, ...]]]:
    """Turn ``:name`` into ``$1``, and say how to pick the parameters in that order."""
    names = list(dict.fromkeys(_NAMED.findall(sql)))
    text = _NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", sql).encode()
    # with a single name, `itemgetter` would return what it found bare
    return text, itemgetter(*names) if len(names) > 1 else lambda params: tuple(
        params[name] for name in names
    )


class EngineDatabase:
    """A database behind a SQLAlchemy engine."""

    def __init__(self, engine: Engine, *, owned: bool, timeout: float = 30.0) -> None:
        """Use ``engine``; ``owned`` means that closing closes it. ``timeout`` bounds the wait for a lock, in seconds."""
        dialect = _DIALECTS.get(engine.dialect.name)
        if dialect is None:
            raise ConfigurationError(
                f"keepstate has no dialect for {engine.dialect.name!r} databases; use SQLite or PostgreSQL"
            )
        if engine.dialect.paramstyle != "pyformat":
            raise ConfigurationError(
                f"keepstate does not work with the driver {engine.dialect.driver!r}; make the engine with "
                "postgresql+psycopg:// or postgresql+psycopg2://"
            )
        self.dialect: Dialect = dialect
        self.address = _address(engine)
        self._engine = engine
        self._owned = owned
        self._checked = False
        self._timeout = timeout
        # Nobody else uses an engine of our own: its pool makes the connections, and gets them back at the end. In between
        # they wait here, as many at most as the turnstile lets in, because checking them in and out takes its time.
        self._turnstile = Turnstile(_POOL_SIZE) if owned else None
        self._warm: list[Any] = []
        # psycopg 3.2 or newer has one
        self._raw_cursor: Callable[[Any], Any] | None = getattr(engine.dialect.dbapi, "RawCursor", None)
        self._say: Callable[[str, Params], tuple[bytes, Any]] = _by_number if self._raw_cursor else _by_name
        self._driver_error: type[Exception] = engine.dialect.dbapi.Error  # type: ignore[union-attr]
        milliseconds = max(1, int(timeout * 1000))
        # In one message, and said anew each time: a pooler may hand the connection to somebody else in between. The
        # isolation is spelled out because an engine handed in may have another default, or none (AUTOCOMMIT). A client
        # that stops in the middle would keep its scope locked, so the server ends its transaction.
        self._begin = (
            "BEGIN ISOLATION LEVEL READ COMMITTED; "
            f"SET LOCAL lock_timeout = {milliseconds}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {max(milliseconds, 1000)}"
        )
        forking.carry(self)

    # ------------------------------------------------------------------------------------------ statements

    def query(self, sql: str, params: Params) -> list[Row]:
        """Run one statement by itself, which needs no BEGIN and COMMIT around it, and return its rows."""
        lent = self._lend()
        try:
            cursor = self._cursor(lent)
            cursor.execute(*self._say(sql, params))
            rows: list[Row] = cursor.fetchall()
        except self._driver_error as exc:
            raise self._failed(lent, exc) from exc
        except BaseException as exc:
            self._failed(lent, exc)
            raise
        self._take_back(lent)
        return rows

    @contextmanager
    def transaction(self) -> Iterator[EngineTransaction]:
        """Open a transaction; it commits on leaving."""
        lent = self._lend()
        try:
            cursor = self._cursor(lent)
            cursor.execute(self._begin)
            try:
                yield EngineTransaction(cursor, self._say)
                cursor.execute("COMMIT")
            except Exception:
                # where the connection is lost, so is the transaction
                if not _is_lost(lent):
                    cursor.execute("ROLLBACK")
                raise
        except self._driver_error as exc:
            raise self._failed(lent, exc) from exc
        except BaseException as exc:
            self._failed(lent, exc)
            raise
        self._take_back(lent)

    # ----------------------------------------------------------------------------------------- connections

    def _lend(self) -> Any:
        """Return a connection of the pool in autocommit mode."""
        turnstile = self._turnstile
        if turnstile and not turnstile.enter(time_left(self._timeout)):
            raise TransientError("all connections of the pool are in use")
        try:
            return self._warm.pop()
        except IndexError:
            pass
        try:
            lent: Any = self._engine.raw_connection()
        except BaseException as exc:
            if turnstile:
                turnstile.leave()
            if isinstance(exc, (SQLAlchemyError, self._driver_error, OSError)):
                cause = _driver_exception(exc)
                raise self._translate_refusal(cause) from cause
            raise
        try:
            if not self._owned and not lent.dbapi_connection.autocommit:
                # what a caller's event handler has set on this connection counts for us too
                lent.commit()
                lent.dbapi_connection.autocommit = True
                lent.info[_WAS_MANUAL] = True
            if not self._checked:
                self._check(lent)
        except self._driver_error as exc:
            raise self._failed(lent, exc) from exc
        except BaseException as exc:
            self._failed(lent, exc)
            raise
        return lent

    def _cursor(self, lent: Any) -> Any:
        """Return a connection's cursor. Each has one, as making one takes as long as a small statement."""
        info = lent.info
        cursor = info.get(_CURSOR)
        if cursor is None:
            connection = lent.dbapi_connection
            raw = self._raw_cursor
            cursor = info[_CURSOR] = raw(connection) if raw else connection.cursor()
        return cursor

    def _take_back(self, lent: Any) -> None:
        """Keep a connection for the next request, or return one of a caller's pool as it came."""
        if self._turnstile:
            self._warm.append(lent)
            self._turnstile.leave()
            return
        if lent.info.pop(_WAS_MANUAL, False):
            lent.dbapi_connection.autocommit = False
        lent.close()

    def _failed(self, lent: Any, exc: BaseException) -> BaseException:
        """Keep a connection only if it is sound, and return what its error means here."""
        lost = _is_lost(lent)
        if lost or not isinstance(exc, Exception):
            # gone, or interrupted in the middle of who knows what
            lent.invalidate(exc)
            if self._turnstile:
                self._turnstile.leave()
        else:
            self._take_back(lent)
        return self._translate(exc, lost=lost) if isinstance(exc, self._driver_error) else exc

    def _check(self, lent: Any) -> None:
        info = lent.dbapi_connection.info
        for name in ("server_encoding", "client_encoding"):
            encoding = info.parameter_status(name)
            if encoding != "UTF8":
                raise ConfigurationError(
                    f"the store {self.address} has the {name} {encoding}, which can't hold every key and value; "
                    "use a database made WITH ENCODING 'UTF8' and a client_encoding of utf8",
                    address=self.address,
                )
        self._checked = True

    def close(self) -> None:
        """Close the pool, if the engine was made here."""
        if self._owned:
            while self._warm:
                self._warm.pop().close()
            self._engine.dispose()

    def before_fork(self, *, quiet: bool) -> None:
        """Do nothing: connections to a server are safe as long as the child leaves them alone."""

    def after_fork_in_child(self) -> None:
        """Leave the parent's connections alone: two processes on one would talk across each other."""
        _left_behind.append((self._engine.pool, self._warm))
        self._warm = []
        self._engine.dispose(close=False)
        self._turnstile = Turnstile(_POOL_SIZE) if self._owned else None

    # ---------------------------------------------------------------------------------------------- errors

    def _translate_refusal(self, cause: Exception) -> Exception:
        """Return what it means that there is no connection. Drivers give no SQLSTATE here, only the server's words."""
        if isinstance(cause, PoolTimeoutError):
            return TransientError("all connections of the pool are in use")
        if not isinstance(cause, self._driver_error):
            return self._other(_text(cause))
        text = _text(cause)
        if type(cause).__name__ == "ProgrammingError" or any(words in text for words in _REFUSALS):
            return ConfigurationError(
                f"the store {self.address} can't be opened with this URL ({text}); check user, password, database "
                "and options",
                address=self.address,
            )
        return TransientError(text)

    def _translate(self, exc: Exception, *, lost: bool) -> Exception:
        """Return what an error means here, by its SQLSTATE (PostgreSQL manual, appendix A)."""
        text = _text(exc)
        state: str | None = getattr(exc, "sqlstate", None) or getattr(exc, "pgcode", None)
        if state is None:
            return TransientError(text, at_once=True) if lost else self._other(text)
        if state == "23502" and getattr(exc.diag, "column_name", None) == "number":  # type: ignore[attr-defined]
            return RepeatedRequestError()
        for prefix, kind, advice in _MEANINGS:
            if state.startswith(prefix):
                return kind(f"the store {self.address} {advice} ({text})", address=self.address)
        passing = lost or state.startswith(_PASSING)
        return TransientError(text, at_once=lost) if passing else self._other(text)

    def _other(self, text: str) -> BackendError:
        return BackendError(f"the database of {self.address} failed: {text}", address=self.address)


# the first that fits counts
_MEANINGS: tuple[tuple[str, type[BackendError | ConfigurationError], str], ...] = (
    (
        "53100",
        StoreFullError,
        "has no room left on its disk; nothing was half-written, free some room and go on",
    ),
    ("57P04", ConfigurationError, "was dropped while it was in use; create it again"),
    ("25006", StoreReadOnlyError, "is read-only now, perhaps after a failover; name the primary server"),
    ("42501", ConfigurationError, "does not let this user in; grant it the rights to its tables"),
    ("28", ConfigurationError, "refuses the user or password of its URL"),
    ("3D000", ConfigurationError, "names a database that does not exist; create it first"),
    ("3F000", ConfigurationError, "has no schema to make tables in; check the user's search_path"),
    ("42P01", StoreCorruptedError, "lacks a table of keepstate; run `keepstate db upgrade`"),
    ("42703", StoreCorruptedError, "has tables that differ from keepstate's; run `keepstate db check`"),
    ("XX001", StoreCorruptedError, "is damaged; restore it from a backup"),
    ("XX002", StoreCorruptedError, "has a damaged index; let an administrator run REINDEX"),
)

# trying again may work
_PASSING = (
    "08",  # connection exceptions
    "23505",  # two processes made the same thing at once
    "25P03",  # idle in a transaction for too long
    "25P04",  # a transaction took too long
    "40",  # serialization failure, deadlock, completion unknown
    "53",  # too many connections, out of memory
    "55P03",  # lock not available
    "57014",  # cancelled: by a statement_timeout, or a person
    "57P",  # the server shuts down, crashed, or is starting
)

# what servers and libpq say, in English, when trying again will not help
_REFUSALS = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied",
    "is not permitted to log in",
    "is not currently accepting connections",
    "does not support SSL",
    "certificate verify failed",
    "invalid ",
)


def _driver_exception(exc: Exception) -> Exception:
    """Return the driver's exception inside SQLAlchemy's, whose text repeats the statement's parameters."""
    inner = exc.orig if isinstance(exc, DBAPIError) else None
    return inner if isinstance(inner, Exception) else exc


def _text(exc: Exception) -> str:
    return " ".join(str(exc).split())


def _is_lost(lent: Any) -> bool:
    return bool(lent.dbapi_connection.closed)


# what we keep in a pooled connection's `info`, which goes when the connection does
_CURSOR = "keepstate_cursor"
_WAS_MANUAL = "keepstate_was_manual"


# kept, so that a forked child never closes what its parent uses
_left_behind: list[Any] = []


class EngineTransaction:
    """Statements between BEGIN and COMMIT."""

    def __init__(self, cursor: Any, say: Callable[[str, Params], tuple[bytes, Any]]) -> None:
        self._cursor = cursor
        self._say = say

    def all(self, sql: str, params: Params) -> list[Row]:
        """Return all rows."""
        self._cursor.execute(*self._say(sql, params))
        return self._cursor.fetchall()  # type: ignore[no-any-return]

    def one(self, sql: str, params: Params) -> Row | None:
        """Return the first row, if any."""
        self._cursor.execute(*self._say(sql, params))
        return self._cursor.fetchone()  # type: ignore[no-any-return]

    def run(self, sql: str, params: Params) -> int:
        """Return how many rows changed."""
        self._cursor.execute(*self._say(sql, params))
        return int(self._cursor.rowcount)


def make_engine(url: str, *, timeout: float = 30.0) -> Engine:
    """Make the engine for a ``postgresql://`` URL, with psycopg 3, or psycopg2 where SQLAlchemy is 1.4.

    ``timeout``: seconds after which a server that does not answer counts as gone.
    """
    try:
        parsed = make_url(url)
    except Exception:  # noqa: BLE001 - whatever it is, its text may repeat the URL, and with it the password
        parsed = None
    if parsed is None:
        raise ConfigurationError(
            "the store's URL can't be read as postgresql://USER:PASSWORD@HOST:PORT/DATABASE; "
            "special characters in the password need percent-encoding"
        )
    if parsed.drivername in {"postgresql", "postgres"}:
        driver = "psycopg2" if sqlalchemy.__version__.startswith("1.") else "psycopg"
        parsed = parsed.set(drivername=f"postgresql+{driver}")
    seconds = max(2, min(10, int(timeout)))
    options: dict[str, object] = {
        "connect_timeout": seconds,
        "tcp_user_timeout": seconds * 1000,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "client_encoding": "utf8",
        "fallback_application_name": "keepstate",
    }
    try:
        return sqlalchemy.create_engine(
            parsed,
            isolation_level="AUTOCOMMIT",
            # every connection is given back with nothing open
            pool_reset_on_return=None,
            # a pool that closes what exceeds it would connect anew for every other request of a busy server
            pool_size=_POOL_SIZE,
            max_overflow=0,
            pool_timeout=max(timeout, 0.1),
            # few connections that know the statements rather than many that don't
            pool_use_lifo=True,
            connect_args={name: value for name, value in options.items() if name not in parsed.query},
        )
    except (ImportError, NoSuchModuleError) as exc:
        raise ConfigurationError(
            f'the driver for {parsed.drivername} is not installed: pip install "keepstate[postgres]"',
            extra="postgres",
        ) from exc


_POOL_SIZE = 16


def _address(engine: Engine) -> str:
    url = engine.url.set(drivername=engine.dialect.name, query={})
    return str(url.render_as_string(hide_password=True))
