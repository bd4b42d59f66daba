"""Bringing tables up and taking them down, on every database."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from keepstate.backends.sql import migrations, upgrade
from keepstate.backends.sql.tables import Tables
from keepstate.connect import database_at
from keepstate.errors import BackendError, ConfigurationError, StaleAttemptError, StoreVersionError
from keepstate.settings import Settings
from tests.backends.children import in_child, python
from tests.backends.stores import open_url, task
from tests.support.mysql import ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from keepstate.backends.sql.database import Database


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param != "sqlite":
        return str(request.getfixturevalue(f"{request.param}_url"))
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
    if url.startswith("mysql"):
        return {name for (name,) in ask(url, "SHOW TABLES")}
    with psycopg.connect(url) as other:
        rows = other.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {name for (name,) in rows}


ALL = {
    f"keepstate_{name}"
    for name in ("scope", "attempt", "entry", "log", "session", "asset", "token", "store", "migration")
}
NAMES = [step.name for step in migrations.pending(0)]


def test_upgrading_makes_the_tables_once(url: str, database: Database) -> None:
    """And notes each step; a second time there is nothing to do."""
    assert upgrade.current(database) is None
    assert upgrade.upgrade(database, now=7) == NAMES
    assert upgrade.current(database) == migrations.LATEST == len(NAMES)
    assert tables(url) == ALL
    ((own,),) = database.query("SELECT id FROM keepstate_store", {})
    assert len(own) == 20
    assert upgrade.upgrade(database, now=8) == []
    assert database.query("SELECT id FROM keepstate_store", {}) == [(own,)]
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


def test_a_name_that_is_taken_stops_a_step(url: str, database: Database) -> None:
    """As often as it is tried; the table stays as it is. Nothing of the step is there then, but on MySQL, which goes on later."""
    with database.transaction() as tx:
        tx.run("CREATE TABLE keepstate_asset (of_somebody_else INTEGER)", {})
        tx.run("INSERT INTO keepstate_asset VALUES (7)", {})
    for _ in range(2):
        with pytest.raises(BackendError, match="already exists") as caught:
            upgrade.upgrade(database, now=0)
        assert caught.value.address == database.address
        if not url.startswith("mysql"):
            assert tables(url) == {"keepstate_asset"}
            assert upgrade.current(database) is None
    with database.transaction() as tx:
        assert tx.all("SELECT * FROM keepstate_asset", {}) == [(7,)]
        tx.run("ALTER TABLE keepstate_asset RENAME TO of_somebody_else", {})
    upgrade.upgrade(database, now=0)
    assert tables(url) == ALL | {"of_somebody_else"}
    assert _finds_nothing_wrong(database)


@pytest.mark.parametrize("way", ["upgrade", "downgrade"])
def test_a_process_that_is_killed_on_the_way_is_no_obstacle(url: str, way: str) -> None:
    """Wherever it is: the next one finishes what it began, and waits for nothing."""
    run = {
        "upgrade": lambda database: upgrade.upgrade(database, now=0),
        "downgrade": lambda database: upgrade.downgrade(database, 0),
    }[way]
    for at in range(0, 100, 4):
        _prepare(url, way)

        def until_killed(at: int = at) -> bool:
            database = database_at(url, Settings())
            with _killing_at(database, at):
                run(database)
            return True

        try:
            arrived = in_child(until_killed)
        except EOFError:
            arrived = False
        database = database_at(url, Settings())
        run(database)
        assert tables(url) == (ALL if way == "upgrade" else {"keepstate_migration"})
        upgrade.upgrade(database, now=0)
        assert _finds_nothing_wrong(database)
        database.close()
        if arrived:
            break
    assert at > 5


def _prepare(url: str, way: str) -> None:
    """Take all tables down, and for a downgrade make them anew."""
    database = database_at(url, Settings())
    upgrade.downgrade(database, 0)
    with database.transaction() as tx:
        tx.run("DROP TABLE IF EXISTS keepstate_migration", {})
    if way == "downgrade":
        upgrade.upgrade(database, now=0)
    database.close()


@contextmanager
def _killing_at(database: Database, number: int) -> Iterator[None]:
    """Have this process killed before it changes something for the ``number``-th time."""
    left = number

    def dying(run: Any) -> Any:
        def counted(self: Any, sql: str, params: Any) -> Any:
            nonlocal left
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return run(self, sql, params)

        return counted

    with database.transaction() as tx:
        kind = type(tx)
    kind.run = dying(kind.run)  # type: ignore[method-assign]
    yield


def _finds_nothing_wrong(database: Database) -> bool:
    return Tables(database).problems() == []


REVISIONS = list(range(1, migrations.LATEST))


@pytest.mark.parametrize("revision", REVISIONS)
def test_what_an_earlier_revision_held_is_kept(url: str, database: Database, revision: int) -> None:
    """Entries, history, attempts and assets, from each revision that there has been."""
    with open_url(url) as store:
        for number in range(3):
            task(store, try_number=1).set("n", number)
        store.asset("orders").set("cursor", {"at": 7})
        store.task("etl", "2026-11-29", "gone", try_number=2).set("k", 1)
        store.task("etl", "2026-11-29", "gone").delete("k")
    # what came later is taken down, and with it what it held, which then was nothing
    upgrade.downgrade(database, revision)
    assert upgrade.current(database) == revision
    with open_url(url) as store:
        assert task(store).get("n") == 2
        assert [one.value for one in task(store).history("n")] == [2, 1, 0]
        assert store.asset("orders").get("cursor") == {"at": 7}
        assert [one.action for one in store.task("etl", "2026-11-29", "gone").history("k")] == [
            "delete",
            "set",
        ]
        assert [info.scope.task_id for info in store.task_instances("etl", "2026-11-29")] == ["gone", "load"]
        with pytest.raises(StaleAttemptError):
            store.task("etl", "2026-11-29", "gone", try_number=1).set("k", 2)
        task(store, try_number=1).set("n", 3)
    assert upgrade.current(database) == migrations.LATEST
    assert _finds_nothing_wrong(database)


def test_many_processes_upgrade_once(url: str, database: Database) -> None:
    """They wait for each other, and each finds the tables whole."""
    upgrade.upgrade(database, now=0)
    upgrade.downgrade(database, 1)
    code = """
import sys
from keepstate.backends.sql import upgrade
from keepstate.connect import database_at
from keepstate.settings import Settings
database = database_at(sys.argv[1], Settings())
print(upgrade.current(database), flush=True)
sys.stdin.readline()
print(upgrade.upgrade(database, now=0))
"""
    programs = [python(code, url) for _ in range(4)]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "1\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    said = sorted((program.communicate(timeout=60)[0] for program in programs), key=len)
    assert said == ["[]\n"] * 3 + [f"{NAMES[1:]}\n"]
    assert _finds_nothing_wrong(database)


def test_every_step_can_be_taken_back() -> None:
    """Each has statements for both ways, and its number is its place."""
    steps = migrations.pending(0)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert all(step.up and step.down for step in steps)
    assert migrations.applied(len(steps), 0) == steps[::-1]
