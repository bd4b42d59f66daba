"""A real PgBouncer in transaction mode before a PostgreSQL server, for tests.

It is Debian's or Ubuntu's package; ``python -m tests.support.pgbouncer`` gets it where it is missing, as `make test-all` does.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy.engine import make_url

from tests.support.daemons import (
    HOST,
    Daemon,
    UnavailableError,
    free_port,
    give_away,
    working_directory,
)
from tests.support.packages import found, install

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "pgbouncer"
CONFIGURATION = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = {host}
listen_port = {own_port}
unix_socket_dir =
auth_type = plain
auth_file = {users}
pool_mode = transaction
default_pool_size = {connections}
server_reset_query =
"""


@contextlib.contextmanager
def pgbouncer(url: str, *, connections: int = 3) -> Iterator[str]:
    """Give the URL of the same database by way of a PgBouncer, whose clients share that many connections."""
    target = make_url(url)
    directory = working_directory("PgBouncer")
    try:
        port = free_port()
        users = directory / "users"
        users.write_text(f'"{target.username}" "{target.password}"\n', encoding="utf-8")
        settings = directory / "pgbouncer.ini"
        settings.write_text(
            CONFIGURATION.format(
                host=HOST, port=target.port, own_port=port, users=users, connections=connections
            ),
            encoding="utf-8",
        )
        for path in (users, settings):
            give_away(path)
        through = target.set(port=port).render_as_string(hide_password=False)
        daemon = Daemon([binary(), settings], home=directory, folder=directory, ends_by="TERM")

        def is_ready() -> bool:
            try:
                psycopg.connect(through).close()
            except psycopg.OperationalError:
                return False
            return True

        daemon.wait(is_ready)
        try:
            yield through
        finally:
            daemon.stop(signal.SIGTERM, signal.SIGKILL)
    finally:
        shutil.rmtree(directory)


def binary() -> str:
    """Return where it is. Raises ``UnavailableError`` saying how to get it."""
    return found("pgbouncer", of="PgBouncer", package=PACKAGE, target="test-all")


def main() -> None:
    """Get it where it is missing."""
    try:
        binary()
    except UnavailableError:
        install(PACKAGE)


if __name__ == "__main__":
    main()
