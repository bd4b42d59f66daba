"""PostgreSQL, spoken to through psycopg 3, or psycopg2 where SQLAlchemy is 1.4."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from keepstate.backends.sql.database import Params, RepeatedRequestError, TransientError
from keepstate.backends.sql.dialects import POSTGRESQL
from keepstate.errors import ConfigurationError, StoreCorruptedError, StoreFullError, StoreReadOnlyError

try:
    import sqlalchemy

    from keepstate.backends.sql.engine import (
        NAMED,
        EngineDatabase,
        EngineTransaction,
        Meaning,
        picking,
        pooled,
        read_url,
        text_of,
    )
except ImportError as exc:  # pragma: no cover - the bare install's test runs this in a process of its own
    raise ConfigurationError(
        'a PostgreSQL store needs SQLAlchemy and a driver: pip install "keepstate[postgres]"',
        extra="postgres",
    ) from exc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy.engine import Engine


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
    """Turn ``:name`` into ``%(name)s``."""
    return NAMED.sub(r"%(\1)s", sql).encode()


@lru_cache(maxsize=256)
def _numbered(sql: str) -> tuple[bytes, Callable[[Params], tuple[Any, ...]]]:
    """Turn ``:name`` into ``$1``, and say how to pick the parameters in that order."""
    names = list(dict.fromkeys(NAMED.findall(sql)))
    text = NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", sql).encode()
    return text, picking(names)


class PostgresTransaction(EngineTransaction):
    """Statements between BEGIN and COMMIT."""

    def run_many(self, sql: str, rows: Sequence[Params]) -> int:
        """Run a statement for each; psycopg 3 sends them all before it waits, and counts the rows of all."""
        if self._say is not _by_number or not rows:
            return super().run_many(sql, rows)
        text, pick = _numbered(sql)
        self._cursor.executemany(text, [pick(params) for params in rows])
        return int(self._cursor.rowcount)


class PostgresDatabase(EngineDatabase):
    """A PostgreSQL database."""

    dialect = POSTGRESQL
    _text = staticmethod(text_of)
    _transaction = PostgresTransaction

    def __init__(self, engine: Engine, *, owned: bool, timeout: float = 30.0) -> None:
        """See `EngineDatabase`."""
        if engine.dialect.paramstyle != "pyformat":
            raise ConfigurationError(
                f"keepstate does not work with the driver {engine.dialect.driver!r}; make the engine with "
                "postgresql+psycopg:// or postgresql+psycopg2://"
            )
        # psycopg 3.2 or newer has one
        self._raw_cursor: Callable[[Any], Any] | None = getattr(engine.dialect.dbapi, "RawCursor", None)
        self._say = _by_number if self._raw_cursor else _by_name
        self._checked = self._behind_pooler = False
        milliseconds = max(1, int(timeout * 1000))
        # In one message, and said anew each time: a pooler may hand the connection to somebody else in between. The
        # isolation is spelled out because an engine handed in may have another default, or none (AUTOCOMMIT). A client
        # that stops in the middle would keep its scope locked, so the server ends its transaction.
        self._beginning = (
            "BEGIN ISOLATION LEVEL READ COMMITTED; "
            f"SET LOCAL lock_timeout = {milliseconds}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {max(milliseconds, 1000)}"
        )
        super().__init__(engine, owned=owned, timeout=timeout)

    def _begin(self, lent: Any, cursor: Any) -> None:
        del lent
        cursor.execute(self._beginning)

    def _new_cursor(self, lent: Any) -> Any:
        connection = lent.dbapi_connection
        raw = self._raw_cursor
        return raw(connection) if raw else connection.cursor()

    def _is_manual(self, lent: Any) -> bool:
        return not lent.dbapi_connection.autocommit

    def _set_manual(self, lent: Any, manual: bool) -> None:  # noqa: FBT001
        lent.dbapi_connection.autocommit = not manual

    def _is_lost(self, lent: Any, exc: BaseException) -> bool:
        del exc
        return bool(lent.dbapi_connection.closed)

    def _welcome(self, lent: Any) -> None:
        connection = lent.dbapi_connection
        if not self._checked:
            self._check(connection)
            self._behind_pooler = _is_behind_pooler(connection)
            self._checked = True
        if self._behind_pooler and hasattr(connection, "prepare_threshold"):
            if not self._owned:
                lent.info[_THRESHOLD] = connection.prepare_threshold
            connection.prepare_threshold = None

    def _take_back(self, lent: Any) -> None:
        if not self._owned and _THRESHOLD in lent.info:
            lent.dbapi_connection.prepare_threshold = lent.info.pop(_THRESHOLD)
        super()._take_back(lent)

    def _check(self, connection: Any) -> None:
        for name in ("server_encoding", "client_encoding"):
            encoding = connection.info.parameter_status(name)
            # a pooler repeats what the client wrote
            if encoding is None or encoding.upper() != "UTF8":
                raise ConfigurationError(
                    f"the store {self.address} has the {name} {encoding}, which can't hold every key and value; "
                    "use a database made WITH ENCODING 'UTF8' and a client_encoding of utf8",
                    address=self.address,
                )

    def _is_refusal(self, exc: Exception) -> bool:
        """Drivers give no SQLSTATE here, only the server's words."""
        if not isinstance(exc, self._driver_error):
            return False
        text = text_of(exc)
        return type(exc).__name__ == "ProgrammingError" or any(words in text for words in _REFUSALS)

    def _translate(self, exc: Exception, *, lost: bool) -> Exception:
        """Return what an error means here, by its SQLSTATE (PostgreSQL manual, appendix A)."""
        text = text_of(exc)
        state: str | None = getattr(exc, "sqlstate", None) or getattr(exc, "pgcode", None)
        if state is None:
            return TransientError(text, at_once=True) if lost else self._other(text)
        if state == "23502" and getattr(exc.diag, "column_name", None) == "number":  # type: ignore[attr-defined]
            return RepeatedRequestError()
        for prefix, meaning in _MEANINGS:
            if state.startswith(prefix):
                return self._meant(meaning, text)
        passing = lost or state.startswith(_PASSING)
        return TransientError(text, at_once=lost) if passing else self._other(text)


# what we keep in a pooled connection's `info`
_THRESHOLD = "keepstate_prepare_threshold"


def _is_behind_pooler(connection: Any) -> bool:
    """Whether something like PgBouncer stands before the server: it does not know the server process that will answer.

    One that hands each transaction to another connection must not be asked to prepare statements. The driver numbers them,
    and what has the same number there may be another client's, which would run instead: so this can't be left to find out
    by an error.
    """
    cursor = connection.cursor()
    cursor.execute("SELECT pg_backend_pid()")
    (pid,) = cursor.fetchone()
    cursor.close()
    return bool(pid != connection.info.backend_pid)


# the first that fits counts
_MEANINGS: tuple[tuple[str, Meaning], ...] = (
    (
        "53100",
        (StoreFullError, "has no room left on its disk; nothing was half-written, free some room and go on"),
    ),
    ("57P04", (ConfigurationError, "was dropped while it was in use; create it again")),
    ("25006", (StoreReadOnlyError, "is read-only now, perhaps after a failover; name the primary server")),
    ("42501", (ConfigurationError, "does not let this user in; grant it the rights to its tables")),
    ("28", (ConfigurationError, "refuses the user or password of its URL")),
    ("3D000", (ConfigurationError, "names a database that does not exist; create it first")),
    ("3F000", (ConfigurationError, "has no schema to make tables in; check the user's search_path")),
    ("42P01", (StoreCorruptedError, "lacks a table of keepstate; run `keepstate db upgrade`")),
    ("42703", (StoreCorruptedError, "has tables that differ from keepstate's; run `keepstate db check`")),
    ("XX001", (StoreCorruptedError, "is damaged; restore it from a backup")),
    ("XX002", (StoreCorruptedError, "has a damaged index; let an administrator run REINDEX")),
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

_DRIVERS = {
    "psycopg": '"keepstate[postgres]"',
    "psycopg2": "psycopg2-binary, or write postgresql:// for psycopg 3",
}

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


def open_url(url: str, *, timeout: float = 30.0) -> PostgresDatabase:
    """Open the database at a URL."""
    return PostgresDatabase(make_engine(url, timeout=timeout), owned=True, timeout=timeout)


def make_engine(url: str, *, timeout: float = 30.0) -> Engine:
    """Make the engine for a ``postgresql://`` URL, with psycopg 3, or psycopg2 where SQLAlchemy is 1.4.

    ``timeout``: seconds after which a server that does not answer counts as gone.
    """
    parsed = read_url(url, "postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
    driver = parsed.drivername.partition("+")[2] or (
        "psycopg2" if sqlalchemy.__version__.startswith("1.") else "psycopg"
    )
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
    return pooled(parsed, options, timeout=timeout, extra="postgres", drivers=_DRIVERS)
