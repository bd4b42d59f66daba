"""How MySQL and MariaDB carry out what pages ask: by an index, once they have counted their tables."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from keepstate.backends.sql.dialects import MYSQL
from tests.backends.stores import open_url
from tests.backends.test_plans import ASKED, DIGEST, PARAM, SPECIAL, TEXTS
from tests.support.mysql import RELEASE, connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.mysql import MysqlServer

# thirty thousand task instances of three thousand runs, each with an entry, a version and an attempt
FILLED = (
    """
INSERT INTO keepstate_scope
  (digest, kind, dag_id, run_id, task_id, map_index, incarnation, version, deleted, created_at, updated_at)
WITH RECURSIVE digit (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM digit WHERE n < 39),
  number (n) AS (SELECT 1 + a.n + 40 * b.n + 1600 * c.n FROM digit a CROSS JOIN digit b CROSS JOIN digit c)
SELECT UNHEX(SHA2(n, 256)), CASE WHEN n % 11 = 0 THEN 'run' ELSE 'task' END, CONCAT('dag', n DIV 11 % 20),
  CONCAT('r', n DIV 11), CASE WHEN n % 11 > 0 THEN CONCAT('t', n % 11) END, -1, 1, 1, 0, n, n
FROM number WHERE n <= 33000
""",
    """
INSERT INTO keepstate_entry (scope_id, entry_key, value, version, updated_at, log_from, log_rows, log_limit)
SELECT id, 'k', '1', 1, 1, 1, 1, 20 FROM keepstate_scope WHERE kind = 'task'
""",
    """
INSERT INTO keepstate_log (scope_id, entry_key, version, action, value, size, written_at)
SELECT id, 'k', 1, 'set', '1', 1, 1 FROM keepstate_scope WHERE kind = 'task'
""",
    """
INSERT INTO keepstate_attempt (scope_id, incarnation, try_number, attempt_id, state, started_at)
SELECT id, 1, 1, '', 'success', 1 FROM keepstate_scope WHERE kind = 'task'
""",
    # servers do so by themselves, some seconds after a tenth of a table has changed
    "ANALYZE TABLE keepstate_scope, keepstate_entry, keepstate_log, keepstate_attempt",
)
EXPLAIN = "EXPLAIN" if RELEASE.is_mariadb else "EXPLAIN FORMAT=TRADITIONAL"
MANY = 1000


@pytest.fixture(scope="module")
def filled(mysql: MysqlServer) -> Iterator[pymysql.Connection[Any]]:
    """A connection to a database whose tables have been filled and counted."""
    with mysql.database() as url:
        open_url(url).close()
        with connected(url, cursorclass=pymysql.cursors.DictCursor) as connection:
            with connection.cursor() as cursor:
                for statement in FILLED:
                    cursor.execute(statement)
            yield connection


def scanned(statement: str, connection: pymysql.Connection[Any]) -> list[dict[str, Any]]:
    """Return the steps of a statement's plan that go through a large table, or an index of one, from end to end."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"{EXPLAIN} {statement}")
        steps = cursor.fetchall()
    # what is in <> is made on the way; a table that is only written to has no number of rows
    return [
        step
        for step in steps
        if step["type"] in {"ALL", "index"} and step["table"][0] != "<" and int(step["rows"] or 0) > MANY
    ]


@pytest.mark.parametrize("name", sorted(ASKED.keys() - SPECIAL))
def test_mysql_goes_by_an_index(name: str, filled: pymysql.Connection[Any]) -> None:
    """No table that may be large is read as a whole."""
    text = MYSQL.respelled(MYSQL.render(ASKED[name]))
    assert scanned(PARAM.sub(lambda found: _literal(found[1]), text), filled) == []


def test_a_scan_would_be_seen(filled: pymysql.Connection[Any]) -> None:
    """Of a column that has no index."""
    (step,) = scanned("SELECT COUNT(*) FROM keepstate_entry e WHERE e.value = 'x'", filled)
    assert step["table"] == "e"


def _literal(name: str) -> str:
    if name.endswith(DIGEST):
        return "UNHEX(SHA2('7', 256))"
    return f"'{TEXTS[name]}'" if name in TEXTS else "20"
