"""A database behind SQLAlchemy's engine and pool, 1.4 and 2. An engine that was handed in stays the caller's.

The pool is SQLAlchemy's; statements go to the driver's own cursors, as what lies between would take longer than the
server does to store an entry. `postgresql` and `mysql` say how their servers and drivers want to be spoken to.
"""

from __future__ import annotations

import math
import re
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import sqlalchemy
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from keepstate.allowance import time_left
from keepstate.backends.sql import forking
from keepstate.backends.sql.database import Params, Row, TransientError
from keepstate.backends.sql.turnstile import Turnstile
from keepstate.errors import BackendError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy.engine import URL

    from keepstate.backends.sql.dialects import Dialect

NAMED = re.compile(r":(\w+)")
"""A parameter in a statement; none has a colon or a percent sign otherwise."""

_UNKNOWN_OPTION = re.compile(
    r"""unexpected keyword argument '(\w+)'|invalid connection option "(\w+)"|'(\w+)' is an invalid"""
)
"""What drivers say of an option of the URL that they don't know."""


Meaning = tuple[type[BackendError | ConfigurationError], str]


def picking(names: Sequence[str]) -> Callable[[Params], tuple[Any, ...]]:
    """Return what picks parameters in the order of their names."""
    if len(names) > 1:
        return itemgetter(*names)
    # with a single name, `itemgetter` would return what it found bare
    return lambda params: tuple(params[name] for name in names)


class EngineTransaction:
    """Statements between BEGIN and COMMIT."""

    def __init__(self, cursor: Any, say: Callable[[str, Params], tuple[Any, Any]]) -> None:
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

    def run_many(self, sql: str, rows: Sequence[Params]) -> int:
        """Run a statement for each; return how many rows changed."""
        return sum(self.run(sql, params) for params in rows)


class EngineDatabase(ABC):
    """A database behind a SQLAlchemy engine."""

    dialect: Dialect
    _say: Callable[[str, Params], tuple[Any, Any]]
    """Return a statement and its parameters as the driver takes them."""
    _transaction: ClassVar[type[EngineTransaction]] = EngineTransaction
    _connection_errors: ClassVar[tuple[type[Exception], ...]] = (SQLAlchemyError, OSError)
    """What making a connection may raise beside the driver's errors."""

    def __init__(self, engine: Engine, *, owned: bool, timeout: float = 30.0) -> None:
        """Use ``engine``; ``owned`` means that closing closes it. ``timeout`` bounds the wait for a lock, in seconds."""
        self.address = _address(engine)
        self._engine = engine
        self._owned = owned
        self._timeout = timeout
        # Nobody else uses an engine of our own: its pool makes the connections, and gets them back at the end. In between
        # they wait here, as many at most as the turnstile lets in, because checking them in and out takes its time.
        self._turnstile = Turnstile(_POOL_SIZE) if owned else None
        self._warm: list[Any] = []
        # seconds after which one that nobody used is no longer trusted, as the server may have ended it
        self._most_idle = math.inf
        self._driver_error: type[Exception] = engine.dialect.dbapi.Error  # type: ignore[union-attr]
        forking.carry(self)

    # ------------------------------------------------------------------------- what servers and drivers differ in

    @abstractmethod
    def _welcome(self, lent: Any) -> None:
        """Prepare a connection that the pool has handed out; raise where it can't be used."""

    @abstractmethod
    def _begin(self, lent: Any, cursor: Any) -> None:
        """Begin a transaction that sees what is committed, statement by statement, and waits for no lock for ever."""

    @abstractmethod
    def _new_cursor(self, lent: Any) -> Any: ...

    @abstractmethod
    def _is_manual(self, lent: Any) -> bool:
        """Whether the connection begins transactions by itself, unasked."""

    @abstractmethod
    def _set_manual(self, lent: Any, manual: bool) -> None: ...  # noqa: FBT001 - as drivers have it

    @abstractmethod
    def _is_lost(self, lent: Any, exc: BaseException) -> bool: ...

    @abstractmethod
    def _is_refusal(self, exc: Exception) -> bool:
        """Whether there is no connection because of something in the URL: trying again would not help."""

    @staticmethod
    @abstractmethod
    def _text(exc: Exception) -> str:
        """Return what an error says, in one line."""

    @abstractmethod
    def _translate(self, exc: Exception, *, lost: bool) -> Exception:
        """Return what an error of the driver means here."""

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
            self._begin(lent, cursor)
            try:
                yield self._transaction(cursor, self._say)
                cursor.execute("COMMIT")
            except Exception as exc:
                # where the connection is lost, so is the transaction
                if not self._is_lost(lent, exc):
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
        warm = self._warm_one()
        if warm is not None:
            return warm
        try:
            lent: Any = self._engine.raw_connection()
        except BaseException as exc:
            if turnstile:
                turnstile.leave()
            if isinstance(exc, Exception) and isinstance(exc, (self._driver_error, *self._connection_errors)):
                cause = _driver_exception(exc)
                raise self._translate_refusal(cause) from cause
            raise
        try:
            if not self._owned and self._is_manual(lent):
                # what a caller's event handler has set on this connection counts for us too
                lent.commit()
                self._set_manual(lent, False)  # noqa: FBT003
                lent.info[_WAS_MANUAL] = True
            self._welcome(lent)
        except BaseException as exc:
            # half prepared, it must not be lent to anybody
            lost = self._is_lost(lent, exc)
            self._discard(lent, exc)
            if isinstance(exc, self._driver_error):
                raise self._translate(exc, lost=lost) from exc
            raise
        return lent

    def _warm_one(self) -> Any | None:
        """Return a connection that waits here, if there is one that was used lately."""
        while True:
            try:
                lent = self._warm.pop()
            except IndexError:
                return None
            if time.monotonic() - lent.info[_USED_AT] < self._most_idle:
                return lent
            lent.invalidate()

    def _cursor(self, lent: Any) -> Any:
        """Return a connection's cursor. Each has one, as making one takes as long as a small statement."""
        info = lent.info
        cursor = info.get(_CURSOR)
        if cursor is None:
            cursor = info[_CURSOR] = self._new_cursor(lent)
        return cursor

    def _take_back(self, lent: Any) -> None:
        """Keep a connection for the next request, or return one of a caller's pool as it came."""
        if self._turnstile:
            lent.info[_USED_AT] = time.monotonic()
            self._warm.append(lent)
            self._turnstile.leave()
            return
        if lent.info.pop(_WAS_MANUAL, False):
            self._set_manual(lent, True)  # noqa: FBT003
        lent.close()

    def _failed(self, lent: Any, exc: BaseException) -> BaseException:
        """Keep a connection only if it is sound, and return what its error means here."""
        lost = self._is_lost(lent, exc)
        if lost or not isinstance(exc, Exception):
            # gone, or interrupted in the middle of who knows what
            self._discard(lent, exc)
        else:
            self._take_back(lent)
        return self._translate(exc, lost=lost) if isinstance(exc, self._driver_error) else exc

    def _discard(self, lent: Any, exc: BaseException) -> None:
        lent.invalidate(exc)
        if self._turnstile:
            self._turnstile.leave()

    def close(self) -> None:
        """Close the pool, if the engine was made here."""
        if self._owned:
            while self._warm:
                self._warm.pop().close()
            self._engine.dispose()

    def before_fork(self, *, quiet: bool) -> None:  # noqa: B027 - a fork needs nothing of us
        """Do nothing: connections to a server are safe as long as the child leaves them alone."""

    def after_fork_in_child(self) -> None:
        """Leave the parent's connections alone: two processes on one would talk across each other."""
        _left_behind.append((self._engine.pool, self._warm))
        self._warm = []
        self._engine.dispose(close=False)
        self._turnstile = Turnstile(_POOL_SIZE) if self._owned else None

    # ---------------------------------------------------------------------------------------------- errors

    def _translate_refusal(self, cause: Exception) -> Exception:
        """Return what it means that there is no connection."""
        text = self._text(cause)
        if isinstance(cause, PoolTimeoutError):
            return TransientError("all connections of the pool are in use")
        if unknown := _UNKNOWN_OPTION.search(text):
            return ConfigurationError(
                f"the store {self.address} can't be opened with this URL: its driver knows no option {unknown[unknown.lastindex or 0]!r}",
                address=self.address,
            )
        if self._is_refusal(cause):
            return ConfigurationError(
                f"the store {self.address} can't be opened with this URL ({text}); check user, password, database "
                "and options",
                address=self.address,
            )
        return TransientError(text) if isinstance(cause, self._driver_error) else self._other(text)

    def _meant(self, meaning: Meaning, text: str) -> Exception:
        kind, advice = meaning
        return kind(f"the store {self.address} {advice} ({text})", address=self.address)

    def _other(self, text: str) -> BackendError:
        return BackendError(f"the database of {self.address} failed: {text}", address=self.address)


def _driver_exception(exc: Exception) -> Exception:
    """Return the driver's exception inside SQLAlchemy's, whose text repeats the statement's parameters."""
    inner = exc.orig if isinstance(exc, DBAPIError) else None
    return inner if isinstance(inner, Exception) else exc


def text_of(exc: Exception) -> str:
    """Return what an error says, in one line."""
    return " ".join(str(exc).split())


# what we keep in a pooled connection's `info`, which goes when the connection does
_CURSOR = "keepstate_cursor"
_WAS_MANUAL = "keepstate_was_manual"
_USED_AT = "keepstate_used_at"


# kept, so that a forked child never closes what its parent uses
_left_behind: list[Any] = []


def read_url(url: str, example: str) -> URL:
    """Take a store's URL apart. Raises ``ConfigurationError``, which does not repeat it."""
    try:
        parsed = make_url(url)
    except Exception:  # noqa: BLE001 - whatever it is, its text may repeat the URL, and with it the password
        parsed = None
    # with a second one, part of the password would be taken for the host or the database, and shown
    if parsed is None or url.count("@") > 1 or "@" in f"{parsed.host}{parsed.database}":
        raise ConfigurationError(
            f"the store's URL can't be read as {example}; characters like @ : / ? in user, password and options need "
            "percent-encoding: @ is written %40, / is %2F"
        )
    return parsed


def pooled(
    url: URL, options: dict[str, object], *, timeout: float, extra: str, drivers: Mapping[str, str]
) -> Engine:
    """Make an engine of our own: with a pool of a fixed size, and ``options`` that the URL may overrule.

    ``drivers``: those that keepstate works with, and what to install for each.
    """
    family, _, driver = url.drivername.partition("+")
    if driver not in drivers:
        known = " or ".join(f"{family}+{name}://" for name in drivers)
        raise ConfigurationError(
            f"keepstate does not work with the driver {driver!r}; write {family}:// (or {known}) in the URL"
        )
    try:
        return sqlalchemy.create_engine(
            url,
            isolation_level="AUTOCOMMIT",
            # every connection is given back with nothing open
            pool_reset_on_return=None,
            # a pool that closes what exceeds it would connect anew for every other request of a busy server
            pool_size=_POOL_SIZE,
            max_overflow=0,
            pool_timeout=max(timeout, 0.1),
            # few connections that know the statements rather than many that don't
            pool_use_lifo=True,
            connect_args={name: value for name, value in options.items() if name not in url.query},
        )
    except (ImportError, NoSuchModuleError) as exc:
        raise ConfigurationError(
            f"the driver for {url.drivername} is not installed: pip install {drivers[driver]}", extra=extra
        ) from exc


_POOL_SIZE = 16


def _address(engine: Engine) -> str:
    url = engine.url.set(drivername=engine.dialect.name, query={})
    return str(url.render_as_string(hide_password=True))
