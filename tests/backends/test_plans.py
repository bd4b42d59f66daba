"""How databases carry out what pages ask: by an index, whatever they believe of their tables' sizes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from keepstate.backends.sql import images, statements
from keepstate.backends.sql.dialects import POSTGRESQL, SQLITE
from tests.backends.stores import open_file, open_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import PostgresServer

PARAMS = {
    "dag_id": "etl",
    "run_id": "r",
    "now": 5,
    "limit": 20,
    "offset": 0,
    "most": 100,
    "pattern": "*",
    "after": 7,
    "last": 20,
}
ASKED = {
    **{
        name: getattr(statements, name)
        for name in (
            "GRID",
            "GRID_FITTING",
            "GRID_OF_DAG",
            "KEYS",
            "KEYS_FITTING",
            "KEYS_OF_ASSETS",
            "RUNS_CALLED",
        )
    },
    "PAGE_END": images.PAGE_END.replace("{selected}", "1 = 1"),
    "IMAGES": images.IMAGES.replace("{selected}", "1 = 1"),
}


@pytest.mark.parametrize("name", ASKED)
def test_sqlite_goes_by_an_index(name: str, tmp_path: Path) -> None:
    """No table of scopes, entries, versions or attempts is scanned."""
    open_file(tmp_path / "keepstate.db").close()
    with closing(sqlite3.connect(tmp_path / "keepstate.db")) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {SQLITE.render(ASKED[name])}", PARAMS).fetchall()
    steps = [step for *_, step in plan]
    assert any("USING" in step for step in steps), steps
    scanned = {step.split()[1] for step in steps if step.startswith("SCAN ")}
    assert not scanned & {"s", "t", "e", "l"}, steps
    # the index of all tasks is none
    assert not any(step.startswith("SEARCH t USING INDEX keepstate_scope_recent") for step in steps), steps


# thirty thousand task instances of three thousand runs, each with an entry, a version and an attempt
FILLED = """
INSERT INTO keepstate_scope
  (digest, kind, dag_id, run_id, task_id, map_index, incarnation, version, deleted, created_at, updated_at)
SELECT sha256(n::text::bytea), CASE WHEN n % 11 = 0 THEN 'run' ELSE 'task' END, 'dag' || n / 11 % 20, 'r' || n / 11,
  CASE WHEN n % 11 > 0 THEN 't' || n % 11 END, -1, 1, 1, 0, n, n
FROM generate_series(1, 33000) n;
INSERT INTO keepstate_entry (scope_id, entry_key, value, version, updated_at, log_from, log_rows, log_limit)
SELECT id, 'k', '1', 1, 1, 1, 1, 20 FROM keepstate_scope WHERE kind = 'task';
INSERT INTO keepstate_log (scope_id, entry_key, version, action, value, size, written_at)
SELECT id, 'k', 1, 'set', '1', 1, 1 FROM keepstate_scope WHERE kind = 'task';
INSERT INTO keepstate_attempt (scope_id, incarnation, try_number, attempt_id, state, started_at)
SELECT id, 1, 1, '', 'success', 1 FROM keepstate_scope WHERE kind = 'task';
"""


@pytest.fixture(scope="module")
def filled(postgres: PostgresServer) -> Iterator[psycopg.Connection]:
    """A connection to a database that has just been filled, and has not looked at its tables yet."""
    with postgres.database() as url:
        open_url(url).close()
        with psycopg.connect(url) as connection:
            # in a transaction that stays open, nobody else comes to count them
            connection.execute(FILLED)
            yield connection
            connection.rollback()


def plan_of(name: str, connection: psycopg.Connection) -> str:
    """Return how PostgreSQL carries out a statement."""
    text = POSTGRESQL.render(ASKED[name])
    for param, value in {**PARAMS, "pattern": "dag%", "dag_id": "dag1", "run_id": "r12"}.items():
        text = text.replace(f":{param}", f"'{value}'" if isinstance(value, str) else str(value))
    return "\n".join(row[0] for row in connection.execute(f"EXPLAIN {text}".encode()))


def assert_indexed(plan: str) -> None:
    """Fail where a table that may be large is read as a whole."""
    assert "Index" in plan, plan
    for table in ("scope", "entry", "log", "attempt"):
        assert f"Seq Scan on keepstate_{table}" not in plan, plan


@pytest.mark.parametrize("name", [name for name in ASKED if name != "KEYS_OF_ASSETS"])
def test_postgresql_goes_by_an_index(name: str, filled: psycopg.Connection) -> None:
    """However little it knows of its tables."""
    assert_indexed(plan_of(name, filled))


def test_postgresql_goes_by_an_index_to_the_entries_of_assets(filled: psycopg.Connection) -> None:
    """Once it knows that entries are spread over many scopes, which is within a minute."""
    filled.execute("ANALYZE keepstate_entry")
    assert_indexed(plan_of("KEYS_OF_ASSETS", filled))
