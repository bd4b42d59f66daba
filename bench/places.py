"""Where a group is measured: a folder on a real disk, or a PostgreSQL server of its own."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def disk() -> Path:
    """Return the folder that temporary stores are made in: on a disk, where a memory file system may hold /tmp."""
    durable = Path("/var/tmp")
    return durable if durable.is_dir() else Path(tempfile.gettempdir())


@contextmanager
def folder() -> Iterator[str]:
    """Give an empty folder, removed afterwards."""
    with tempfile.TemporaryDirectory(
        prefix="keepstate-bench-", dir=disk(), ignore_cleanup_errors=True
    ) as path:
        yield path


@contextmanager
def postgres_server(facts: dict[str, str]) -> Iterator[str]:
    """Give the URL of a database on a server that does nothing else, durable as PostgreSQL comes; more can be made there."""
    from tests.support import postgres

    with postgres.postgres_server() as server, server.database() as url:
        facts["PostgreSQL"] = server.version
        yield url


def another_database(server: str, name: str) -> str:
    """Make an empty database on the server of that URL, and return its own."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return f"{server.rpartition('/')[0]}/{name}"
