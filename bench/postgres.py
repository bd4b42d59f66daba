"""PostgreSQL: one client writes one row again and again, and reads it back, on one server."""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from itertools import cycle
from typing import TYPE_CHECKING, Any

from bench import places
from bench.contenders import Contender, Group, Manner, Opened, Operation, timed
from bench.embedded import VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection

TABLE = """
CREATE TABLE entry (
  scope_id BIGINT NOT NULL, entry_key TEXT COLLATE "C" NOT NULL, value TEXT NOT NULL, version BIGINT NOT NULL,
  PRIMARY KEY (scope_id, entry_key)
)
"""
UPSERT = """
INSERT INTO entry (scope_id, entry_key, value, version) VALUES (1, %s, %s, 1)
ON CONFLICT (scope_id, entry_key) DO UPDATE SET value = excluded.value, version = entry.version + 1
"""
SELECT = "SELECT value FROM entry WHERE scope_id = 1 AND entry_key = %s"


def server_durability(url: str) -> str:
    """Say what a server says of connections to it, durable as they come."""
    import psycopg

    with psycopg.connect(url) as connection:
        return _durability(connection)


def _durability(connection: Connection[Any]) -> str:
    """Say what the server says of a connection like this."""
    names = ("fsync", "synchronous_commit")
    shown = (connection.execute(f"SHOW {name}").fetchone() for name in names)
    return ", ".join(f"{name}={row[0]}" for name, row in zip(names, shown, strict=True) if row)


@contextmanager
def bare_psycopg(url: str) -> Iterator[Opened]:
    """Run the driver alone: statements of one row with autocommit, values already text."""
    import psycopg

    texts = cycle([json.dumps(value, separators=(",", ":")) for value in VALUES])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLE)
        execute = connection.cursor().execute
        yield Opened(
            {
                "set": timed(lambda: execute(UPSERT, ("page", next(texts)))),
                "get": timed(lambda: execute(SELECT, ("page",)).fetchone()),
            },
            Manner(
                f"psycopg {version('psycopg')}",
                _durability(connection),
                "statements alone, autocommit, one cursor; values are text already, and stay text when read",
            ),
        )


@contextmanager
def keepstate(url: str) -> Iterator[Opened]:
    """Run keepstate as a task does: an accessor that belongs to an attempt."""
    from keepstate import connect

    values = cycle(VALUES)
    with connect(url) as store:
        task = store.task("bench", "run", "load", try_number=1)
        yield Opened(
            {
                "set": timed(lambda: task.set("page", next(values))),
                "get": timed(lambda: task.get("page")),
            },
            Manner(
                f"{version('keepstate')}, SQLAlchemy {version('sqlalchemy')}",
                server_durability(url),
                "the same driver; with fence, versions, history and request numbers; values are checked and encoded",
            ),
        )


_FACTS: dict[str, str] = {}

GROUP = Group(
    name="postgres",
    title="PostgreSQL, one row and one client",
    contenders=(Contender("psycopg", bare_psycopg), Contender("keepstate", keepstate)),
    operations=(
        Operation("set", rounds=31, samples=50, warm_up=200),
        Operation("get", rounds=31, samples=50, warm_up=200),
    ),
    place=partial(places.postgres_server, _FACTS),
    facts=_FACTS,
)
