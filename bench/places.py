"""Where a group is measured: a folder on a real disk, or a PostgreSQL server of its own."""

from __future__ import annotations

import os
import shutil
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


@contextmanager
def copy(url: str) -> Iterator[str]:
    """Give the URL of a copy of a store that nobody has open, written to the disk as a whole and removed afterwards."""
    if url.startswith("sqlite"):
        with folder() as copied:
            path = shutil.copyfile(url.removeprefix("sqlite:///"), f"{copied}/copy.db")
            # else the disk would be busy with it while the copy is in use
            with Path(path).open("rb") as file:
                os.fsync(file.fileno())
            yield f"sqlite:///{path}"
        return
    import psycopg

    server, _, name = url.rpartition("/")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}-copy" TEMPLATE "{name}" STRATEGY file_copy')
        connection.execute("CHECKPOINT")
        try:
            yield f"{server}/{name}-copy"
        finally:
            connection.execute(f'DROP DATABASE "{name}-copy" WITH (FORCE)')


def another_database(server: str, name: str) -> str:
    """Make an empty database on the server of that URL, and return its own."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return f"{server.rpartition('/')[0]}/{name}"
