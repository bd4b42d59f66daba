"""Embedded stores: one row written again and again, durably, in a file; and read back."""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from bench import places
from bench.contenders import Contender, Group, Manner, Opened, Operation, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

# what a task that reads pages keeps: a position, and where the next page is
VALUES = [{"page": page, "cursor": f"eyJwYWdlIjog{page:04}fQ", "rows": page * 500} for page in range(64)]
READS = 20
"""Reads a sample: they take microseconds, and reading the clock should not count."""

_LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}

TABLE = """
CREATE TABLE entry (
  scope_id INTEGER NOT NULL, entry_key TEXT NOT NULL, value TEXT NOT NULL, version INTEGER NOT NULL,
  PRIMARY KEY (scope_id, entry_key)
) WITHOUT ROWID
"""
UPSERT = """
INSERT INTO entry (scope_id, entry_key, value, version) VALUES (1, ?, ?, 1)
ON CONFLICT (scope_id, entry_key) DO UPDATE SET value = excluded.value, version = entry.version + 1
"""
SELECT = "SELECT value FROM entry WHERE scope_id = 1 AND entry_key = ?"
INCREMENT = """
INSERT INTO entry (scope_id, entry_key, value, version) VALUES (1, ?, 1, 1)
ON CONFLICT (scope_id, entry_key) DO UPDATE SET value = entry.value + 1, version = entry.version + 1
RETURNING value
"""


def durability(journal_mode: str, synchronous: int) -> str:
    """Say what SQLite says of a connection."""
    return f"{journal_mode.upper()}, synchronous={_LEVELS[synchronous]}"


def file_durability(url: str) -> str:
    """Say what a store in a SQLite file runs at: a connection made as the store makes its own is asked."""
    from keepstate import Settings
    from keepstate.connect import database_at

    database = database_at(url, Settings.load())
    (journal_mode,), (level,) = (
        database.query(f"PRAGMA {name}", {})[0] for name in ("journal_mode", "synchronous")
    )
    database.close()
    return durability(journal_mode, level)


@contextmanager
def bare_sqlite3(where: str) -> Iterator[Opened]:
    """Run the driver alone: statements of one row, each its own transaction, values already text."""
    connection = sqlite3.connect(Path(where, "bare.db"), isolation_level=None)
    (journal_mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(TABLE)
    execute = connection.execute
    texts = cycle([json.dumps(value, separators=(",", ":")) for value in VALUES])
    (level,) = execute("PRAGMA synchronous").fetchone()
    yield Opened(
        {
            "set": timed(lambda: execute(UPSERT, ("page", next(texts)))),
            "get": timed(lambda: execute(SELECT, ("page",)).fetchone()[0], batch=READS),
            "increment": timed(lambda: execute(INCREMENT, ("count",)).fetchall()),
        },
        Manner(
            f"SQLite {sqlite3.sqlite_version}",
            durability(journal_mode, level),
            "statements alone; values are text already, and stay text when read",
        ),
    )
    connection.close()


@contextmanager
def keepstate(where: str) -> Iterator[Opened]:
    """Run keepstate as a task does: an accessor that belongs to an attempt."""
    from keepstate import connect

    url = f"sqlite:///{Path(where, 'keepstate.db')}"
    found = file_durability(url)
    values = cycle(VALUES)
    with connect(url) as store:
        task = store.task("bench", "run", "load", try_number=1)
        yield Opened(
            {
                "set": timed(lambda: task.set("page", next(values))),
                "get": timed(lambda: task.get("page"), batch=READS),
                "increment": timed(lambda: task.increment("count")),
            },
            Manner(
                version("keepstate"),
                found,
                "with fence, versions and history; values are checked and encoded",
            ),
        )


@contextmanager
def diskcache(where: str) -> Iterator[Opened]:
    """Run diskcache at FULL, where it comes with NORMAL, and without the eviction that a store must not do."""
    import diskcache

    values = cycle(VALUES)
    with diskcache.Cache(
        str(Path(where, "diskcache")), sqlite_synchronous=2, eviction_policy="none", cull_limit=0
    ) as cache:
        sql = cache._sql  # noqa: SLF001 - its connection, asked what it runs at
        ((mode,),) = sql("PRAGMA journal_mode").fetchall()
        ((level,),) = sql("PRAGMA synchronous").fetchall()
        yield Opened(
            {
                "set": timed(lambda: cache.set("page", next(values))),
                "get": timed(lambda: cache.get("page"), batch=READS),
                "increment": timed(lambda: cache.incr("count")),
            },
            Manner(
                version("diskcache"),
                durability(mode, level),
                "set to FULL, it comes with NORMAL: a power loss may undo the last writes",
            ),
        )


@contextmanager
def sqlitedict(where: str) -> Iterator[Opened]:
    """Run sqlitedict with a commit after each write, at FULL: it sets OFF itself, and has no setting for it."""
    from sqlitedict import SqliteDict

    values = cycle(VALUES)
    with SqliteDict(str(Path(where, "sqlitedict.db")), journal_mode="WAL", outer_stack=False) as table:
        table.conn.execute("PRAGMA synchronous = FULL")
        (mode,) = table.conn.select_one("PRAGMA journal_mode")
        (level,) = table.conn.select_one("PRAGMA synchronous")

        def write(key: str, value: Any) -> None:
            table[key] = value
            table.commit()

        yield Opened(
            {
                "set": timed(lambda: write("page", next(values))),
                "get": timed(lambda: table["page"], batch=READS),
                "increment": timed(lambda: write("count", table.get("count", 0) + 1)),
            },
            Manner(
                version("sqlitedict"),
                durability(mode, level),
                "FULL by a PRAGMA sent through its connection, as it sets OFF and offers no choice; "
                "commit after each write; its increment reads and writes apart, so callers can lose some",
            ),
        )


@contextmanager
def dbos_step(where: str) -> Iterator[Opened]:
    """Run DBOS steps that do nothing but return the value, inside one workflow; the workflow itself is not timed."""
    path = Path(where, "dbos.db")
    connection = sqlite3.connect(path)
    # stays with the file: DBOS itself leaves the rollback journal, which syncs more often
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()

    from dbos import DBOS

    dbos = DBOS(
        config={
            "name": "keepstate-bench",
            "system_database_url": f"sqlite:///{path}",
            "log_level": "ERROR",
        }
    )
    values = cycle(VALUES)

    @DBOS.step()
    def load() -> dict[str, Any]:
        return next(values)

    @DBOS.workflow()
    def sample(count: int) -> list[int]:
        times = []
        for _ in range(count):
            start = perf_counter_ns()
            load()
            times.append(perf_counter_ns() - start)
        return times

    DBOS.launch()
    with dbos._sys_db.engine.connect() as asked:  # noqa: SLF001 - its connection, asked what it runs at
        mode, level = (
            asked.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("journal_mode", "synchronous")
        )
    yield Opened(
        {"set": sample},
        Manner(
            version("dbos"),
            durability(mode, level),
            "its file made in WAL mode beforehand, it leaves the rollback journal; each step is a new row; "
            "a step that returns the value, inside a workflow that is not timed",
        ),
    )
    DBOS.destroy()


GROUP = Group(
    name="embedded",
    title="Embedded, one row in a SQLite file",
    contenders=(
        Contender("sqlite3", bare_sqlite3),
        Contender("keepstate", keepstate),
        Contender("diskcache", diskcache),
        Contender("sqlitedict", sqlitedict),
        Contender("DBOS step", dbos_step, can_renew=False),
    ),
    operations=(
        # A file's write-ahead log grows until it is first folded in, after 1,000 pages, and is then written over:
        # a commit costs about twice as much before. Who writes more pages would come to the cheaper half sooner,
        # so all are brought there first, and the other half is measured apart, in files that stay young. 25 writes
        # fill the bounded history of a key: from then on each write also removes one.
        Operation("set", rounds=31, samples=40, warm_up=1200),
        Operation("set, new file", verb="set", rounds=31, samples=40, warm_up=25, renewed=True),
        Operation("get", rounds=31, samples=40, warm_up=40),
        Operation("increment", rounds=31, samples=40, warm_up=40),
    ),
    place=places.folder,
)
