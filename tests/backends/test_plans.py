"""How databases carry out what pages ask: by an index, whatever they believe of their tables' sizes."""

from __future__ import annotations

import itertools
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from keepstate.backends.sql import cleanup_statements, images, list_statements, statements
from keepstate.backends.sql.dialects import POSTGRESQL, SQLITE
from tests.backends.stores import open_file, open_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import PostgresServer

PARAMS = {"limit": 20, "most": 100, "pattern": "*"}

# those for PostgreSQL alone
SPECIAL = {name for name in vars(statements) if name.endswith("IN_ONE")} | {
    "ERASE_EXPIRED_OF_ALL",
    "SWEEP_ALL_EMPTIED_SCOPES",
}
PARAM = re.compile(r"(?<!:):(\w+)")
_TABLE = re.compile(r"keepstate_(scope|entry|log|attempt)\b")
_ALIAS = re.compile(
    r"(?:FROM|JOIN|UPDATE|INTO) (keepstate_(?:scope|entry|log|attempt))(?: (?!SET|WHERE|ON)(\w+))?"
)
ASKED = {
    **{
        name: text.replace("{scope}", "s.digest = :digest")
        for module in (statements, list_statements, cleanup_statements)
        for name, text in vars(module).items()
        if name.isupper() and not name.startswith("_") and isinstance(text, str) and _TABLE.search(text)
    },
    "PAGE_END": images.PAGE_END.replace("{selected}", "1 = 1"),
    "IMAGES": images.IMAGES.replace("{selected}", "1 = 1"),
}


# how a parameter looks, by its name; all others are numbers
DIGEST = "digest"
TEXTS = {
    "dag_id": "dag1",
    "run_id": "r12",
    "task_id": "t1",
    "key": "k",
    "pattern": "dag%",
    **dict.fromkeys(
        (
            "action",
            "arguments",
            "attempt_id",
            "host",
            "item",
            "kind",
            "logged",
            "process_started",
            "reason",
            "result",
        ),
        "x",
    ),
    **dict.fromkeys(("name", "session", "sha256", "state", "uri", "value", "writer"), "x"),
}


@pytest.mark.parametrize("name", sorted(ASKED.keys() - SPECIAL))
def test_sqlite_goes_by_an_index(name: str, tmp_path: Path) -> None:
    """No table of scopes, entries, versions or attempts is scanned."""
    open_file(tmp_path / "keepstate.db").close()
    statement = SQLITE.render(ASKED[name])
    params = {**dict.fromkeys(PARAM.findall(statement), 1), **PARAMS}
    with closing(sqlite3.connect(tmp_path / "keepstate.db")) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", params).fetchall()
    steps = [step for *_, step in plan]
    scanned = {step.split()[1] for step in steps if step.startswith("SCAN ")}
    tables = {table for table, _ in _ALIAS.findall(statement)} | {
        alias for _, alias in _ALIAS.findall(statement)
    }
    assert not scanned & tables, steps
    # the index of all tasks is none
    assert not any(step.startswith("SEARCH t USING INDEX keepstate_scope_recent") for step in steps), steps


# two dags with so many runs, five task instances in each of these, and as many that were deleted among the older ones
RUNS = """
WITH RECURSIVE run (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM run WHERE n < :runs),
  place (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM place WHERE n < 5)
INSERT INTO keepstate_scope
  (digest, kind, dag_id, run_id, task_id, map_index, incarnation, version, deleted, created_at, updated_at)
SELECT run.n || '.' || place.n || '.' || d.n, CASE place.n WHEN 0 THEN 'run' ELSE 'task' END, 'dag' || d.n, 'r' || run.n,
  CASE WHEN place.n > 0 THEN 't' || place.n END, -1, 1, 1, run.n < :runs / 2 AND run.n % 20 = 0, run.n, run.n
FROM run CROSS JOIN (SELECT 1 AS n UNION ALL SELECT 2) d CROSS JOIN place ORDER BY run.n, d.n, place.n
"""
RUNS_ENTRIES = """
INSERT INTO keepstate_entry (scope_id, entry_key, value, version, updated_at, log_from, log_rows, log_limit)
SELECT id, 'k', '1', 1, 1, 1, 1, 20 FROM keepstate_scope WHERE kind = 'task'
"""
# the numbers of all runs: REST has to tell them as they are, as Airflow does
_EXACT = {"COUNT_RUNS", "COUNT_RUNS_OF_DAG"}
LISTS = {name for name in vars(list_statements) if name.isupper() and name[0] != "_"} - _EXACT - {"LIVE"}


@pytest.mark.parametrize("name", sorted(LISTS))
def test_a_list_takes_no_more_steps_where_there_are_ten_times_as_many_runs(name: str, tmp_path: Path) -> None:
    """SQLite counts them: a list looks at a bounded part of each dag, whatever else the dag has."""
    few, many = (_steps(name, tmp_path / f"{runs}.db", runs) for runs in (300, 3000))
    assert 0 < many <= 1.1 * few


@pytest.mark.parametrize("name", sorted(_EXACT))
def test_what_looks_at_all_runs_is_seen_by_its_steps(name: str, tmp_path: Path) -> None:
    """Counting them does."""
    few, many = (_steps(name, tmp_path / f"{runs}.db", runs) for runs in (300, 3000))
    assert many > 5 * few


def _steps(name: str, path: Path, runs: int) -> int:
    """Return how many steps a statement takes in a store that has so many runs."""
    open_file(path).close()
    statement = SQLITE.render(getattr(list_statements, name))
    numbers = {"limit": 20, "offset": 0, "most": 100, "counted": 100, "newer": 99, "now": 5}
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(RUNS, {"runs": runs})
        connection.execute(RUNS_ENTRIES)
        params = {one: numbers.get(one, TEXTS.get(one)) for one in PARAM.findall(statement)}
        steps = itertools.count()
        connection.set_progress_handler(lambda: next(steps) < 0, 1)
        connection.execute(statement, {**params, "pattern": "dag*"}).fetchall()
        return next(steps)


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
    text = PARAM.sub(lambda found: _literal(found[1]), POSTGRESQL.render(ASKED[name]))
    return "\n".join(row[0] for row in connection.execute(f"EXPLAIN {text}".encode()))


def _literal(name: str) -> str:
    if name.endswith(DIGEST):
        return "sha256('7'::bytea)"
    if name in {"scope_ids", "keys"}:
        return "ARRAY['7', '8']"
    return f"'{TEXTS[name]}'" if name in TEXTS else "20"


def assert_indexed(plan: str) -> None:
    """Fail where a table that may be large is read as a whole."""
    for table in ("scope", "entry", "log", "attempt"):
        assert f"Seq Scan on keepstate_{table}" not in plan, plan


# these go through many entries, and count on knowing that there are few of the kind
_INFORMED = {"KEYS_OF_ASSETS", "COUNT_DUE_LOG"}


@pytest.mark.parametrize("name", sorted(ASKED.keys() - _INFORMED))
def test_postgresql_goes_by_an_index(name: str, filled: psycopg.Connection) -> None:
    """However little it knows of its tables."""
    assert_indexed(plan_of(name, filled))


@pytest.mark.parametrize("name", sorted(_INFORMED))
def test_postgresql_goes_by_an_index_once_it_knows_its_tables(name: str, filled: psycopg.Connection) -> None:
    """Which entries are due, and whose they are: it has counted that within a minute."""
    filled.execute("SAVEPOINT ignorant")
    filled.execute("ANALYZE keepstate_entry")
    assert_indexed(plan_of(name, filled))
    filled.execute("ROLLBACK TO ignorant")
