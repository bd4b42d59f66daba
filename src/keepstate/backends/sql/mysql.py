"""MySQL and MariaDB, spoken to through PyMySQL, or mysqlclient where that is what is installed."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from keepstate.backends.sql.database import AlreadyDoneError, Params, Row, TransientError
from keepstate.backends.sql.dialects import MYSQL
from keepstate.errors import (
    ConfigurationError,
    StoreCorruptedError,
    StoreFullError,
    StoreReadOnlyError,
    ValueTooLargeError,
)

try:
    from sqlalchemy.exc import SQLAlchemyError

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
        'a MySQL or MariaDB store needs SQLAlchemy and a driver: pip install "keepstate[mysql]"',
        extra="mysql",
    ) from exc

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import Engine

_DRIVERS = {"pymysql": '"keepstate[mysql]"', "mysqldb": "mysqlclient, or write mysql:// for PyMySQL"}
_OLDEST_MYSQL = (8, 0)
_OLDEST_MARIADB = (10, 6)
_VERSION = re.compile(r"(?:5\.5\.5-)?(\d+)\.(\d+)")
# a value that does not fit its column is an error, never cut off
_MODE = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"
_SESSION = ("sql_mode", "innodb_lock_wait_timeout", "lock_wait_timeout")


@lru_cache(maxsize=256)
def _placed(sql: str) -> tuple[str, Callable[[Params], tuple[Any, ...]]]:
    """Return a statement as MySQL spells it, with a ``%s`` for each parameter, and say how to pick these in order.

    By name, the driver would write out every parameter that it is handed, used or not.
    """
    text = MYSQL.respelled(sql)
    names = NAMED.findall(text)
    return NAMED.sub("%s", text), picking(names)


def _read(row: Row) -> Row:
    """Return a row with texts: drivers return the bytes that binary columns hold."""
    return tuple([one.decode() if type(one) is bytes else one for one in row])


def _code(exc: BaseException) -> int | None:
    """Return the number of an error. Those of a connection that was closed before have 0, or none."""
    code = exc.args[0] if exc.args else None
    return code if isinstance(code, int) else None


def _said(exc: Exception) -> str:
    code = _code(exc)
    return text_of(exc) if code is None else " ".join(f"{exc.args[-1]} (error {code})".split())


class MysqlTransaction(EngineTransaction):
    """Statements between START TRANSACTION and COMMIT. One that changes tables commits by itself."""

    def all(self, sql: str, params: Params) -> list[Row]:
        """Return all rows."""
        return [_read(row) for row in super().all(sql, params)]

    def one(self, sql: str, params: Params) -> Row | None:
        """Return the first row, if any."""
        row = super().one(sql, params)
        return None if row is None else _read(row)

    def run(self, sql: str, params: Params) -> int:
        """Return how many rows changed."""
        try:
            return super().run(sql, params)
        except Exception as exc:
            if _code(exc) in _DONE_BEFORE:
                raise AlreadyDoneError(_said(exc)) from exc
            raise


class MysqlDatabase(EngineDatabase):
    """A MySQL or MariaDB database."""

    dialect = MYSQL
    _text = staticmethod(_said)
    _transaction = MysqlTransaction
    # PyMySQL raises these for options that it does not know, and for files and packages that it misses
    _connection_errors: ClassVar = (*EngineDatabase._connection_errors, RuntimeError, TypeError, ValueError)  # noqa: SLF001

    def __init__(self, engine: Engine, *, owned: bool, timeout: float = 30.0) -> None:
        """See `EngineDatabase`."""
        if engine.dialect.driver not in _DRIVERS:
            raise ConfigurationError(
                f"keepstate does not work with the driver {engine.dialect.driver!r}; make the engine with "
                "mysql+pymysql:// or mysql+mysqldb://"
            )
        self._seconds = max(1, math.ceil(timeout))
        self._ours: dict[str, object] = dict(
            zip(_SESSION, (_MODE, self._seconds, self._seconds), strict=True)
        )
        super().__init__(engine, owned=owned, timeout=timeout)

    # ------------------------------------------------------------------------------------------ statements

    def _say(self, sql: str, params: Params) -> tuple[str, tuple[Any, ...]]:
        text, pick = _placed(sql)
        values = pick(params)
        for one in values:
            if isinstance(one, str) and len(one) > self._surely_fits:
                self._demand_room(one)
        return text, values

    def query(self, sql: str, params: Params) -> list[Row]:
        """Run one statement by itself and return its rows."""
        return [_read(row) for row in super().query(sql, params)]

    def _demand_room(self, value: str) -> None:
        """Refuse what the server would answer by hanging up."""
        size = len(value.encode())
        # in a statement, some characters take another one before them
        needed = size + sum(value.count(one) for one in "\\'\"\n\r\0\x1a") + _STATEMENT
        if needed > self._most:
            raise ValueTooLargeError(
                f"a value of {size} bytes does not fit into a statement for {self.address}, whose max_allowed_packet "
                f"is {self._most} bytes; raise it on the server to {needed} or more, or store a reference instead",
                size=size,
                limit=self._most,
            )

    def _begin(self, lent: Any, cursor: Any) -> None:
        if not self._owned:
            # the session is its owner's: what is set for this transaction, taking the connection back undoes
            lent.info[_DRESSED] = True
            cursor.execute(*_assignment(self._ours))
            cursor.execute(_ISOLATION)
        cursor.execute("START TRANSACTION")

    # ----------------------------------------------------------------------------------------- connections

    def _welcome(self, lent: Any) -> None:
        info = lent.info
        if _THEIRS not in info:
            info[_MOST], info[_THEIRS] = self._introduce(lent.dbapi_connection)
        self._most = info[_MOST]
        # at most four bytes a character, and another for what needs one before it
        self._surely_fits = (self._most - _STATEMENT) // 8

    def _introduce(self, connection: Any) -> tuple[int, dict[str, object]]:
        """Check a new connection; return how long a statement may be, and what the session came with."""
        cursor = connection.cursor()
        cursor.execute(
            "SELECT VERSION(), DATABASE(), @@max_allowed_packet, @@SESSION.wait_timeout, "
            + ", ".join(f"@@SESSION.{name}" for name in _SESSION)
        )
        version, database, most, idle, *theirs = cursor.fetchone()
        self._check(version, database, connection.character_set_name())
        if self._owned:
            cursor.execute(_ISOLATION.replace("SET", "SET SESSION"))
            limits = self._against_stopped_clients(version, int(idle))
            # well before the server ends it: a call that may not be tried again would hear of that
            self._most_idle = _TRUSTED * limits["wait_timeout"]
            cursor.execute(*_assignment({**self._ours, **limits}))
        cursor.close()
        return int(most), dict(zip(_SESSION, theirs, strict=True))

    def _against_stopped_clients(self, version: str, idle: int) -> dict[str, int]:
        """Have the server end the transaction of a client that stops in the middle: it would keep its scope locked.

        MySQL can only end connections that are idle, in a transaction or not; those of the pool are then made anew. ``idle``
        are the seconds after which the server does so by itself.
        """
        if "mariadb" in version.lower():
            return {"idle_transaction_timeout": self._seconds, "wait_timeout": idle}
        return {"wait_timeout": min(idle, max(self._seconds, 60))}

    def _check(self, version: str, database: str | None, charset: str) -> None:
        found = _VERSION.match(version)
        number = (int(found[1]), int(found[2])) if found else (0, 0)
        if number < (_OLDEST_MARIADB if "mariadb" in version.lower() else _OLDEST_MYSQL):
            raise ConfigurationError(
                f"the store {self.address} is on a server of version {version}; keepstate needs MySQL 8.0 or MariaDB "
                "10.6, or newer",
                address=self.address,
            )
        if database is None:
            raise ConfigurationError(
                f"the store {self.address} names no database; put its name behind the host, as in "
                "mysql://USER@HOST/DATABASE",
                address=self.address,
            )
        if charset != "utf8mb4":
            raise ConfigurationError(
                f"the connections to {self.address} have the character set {charset}, which can't carry every key and "
                "value; make the engine with charset=utf8mb4",
                address=self.address,
            )

    def _new_cursor(self, lent: Any) -> Any:
        return lent.dbapi_connection.cursor()

    def _is_manual(self, lent: Any) -> bool:
        return not lent.dbapi_connection.get_autocommit()

    def _set_manual(self, lent: Any, manual: bool) -> None:  # noqa: FBT001
        lent.dbapi_connection.autocommit(not manual)

    def _take_back(self, lent: Any) -> None:
        try:
            if lent.info.pop(_DRESSED, False):
                self._cursor(lent).execute(*_assignment(lent.info[_THEIRS]))
            super()._take_back(lent)
        except self._driver_error as exc:
            # it is gone, but what it was lent for is done, or has an error of its own
            lent.invalidate(exc)

    def _is_lost(self, lent: Any, exc: BaseException) -> bool:
        return not lent.dbapi_connection.open or _is_of_connection(exc, self._driver_error)

    # ---------------------------------------------------------------------------------------------- errors

    def _is_refusal(self, exc: Exception) -> bool:
        if not isinstance(exc, self._driver_error):
            return not isinstance(exc, SQLAlchemyError)
        return _code(exc) in _REFUSALS or any(words in str(exc) for words in _REFUSING_WORDS)

    def _translate(self, exc: Exception, *, lost: bool) -> Exception:
        """Return what an error means here, by its number (MySQL's and MariaDB's lists of server errors)."""
        text, code = _said(exc), _code(exc)
        if "No space left on device" in text:
            return self._meant(_FULL, text)
        for codes, meaning in _MEANINGS:
            if code in codes:
                return self._meant(meaning, text)
        return TransientError(text, at_once=lost) if lost or code in _PASSING else self._other(text)


# what a statement has beside its largest value, generously
_STATEMENT = 64 * 1024
# so much of the time for which a connection may be idle, it may be taken for alive
_TRUSTED = 5 / 6
_ISOLATION = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"

# what we keep in a pooled connection's `info`
_MOST = "keepstate_max_allowed_packet"
_THEIRS = "keepstate_session"
_DRESSED = "keepstate_dressed"


def _assignment(values: dict[str, object]) -> tuple[str, tuple[object, ...]]:
    """Return the statement that sets variables of a session."""
    return f"SET SESSION {', '.join(f'{name} = %s' for name in values)}", tuple(values.values())


def _is_of_connection(exc: BaseException, driver_error: type[Exception]) -> bool:
    return isinstance(exc, driver_error) and (_code(exc) in _LOST or _code(exc) in {None, 0})


# what a statement of a migration meets that was applied before its process was killed
_DONE_BEFORE = frozenset(
    {
        1050,  # the table is there
        1051,  # ... or is gone
        1060,  # so is a column
        1061,  # an index
        1091,  # or either, gone
    }
)

# with these a connection is over
_LOST = frozenset(
    {
        1053,  # the server shuts down
        1077,
        1078,
        1079,
        1080,  # so it does
        1152,
        1184,  # an aborted connection
        1158,
        1159,
        1160,
        1161,  # trouble on the network
        1927,  # killed (MariaDB)
        2000,
        2006,
        2013,
        2014,
        2027,
        2055,  # what clients call lost
        3169,  # killed (MySQL)
        4031,  # idle for too long (MySQL)
    }
)

# trying again may work
_PASSING = frozenset({
    1020,  # a row was changed since it was read
    1037, 1038, 1041,  # out of memory
    1040, 1203, 1226,  # too many connections, altogether or of this user
    1047,  # a node of a cluster that is not ready
    1062,  # two processes made the same thing at once
    1135,  # no thread for a connection
    1180,  # a cluster refused a commit
    1205,  # a lock was not let go of in time
    1213, 1614,  # deadlock
    1317,  # cancelled by a person
    1412,  # a table was changed in the meantime
    1637,  # too many transactions at once
    1969, 3024,  # a statement took too long (MariaDB, MySQL)
    2002, 2003, 2005, 2026,  # no way to the server
    3058,  # deadlock over an advisory lock
    3101,  # a cluster rolled the transaction back
    3572,  # a lock was not to be had at once
})  # fmt: skip

_FULL: Meaning = (
    StoreFullError,
    "has no room left on its disk; nothing was half-written, free some room and go on",
)
_MEANINGS: tuple[tuple[set[int], Meaning], ...] = (
    ({1021, 1114}, _FULL),
    (
        {1290, 1792, 1836, 3032},
        (StoreReadOnlyError, "is read-only now, perhaps after a failover; name the primary server"),
    ),
    (
        {1044, 1142, 1143, 1227, 1370},
        (ConfigurationError, "does not let this user in; grant it the rights to its tables"),
    ),
    ({1045, 1698}, (ConfigurationError, "refuses the user or password of its URL")),
    ({1046}, (ConfigurationError, "names no database; put its name behind the host")),
    ({1049}, (ConfigurationError, "names a database that does not exist; create it first")),
    ({1008}, (ConfigurationError, "was dropped while it was in use; create it again")),
    (
        {1665},
        (ConfigurationError, "logs statements; keepstate needs a server with binlog_format=ROW or MIXED"),
    ),
    ({1153, 2020}, (ConfigurationError, "can't take a statement this large; raise its max_allowed_packet")),
    ({1051, 1146, 1109}, (StoreCorruptedError, "lacks a table of keepstate; run `keepstate db upgrade`")),
    (
        {1054, 1136, 1364},
        (StoreCorruptedError, "has tables that differ from keepstate's; run `keepstate db check`"),
    ),
    (
        {126, 127, 145, 1016, 1033, 1034, 1035, 1194, 1195, 1712, 1877},
        (StoreCorruptedError, "is damaged; restore it from a backup"),
    ),
)

# no connection because of what the URL says, or of how the server is set up
_REFUSALS = frozenset({
    1044, 1045, 1049, 1698,  # user, password, database
    1102, 1115,  # a name, a character set
    1129, 1130,  # this host is blocked, or not let in
    1227, 1251, 1275,  # ways of proving who one is
    1524, 2012, 2049, 2054, 2058, 2059, 2061,
    1820, 1862, 3118, 4151,  # the password has expired, or the account is locked
    1873,  # the user could not be changed
    3159,  # the server wants encryption
    1193, 1231, 1273,  # what an init_command sets
})  # fmt: skip
_REFUSING_WORDS = (
    "certificate verify failed",
    "SSL is required",
    "doesn't support SSL",
    "does not support SSL",
)


def open_url(url: str, *, timeout: float = 30.0) -> MysqlDatabase:
    """Open the database at a URL."""
    return MysqlDatabase(make_engine(url, timeout=timeout), owned=True, timeout=timeout)


def make_engine(url: str, *, timeout: float = 30.0) -> Engine:
    """Make the engine for a ``mysql://`` or ``mariadb://`` URL, with PyMySQL, or mysqlclient where only that is there.

    ``timeout``: seconds after which a server that does not answer counts as gone, beside those for which it may rightly
    wait for a lock.
    """
    parsed = read_url(url, "mysql://USER:PASSWORD@HOST:PORT/DATABASE")
    backend, _, driver = parsed.drivername.partition("+")
    if backend == "mariadb" or not driver:
        driver = driver or ("mysqldb" if find_spec("MySQLdb") and not find_spec("pymysql") else "pymysql")
        parsed = parsed.set(drivername=f"mysql+{driver}")
    seconds = max(2, min(10, int(timeout)))
    options: dict[str, object] = {
        "connect_timeout": seconds,
        "read_timeout": math.ceil(timeout) + seconds,
        "write_timeout": math.ceil(timeout) + seconds,
        "charset": "utf8mb4",
    }
    if driver == "pymysql":
        options["program_name"] = "keepstate"
        if parsed.password is not None:
            # as text, it would have to be Latin-1
            options["password"] = str(parsed.password).encode()
    return pooled(parsed, options, timeout=timeout, extra="mysql", drivers=_DRIVERS)
