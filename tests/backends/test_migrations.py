"""Bringing tables up and taking them down, on both databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from keepstate.backends.sql import migrations, upgrade
from keepstate.connect import database_at
from keepstate.errors import BackendError, ConfigurationError, StoreVersionError
from keepstate.settings import Settings
from tests.backends.stores import open_url, task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from keepstate.backends.sql.database import Database


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'keepstate.db'}"


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """The bare database, as `keepstate db` looks after it."""
    database = database_at(url, Settings())
    yield database
    database.close()


def tables(url: str) -> set[str]:
    """Return the names of the tables that are there."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            found = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            )
            return {name for (name,) in found.fetchall()}
    with psycopg.connect(url) as other:
        rows = other.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {name for (name,) in rows}


ALL = {
    f"keepstate_{name}"
    for name in ("scope", "attempt", "entry", "log", "session", "asset", "token", "migration")
}
NAMES = [step.name for step in migrations.pending(0)]


def test_upgrading_makes_the_tables_once(url: str, database: Database) -> None:
    """And notes each step; a second time there is nothing to do."""
    assert upgrade.current(database) is None
    assert upgrade.upgrade(database, now=7) == NAMES
    assert upgrade.current(database) == migrations.LATEST == len(NAMES)
    assert tables(url) == ALL
    assert upgrade.upgrade(database, now=8) == []
    noted = database.query("SELECT number, name, applied_at FROM keepstate_migration ORDER BY number", {})
    assert noted == [(number, name, 7) for number, name in enumerate(NAMES, start=1)]


def test_opening_an_up_to_date_store_changes_nothing(url: str, database: Database) -> None:
    """It only looks at the revision."""
    with open_url(url) as store:
        task(store).set("n", 1)
    before = database.query("SELECT number, name, applied_at FROM keepstate_migration", {})
    for _ in range(3):
        with open_url(url) as store:
            assert task(store).get("n") == 1
    assert database.query("SELECT number, name, applied_at FROM keepstate_migration", {}) == before


def test_downgrading_takes_the_tables_down(url: str, database: Database) -> None:
    """All of them but the one that says so; what they held is lost, and upgrading makes new ones."""
    with open_url(url) as store:
        task(store).set("n", 1)
    assert upgrade.downgrade(database, 0) == NAMES[::-1]
    assert upgrade.current(database) == 0
    assert tables(url) == {"keepstate_migration"}
    assert upgrade.downgrade(database, 0) == []
    with open_url(url) as store:
        assert task(store).get("n") is None
        task(store).set("n", 2)
    assert tables(url) == ALL


def test_a_downgrade_to_where_it_is_does_nothing(database: Database) -> None:
    """Nor does one of a database that has no store."""
    assert upgrade.downgrade(database, migrations.LATEST) == []
    assert upgrade.current(database) is None
    upgrade.upgrade(database, now=0)
    assert upgrade.downgrade(database, migrations.LATEST) == []
    assert upgrade.current(database) == migrations.LATEST


@pytest.mark.parametrize("target", [-1, migrations.LATEST + 1, 99])
def test_a_revision_that_is_none_is_refused(database: Database, target: int) -> None:
    """With those that are."""
    upgrade.upgrade(database, now=0)
    with pytest.raises(ConfigurationError, match=f"revision 0 to {migrations.LATEST}, not {target}"):
        upgrade.downgrade(database, target)
    assert upgrade.current(database) == migrations.LATEST


def test_tables_of_a_newer_keepstate_are_neither_upgraded_nor_taken_down(
    url: str, database: Database
) -> None:
    """This keepstate does not know how."""
    upgrade.upgrade(database, now=0)
    with database.transaction() as tx:
        tx.run("INSERT INTO keepstate_migration (number, name, applied_at) VALUES (9999, 'later', 0)", {})
    assert upgrade.current(database) == 9999
    with pytest.raises(StoreVersionError):
        upgrade.upgrade(database, now=0)
    with pytest.raises(StoreVersionError):
        upgrade.downgrade(database, 0)
    assert tables(url) == ALL


def test_a_step_that_fails_leaves_nothing(url: str, database: Database) -> None:
    """The tables of a step come all together: a name that is taken stops it, and is as it was."""
    with database.transaction() as tx:
        tx.run("CREATE TABLE keepstate_asset (of_somebody_else INTEGER)", {})
    with pytest.raises(BackendError, match="already exists"):
        upgrade.upgrade(database, now=0)
    assert tables(url) == {"keepstate_asset"}
    assert upgrade.current(database) is None


def test_every_step_can_be_taken_back() -> None:
    """Each has statements for both ways, and its number is its place."""
    steps = migrations.pending(0)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert all(step.up and step.down for step in steps)
    assert migrations.applied(len(steps), 0) == steps[::-1]
