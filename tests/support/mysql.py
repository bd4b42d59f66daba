"""A real MariaDB or MySQL server for tests, with a fresh database for each.

    with mysql_server() as server, server.database() as url: ...

Which one, the variable TEST_MYSQL says: "mariadb", which it is by default, or a version of MySQL's, such as "8.0".
``python -m tests.support.mysql`` gets it where it is missing; `make test` and `make test-mysql` do that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
from sqlalchemy.engine import make_url

from tests.support.daemons import HOST, Daemon, UnavailableError, working_directory
from tests.support.database_servers import DatabaseServer
from tests.support.mysql_releases import RELEASES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.mysql_releases import ServerRelease

__all__ = ["RELEASE", "MysqlServer", "UnavailableError", "ask", "mysql", "mysql_server", "mysql_url"]

RELEASE = RELEASES[os.environ.get("TEST_MYSQL", "mariadb")]
USER = "keepstate"
ADMIN = "administrator"
# Commits reach the operating system, so they outlive a server that is killed; a power cut is not what is tested here. Changes
# of tables would take ten times as long on a disk.
OPTIONS = {
    "bind-address": HOST,
    "innodb-buffer-pool-size": "32M",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-flush-method": "nosync",
    # the largest value, with a character before each of its own
    "max-allowed-packet": "64M",
    "max-connections": "200",
    "performance-schema": "OFF",
    "skip-log-bin": None,
    "skip-name-resolve": None,
}
# An ordinary user may do nothing but to databases with our names: no right of an administrator's lets it write where a server
# is read-only. Passwords are asked for in the way that the server prefers.
USERS = """\
CREATE USER {user} IDENTIFIED BY '{password}';
GRANT ALL ON `keepstate\\_%`.* TO {user};
CREATE USER {admin} IDENTIFIED BY '{password}';
GRANT ALL ON *.* TO {admin} WITH GRANT OPTION;
"""


class MysqlServer(DatabaseServer):
    """A server of our own on loopback TCP, password-protected. `start` after making one."""

    PORT_IS_TAKEN = "Can't start server: Bind"

    def __init__(self, release: ServerRelease, directory: Path, options: Mapping[str, str | None]) -> None:
        """Prepare one in `directory`, which goes with an owner that dies."""
        super().__init__(directory)
        self._release = release
        # one that is shared would be cleared of other servers' files by each that starts
        options = {"tmpdir": str(directory), **options}
        self._options = [
            f"--{name}" if value is None else f"--{name}={value}" for name, value in options.items()
        ]

    @property
    def admin_url(self) -> str:
        """The URL of somebody who may do anything; stays the same over `stop` and `start`."""
        return f"mysql://{ADMIN}:{self._password}@{HOST}:{self._port}/"

    @property
    def authority(self) -> Path:
        """The file of the certificate with which a server of MySQL's signs the one that it makes for itself."""
        return self._data / "ca.pem"

    def url_of(self, database: str) -> str:
        """Return the URL of one database, existing or not, for an ordinary user."""
        return f"mysql://{USER}:{self._password}@{HOST}:{self._port}/{database}"

    def execute(self, *statements: str) -> list[Any]:
        """Run statements as an administrator; return the rows of the last."""
        return ask(self.admin_url, *statements)

    @contextlib.contextmanager
    def set_globally(self, **settings: object) -> Iterator[None]:
        """Give new connections other defaults, or the server another limit, for a while."""
        names = list(settings)
        (before,) = self.execute("SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in names))
        try:
            for name, value in settings.items():
                self.execute(f"SET GLOBAL {name} = {value!r}")
            yield
        finally:
            for name, value in zip(names, before, strict=True):
                self.execute(f"SET GLOBAL {name} = {value!r}")

    @contextlib.contextmanager
    def database(self, options: str = "") -> Iterator[str]:
        """Give the URL of an empty database that nobody else uses meanwhile; it is dropped afterwards."""
        name = f"keepstate_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} {options}")
        try:
            yield self.url_of(name)
        finally:
            with connected(self.admin_url) as connection, connection.cursor() as cursor:
                # a transaction that somebody left open would keep its tables
                cursor.execute(f"SELECT id FROM information_schema.processlist WHERE db = '{name}'")
                for (number,) in cursor.fetchall():
                    with contextlib.suppress(pymysql.OperationalError):
                        cursor.execute(f"KILL {number}")
                cursor.execute(f"DROP DATABASE {name}")

    def stop(self) -> None:
        """Stop the server in good order, ending every connection. Stopping a stopped one is no error."""
        self._stop(signal.SIGTERM, signal.SIGKILL)

    def crash(self) -> None:
        """Kill the server's process."""
        self._stop(signal.SIGKILL)

    def _command(self, *options: str) -> list[str]:
        given = self._release.command(self._directory)
        return [*given, f"--datadir={self._data}", *self._options, *options]

    def _initialize(self) -> None:
        users = USERS.format(user=f"{USER}@'{HOST}'", admin=f"{ADMIN}@'{HOST}'", password=self._password)
        self._release.make(self._command(), self._directory, self._data, users)

    def _launched(self) -> Daemon:
        command = self._command(
            f"--port={self._port}", f"--socket={self._directory}/socket", "--pid-file=pid"
        )
        return Daemon(command, home=self._directory, folder=self._directory, ends_by="TERM")

    def _is_ready(self) -> bool:
        try:
            self.execute("SELECT 1")
        except pymysql.OperationalError:
            return False
        return True


def ask(url: str, *statements: str) -> list[Any]:
    """Run statements at a URL, one transaction each, and return the rows of the last."""
    with connected(url) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def connected(url: str, **options: Any) -> pymysql.Connection[Any]:
    """Connect past keepstate, in autocommit mode unless told otherwise."""
    parsed = make_url(url)
    options = {"autocommit": True, "charset": "utf8mb4", **options}
    return pymysql.connect(
        host=parsed.host,
        port=parsed.port or 3306,
        user=parsed.username,
        password=str(parsed.password),
        database=parsed.database or None,
        **options,
    )


@contextlib.contextmanager
def mysql_server(*, settings: Mapping[str, str | None] | None = None) -> Iterator[MysqlServer]:
    """Run a server in a temporary folder; stop it and remove the folder on leaving.

    `settings` are added to the command line. When this process dies, killed or not, the server ends too. Raises
    `UnavailableError` when it does not start.
    """
    directory = working_directory("MySQL", in_memory=True)
    try:
        server = MysqlServer(RELEASE, directory, {**OPTIONS, **(settings or {})})
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def mysql() -> Iterator[MysqlServer]:
    """One server for the session. A test that stops it starts it again."""
    with mysql_server() as server:
        yield server


@pytest.fixture
def mysql_url(mysql: MysqlServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a fresh, empty database."""
    assert request.node.get_closest_marker("mysql"), (
        "`make test-mysql` would pass over it; mark it with mysql"
    )
    with mysql.database() as url:
        yield url


if __name__ == "__main__":
    RELEASE.get()
