"""Stores that hold millions: filled by the database itself, far faster than by as many calls of ``set``."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import keepstate
from keepstate.clock import DAY, system_clock
from keepstate.scope import RunScope, TaskScope, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

_RUNS_OF_DAG, _TASKS_OF_RUN, _KEYS = 1_000, 10, 10

_SCOPE_COLUMNS = (
    "id, digest, kind, dag_id, run_id, task_id, map_index, incarnation, version, state, deleted, created_at, updated_at, "
    "sweep_at"
)

_NUMBERS = " UNION ALL ".join(f"SELECT {number} AS number" for number in range(_KEYS))
# what was written by `set` once: keys of one task instance, written one after the other
_WRITTEN = f"""
FROM (
  SELECT s.id AS scope_id, 'key-' || k.number AS entry_key, 1 + k.number AS version, s.created_at AS written_at,
    '[' || (s.id % 9000) || ', "page"]' AS value,
    CASE WHEN k.number < {{expired}} THEN {{past}} ELSE {{future}} END + s.id AS expires_at
  FROM keepstate_scope s CROSS JOIN ({_NUMBERS}) k WHERE s.kind = 'task') w
ORDER BY w.scope_id, w.entry_key
"""
_ENTRIES = f"""
INSERT INTO keepstate_entry
  (scope_id, entry_key, value, version, updated_at, expires_at, sweep_at, writer, log_from, log_rows, log_limit)
SELECT w.scope_id, w.entry_key, w.value, w.version, w.written_at, w.expires_at, w.expires_at, '{{writer}}', w.version, 1, 20
{_WRITTEN}
"""
_LOG = f"""
INSERT INTO keepstate_log (scope_id, entry_key, version, action, value, size, written_at, expires_at, writer)
SELECT w.scope_id, w.entry_key, w.version, 'set', w.value, LENGTH(w.value), w.written_at, w.expires_at, '{{writer}}'
{_WRITTEN}
"""


@dataclass(frozen=True)
class Size:
    """How much a store holds: ten entries in each task instance, ten of these in a run, a thousand runs in a dag."""

    task_instances: int

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return self.task_instances * _KEYS

    def scope(self, number: int) -> TaskScope:
        """Return a task instance by its number, which begins at 0."""
        of_all, task = divmod(number, _TASKS_OF_RUN)
        dag, run = divmod(of_all, _RUNS_OF_DAG)
        return TaskScope(f"dag_{dag:04}", f"scheduled__{run:05}", f"task_{task}", -1)


def fill(url: str, size: Size, *, expired: bool = False) -> None:
    """Make a store at ``url``, which is empty, with so many entries in it; with ``expired``, the time of a tenth has come."""
    keepstate.connect(url).close()
    now = system_clock()
    facts = {
        "past": now - DAY,
        "future": now + 30 * DAY,
        "expired": int(expired),
        "writer": Writer("cli", "bench").to_text(),
    }
    statements = [statement.format(**facts) for statement in (_ENTRIES, _LOG)]
    if url.startswith("sqlite"):
        _fill_sqlite(url.removeprefix("sqlite:///"), size, now, statements)
    else:
        _fill_postgres(url, size, now, statements)


def _fill_sqlite(path: str, size: Size, now: int, statements: list[str]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -1000000")
        connection.execute("BEGIN")
        marks = ", ".join("?" * len(_SCOPE_COLUMNS.split(",")))
        connection.executemany(
            f"INSERT INTO keepstate_scope ({_SCOPE_COLUMNS}) VALUES ({marks})", _scopes(size, now)
        )
        for statement in statements:
            connection.execute(statement)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _fill_postgres(url: str, size: Size, now: int, statements: list[str]) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        # nothing here needs to survive until all of it is there
        connection.execute("SET synchronous_commit = off")
        with connection.cursor().copy(f"COPY keepstate_scope ({_SCOPE_COLUMNS}) FROM STDIN") as copy:
            for row in _scopes(size, now):
                copy.write_row(row)
        connection.execute(
            "SELECT setval(pg_get_serial_sequence('keepstate_scope', 'id'), (SELECT MAX(id) FROM keepstate_scope))"
        )
        for statement in statements:
            connection.execute(statement)
        connection.execute("VACUUM (ANALYZE, FREEZE)")
        connection.execute("CHECKPOINT")


def _scopes(size: Size, now: int) -> Iterator[tuple[object, ...]]:
    """Return the rows of all runs and task instances, in the order in which they would have come to be."""
    row_id = 0
    for number in range(size.task_instances):
        scope = size.scope(number)
        created_at = now - 20 * DAY + number
        tail = (1, _KEYS, None, 0, created_at, created_at, now + 300 * DAY)
        if number % _TASKS_OF_RUN == 0:
            row_id += 1
            run = RunScope(scope.dag_id, scope.run_id)
            yield (row_id, run.digest, "run", run.dag_id, run.run_id, None, None, *tail)
        row_id += 1
        yield (row_id, scope.digest, "task", scope.dag_id, scope.run_id, scope.task_id, -1, *tail)
