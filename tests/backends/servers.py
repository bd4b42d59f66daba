"""The database servers that a store may be on, and what tests do behind keepstate's back to each."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pymysql

from tests.backends.proxy import MysqlProxy, Proxy
from tests.support.mysql import ask, connected, mysql_server
from tests.support.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import pytest


class Server(Protocol):
    """A server of the tests' own."""

    @property
    def pid(self) -> int | None:
        """The process id, or None when it is stopped."""
        ...

    def database(self) -> AbstractContextManager[str]:
        """Give the URL of a new database."""
        ...

    def start(self) -> None:
        """Start it again."""
        ...

    def stop(self) -> None:
        """Stop it in good order."""
        ...

    def crash(self) -> None:
        """Stop it at once."""
        ...


@dataclass(frozen=True)
class Kind:
    """What is there to know of one kind."""

    name: str
    start: Callable[[], AbstractContextManager[Any]]
    proxy: type[Proxy]
    error: type[Exception]
    """What its driver raises when the server is away."""
    set_by: bytes
    """What is in the statement by which a `set` becomes lasting."""
    begin: bytes
    """What is in the statement that begins a transaction."""
    kill_all: Callable[[Any, str], None]
    """End every connection to a database, as an administrator can."""
    ask: Callable[[str, str], list[Any]]
    """Run a statement and return its rows."""
    locking: Callable[[str], AbstractContextManager[Callable[[], object]]]
    """Hold the rows of all scopes locked until what this gives is called."""
    holding: Callable[[str, str], AbstractContextManager[Callable[[], object]]]
    """Run a statement, and commit once what this gives is called."""

    def through(self, url: str) -> Proxy:
        """Make a proxy before the server of a URL."""
        return self.proxy(int(url.rpartition(":")[2].partition("/")[0]))


def _kill_postgres(server: Any, url: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
            [url.rpartition("/")[2]],
        )


def _ask_postgres(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def _locking_postgres(url: str) -> Iterator[Callable[[], object]]:
    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM keepstate_scope FOR UPDATE")
        yield other.rollback


@contextmanager
def _holding_postgres(url: str, statement: str) -> Iterator[Callable[[], object]]:
    with psycopg.connect(url) as other:
        other.execute(statement)
        yield other.commit


def _kill_mysql(server: Any, url: str) -> None:
    with connected(server.admin_url) as admin, admin.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE db = %s", [url.rpartition("/")[2]]
        )
        for (number,) in cursor.fetchall():
            try:
                cursor.execute(f"KILL {number}")
            except pymysql.OperationalError as gone:
                assert gone.args[0] == 1094  # noqa: PT017 - it had ended by itself


@contextmanager
def _locking_mysql(url: str) -> Iterator[Callable[[], object]]:
    with connected(url, autocommit=False) as other, other.cursor() as cursor:
        cursor.execute("SELECT 1 FROM keepstate_scope FOR UPDATE")
        yield other.rollback


@contextmanager
def _holding_mysql(url: str, statement: str) -> Iterator[Callable[[], object]]:
    with connected(url, autocommit=False) as other, other.cursor() as cursor:
        cursor.execute(statement)
        yield other.commit


POSTGRES = Kind(
    "postgres",
    postgres_server,
    Proxy,
    psycopg.OperationalError,
    b"WITH s AS",
    b"BEGIN",
    _kill_postgres,
    _ask_postgres,
    _locking_postgres,
    _holding_postgres,
)
MYSQL = Kind(
    "mysql",
    mysql_server,
    MysqlProxy,
    pymysql.OperationalError,
    b"COMMIT",
    b"START TRANSACTION",
    _kill_mysql,
    ask,
    _locking_mysql,
    _holding_mysql,
)
KINDS = [POSTGRES, MYSQL]

_WAITING = {
    "postgres": "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    "mysql": "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}


def waiters(kind: Kind, request: pytest.FixtureRequest) -> int:
    """Return how many transactions wait for a lock in the test's database."""
    if kind.name == "mysql":
        # only an administrator of MariaDB's may see who waits
        url = request.getfixturevalue("mysql").admin_url
    else:
        url = request.getfixturevalue(f"{kind.name}_url")
    return int(kind.ask(url, _WAITING[kind.name])[0][0])
