"""The one set of statements, as each database spells it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from keepstate.backends.sql import cleanup_statements, list_statements, statements, tokens
from keepstate.backends.sql.dialects import MYSQL, POSTGRESQL, SQLITE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.backends.sql.dialects import Dialect

STATEMENTS = {
    name: text
    for module in (statements, list_statements, cleanup_statements, tokens)
    for name, text in vars(module).items()
    # the underscored ones of all but the last are parts of others
    if name.isupper()
    and isinstance(text, str)
    and name.startswith("_") == (module is tokens)
    and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", text)
}
# where a dialect has `put_in_one`, or `takes_arrays`; MySQL has neither
OF_SOME = {"PUT_IN_ONE", "PUT_AND_TRIM_IN_ONE", "ERASE_EXPIRED_OF_ALL", "SWEEP_ALL_EMPTIED_SCOPES"}
WHOLE = sorted(STATEMENTS.keys() - OF_SOME)


def spelt(dialect: Dialect, name: str) -> str:
    """Return a statement as it is sent."""
    return dialect.respelled(dialect.render(STATEMENTS[name]).replace("{scope}", "s.id = :id"))


def test_there_are_statements_to_look_at() -> None:
    """All that the backend has, the tokens' included."""
    assert len(WHOLE) > 60
    assert {"RENEW_ENTRY", "PUT_ENTRY", "TRIM_LOG", "DAGS", "_ADD"} <= set(WHOLE)


@pytest.mark.parametrize("name", WHOLE)
def test_sqlite_and_postgresql_spell_them_as_they_stand(name: str) -> None:
    """What is between them and a statement is a row lock or a pattern."""
    for dialect in (SQLITE, POSTGRESQL):
        assert dialect.respelled(STATEMENTS[name]) == STATEMENTS[name]


@pytest.mark.parametrize("name", WHOLE)
def test_mysql_is_told_nothing_that_it_does_not_know(name: str) -> None:
    """It knows less than MariaDB, which most tests run on."""
    text = spelt(MYSQL, name)
    for unknown in (
        "ON CONFLICT",
        "excluded.",
        "RETURNING",
        "||",
        "BIGINT",
        "RECURSIVE",
        "DISTINCT FROM",
        "GLOB",
        "{",
    ):
        assert unknown not in text


def test_mysql_needs_no_component_to_let_one_process_migrate() -> None:
    """MD5() and SHA1() are no functions of its own any more, from 9.6 on."""
    for statement in (MYSQL.lock_migrations, MYSQL.unlock_migrations):
        assert re.findall(r"\w+(?=\()", statement or "")[1:] == ["CONCAT", "LEFT", "SHA2", "DATABASE"]


@pytest.mark.parametrize("name", WHOLE)
def test_mysql_changes_no_table_that_it_reads(name: str) -> None:
    """It refuses to, unless it has read it before: in a table derived from it."""
    text = spelt(MYSQL, name)
    changed = re.match(r"\s*(?:UPDATE|DELETE FROM) (\w+)", text)
    if changed is None:
        return
    for read in re.finditer(rf"(?:FROM|JOIN) {changed[1]}\b", text):
        if read.start() > changed.end():
            assert any(before.endswith("FROM ") for before in _around(text, read.start())), read[0]


def _around(text: str, place: int) -> Iterator[str]:
    """Return what stands before each parenthesis that encloses a place."""
    depth = 0
    for at in range(place, -1, -1):
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if depth < 0:
            yield text[:at]
            depth = 0


@pytest.mark.parametrize("name", WHOLE)
def test_what_looks_at_a_column_s_old_value_comes_before_it_is_set(name: str) -> None:
    """MySQL assigns from left to right, and an expression sees what has been assigned."""
    text = spelt(MYSQL, name)
    found = re.search(r"(?:\bSET|ON DUPLICATE KEY UPDATE) (.*)", text, re.DOTALL)
    if found is None:
        return
    assigned: set[str] = set()
    for assignment in _parts(found[1].rpartition("\nWHERE ")[0] or found[1]):
        column, _, value = assignment.partition(" = ")
        looked_at = set(
            re.findall(r"(?<![:\w])\w+", re.sub(r"VALUES\(\w+\)|\bWHERE\b.*", "", value, flags=re.DOTALL))
        )
        assert not looked_at & assigned, assignment
        assigned.add(column.strip())


def _parts(text: str) -> Iterator[str]:
    """Return what lies between the commas outside of parentheses."""
    depth = 0
    part = ""
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            yield part
            part = ""
        else:
            part += letter
    yield part
