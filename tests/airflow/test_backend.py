"""Airflow 3.3 with keepstate as the backend of its state store, and without."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import keepstate
from tests.airflow.test_contexts import EXPECTED, run_contexts
from tests.support.airflow import environment

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.slow

DAG_FILE = Path(__file__).parent / "dags" / "four_verbs.py"
RUN = "2026-11-29T00:00:00+00:00"
BACKEND = {"AIRFLOW__STATE_STORE__BACKEND": "keepstate.integrations.airflow.StoreBackend"}

OUTCOME = {
    "dies_once": [(1, "found", "nothing"), (2, "found", 1)],
    "all_verbs": [
        (1, "read", [{"text": "ü", "list": [1, 2.5, None, True]}, "expired"]),
        (1, "deleted", [None, 2]),
        (1, "cleared", None),
    ],
    "of_an_asset": [(1, "before", None), (1, "after", 20)],
}


def run_four_verbs(home: Path, *, times: int = 1, **more: str) -> dict[str, list[tuple[int, str, Any]]]:
    """Run the DAG so many times under one run id, and return what the last one's tasks noted."""
    airflow = environment("3.3.2")
    notes = home / "notes.jsonl"
    environ = airflow.environ(home, AIRFLOW__CORE__DAGS_FOLDER=str(DAG_FILE.parent), NOTES=str(notes), **more)
    airflow.migrate(environ)
    for _ in range(times):
        notes.unlink(missing_ok=True)
        airflow.run(["airflow", "dags", "test", "four_verbs", RUN, "--dagfile-path", str(DAG_FILE)], environ)
    noted: dict[str, list[tuple[int, str, Any]]] = {}
    for line in notes.read_text().splitlines():
        name, number, where, what = json.loads(line)
        if where == "kind":
            assert what.startswith("airflow."), "without KEEPSTATE_URL, the accessors stay Airflow's"
            continue
        noted.setdefault(name, []).append((number, where, what))
    return noted


def test_airflow_s_own_accessors_over_keepstate(tmp_path: Path) -> None:
    """Named as the backend, keepstate keeps what Airflow's accessors write, with its writer and its history.

    What has expired is gone at once, and a run made again under the same id starts empty.
    """
    noted = run_four_verbs(tmp_path, times=2, **BACKEND)
    assert noted == {**OUTCOME, "of_an_asset": [(1, "before", 20), (1, "after", 20)]}
    with closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        for table in ("task_state_store", "asset_state_store"):
            assert database.execute(f"SELECT COUNT(*) FROM {table}").fetchone() == (0,), table
        (run_id,) = database.execute("SELECT run_id FROM dag_run").fetchone()
    with keepstate.connect(f"sqlite:///{tmp_path / 'airflow.db'}") as store:
        page = store.task("four_verbs", run_id, "dies_once").entry("page")
        assert page is not None
        assert (page.value, page.expires_at, page.writer and page.writer.kind) == (2, None, "task")
        changes = store.task("four_verbs", run_id, "all_verbs").history("a")
        assert [change.action for change in changes][:2] == ["delete", "set"]
        mark = store.asset("shelf").entry("mark")
        assert mark is not None
        # `airflow dags test` has no tokens, and there Airflow takes every writer for a watcher
        assert mark.writer == keepstate.Writer("watcher")


def test_without_the_setting_airflow_keeps_its_state_itself(tmp_path: Path) -> None:
    """Installed, but not named as the backend, keepstate changes nothing on 3.3, and makes no tables."""
    noted = run_four_verbs(tmp_path, KEEPSTATE_URL=f"sqlite:///{tmp_path / 'unused.db'}")
    # 3.3.2 itself reads what has expired
    assert noted.pop("all_verbs")[0][2][1] == 1
    assert noted == {name: OUTCOME[name] for name in noted}
    with closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        assert database.execute("SELECT COUNT(*) FROM task_state_store").fetchone() == (1,)
        ours = database.execute("SELECT name FROM sqlite_master WHERE name LIKE 'keepstate%'").fetchall()
    assert ours == []
    assert not (tmp_path / "unused.db").exists()


def test_tasks_go_directly_to_the_store_of_the_backend(tmp_path: Path) -> None:
    """With KEEPSTATE_URL besides, tasks have all of keepstate's verbs, as they do below 3.3."""
    noted = run_contexts("3.3.2", tmp_path, KEEPSTATE_URL=f"sqlite:///{tmp_path / 'keepstate.db'}", **BACKEND)
    assert noted == EXPECTED


def test_who_holds_airflow_s_connections_waits_for_no_other(postgres: PostgresServer, tmp_path: Path) -> None:
    """As many sessions of Airflow's as its pool has connections can ask for state at once, while they hold these."""
    airflow = environment("3.3.2")
    with postgres.database() as database:
        environ = airflow.environ(
            tmp_path,
            AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=database.replace("postgresql:", "postgresql+psycopg2:"),
            **BACKEND,
        )
        airflow.migrate(environ)
        two = {
            "AIRFLOW__DATABASE__SQL_ALCHEMY_POOL_SIZE": "2",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_MAX_OVERFLOW": "0",
        }
        crowd = [str(airflow.python), str(Path(__file__).parent / "crowd.py")]
        airflow.run(crowd, {**environ, **two})
        with keepstate.connect(database) as store:
            assert dict(store.task("crowded", "r", "t").items()) == {"0": 0, "1": 1}


WITH_TWIN = """
import asyncio, airflow.settings
from airflow.state import AssetScope, get_state_backend
from airflow.state.metastore import AssetStateStoreWriterKind as Kind
backend = get_state_backend()
asyncio.run(backend.aset_asset_state_store(AssetScope(name="shelf"), "mark", "1", kind=Kind.WATCHER))
assert asyncio.run(backend.aget(AssetScope(name="shelf"), "mark")) == "1"
"""


def test_the_awaitable_twin_of_an_asset_s_write_goes_the_same_way(tmp_path: Path) -> None:
    """What it writes is in keepstate's table, where all read it, and not in Airflow's."""
    airflow = environment("3.3.2")
    environ = airflow.environ(tmp_path, **BACKEND)
    airflow.migrate(environ)
    airflow.run([str(airflow.python), "-c", WITH_TWIN], environ)
    with keepstate.connect(f"sqlite:///{tmp_path / 'airflow.db'}") as store:
        entry = store.asset("shelf").entry("mark")
        assert entry is not None
        assert entry.writer == keepstate.Writer("watcher")


def test_the_state_of_an_asset_goes_when_no_dag_names_it(tmp_path: Path) -> None:
    """As with Airflow's own state store; what scripts store for assets of theirs stays."""
    run_four_verbs(tmp_path, **BACKEND)
    airflow = environment("3.3.2")
    environ = airflow.environ(tmp_path, **BACKEND)
    clean_up = "import airflow.settings; from keepstate.integrations.airflow import upkeep; upkeep.clean_up()"

    def assets() -> set[str]:
        airflow.run([str(airflow.python), "-c", clean_up], environ)
        with keepstate.connect(f"sqlite:///{tmp_path / 'airflow.db'}") as store:
            return {asset.name for asset in store.assets()}

    with keepstate.connect(f"sqlite:///{tmp_path / 'airflow.db'}") as store:
        store.asset("a script's").set("mark", 1)
    assert assets() == {"shelf", "a script's"}
    with closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        assert database.execute("DELETE FROM asset_active WHERE name = 'shelf'").rowcount == 1
        database.commit()
    assert assets() == {"a script's"}


def test_what_can_not_be_stored_is_refused_for_good(tmp_path: Path) -> None:
    """Airflow's API answers 422, which no worker retries, and nothing is stored."""
    run_four_verbs(tmp_path, **BACKEND)
    airflow = environment("3.3.2")
    environ = airflow.environ(tmp_path, **BACKEND)
    script = [str(airflow.python), str(Path(__file__).parent / "oddities.py")]
    answers = json.loads(airflow.run(script, environ).splitlines()[-1])
    assert answers.pop("sound") == [204, 200, 204]
    assert answers == dict.fromkeys(("long", "dotted", "NUL", "deep", "large", "surrogate"), [422] * 3)
    with keepstate.connect(f"sqlite:///{tmp_path / 'airflow.db'}") as store:
        (run,) = store.runs()
        assert dict(store.task("four_verbs", run.run_id, "all_verbs").items()) == {}


def test_entries_of_before_an_upgrade_are_told_of(tmp_path: Path) -> None:
    """Where Airflow 3.3 keeps its state itself, and keepstate's tables hold entries, the scheduler says so as it starts."""
    airflow = environment("3.3.2")
    environ = airflow.environ(tmp_path, AIRFLOW__CORE__DAGS_FOLDER=str(DAG_FILE.parent))
    airflow.migrate(environ)
    with keepstate.connect(f"sqlite:///{tmp_path / 'airflow.db'}") as store:
        tss = store.task("etl", "r", "load")
        tss.set("page", 40)
        tss.set("never", 1, retention=keepstate.NEVER_EXPIRE)
    start = [str(airflow.python), "-m", "airflow", "scheduler", "--num-runs", "2", "--skip-serve-logs"]
    started = subprocess.run(
        start, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert "hold 2 entries of before" in started.stdout + started.stderr


def test_entries_move_to_airflow_s_own_tables_and_back(tmp_path: Path) -> None:
    """An upgrade to 3.3's own state store loses nothing: entries go over with their expiry and writer, and can come back.

    What is there already stays, and so does what belongs to a run that Airflow does not know.
    """
    run_four_verbs(tmp_path, **BACKEND)
    airflow = environment("3.3.2")
    environ = airflow.environ(tmp_path)
    database = f"sqlite:///{tmp_path / 'airflow.db'}"

    def move(*command: str) -> Any:
        whole = [str(airflow.python), "-m", "keepstate", "airflow", *command, "--json"]
        return json.loads(airflow.run(whole, environ).splitlines()[-1])

    def own(table: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(tmp_path / "airflow.db")) as connection:
            return connection.execute(f"SELECT key, value FROM {table} ORDER BY key").fetchall()

    with keepstate.connect(database) as store:
        (run,) = store.runs()
        task = store.task("four_verbs", run.run_id, "all_verbs")
        task.set("more", {"a": "ü"}, retention=timedelta(days=3))
        expires_at = task.entry("more").expires_at
        store.task("unheard-of", "r", "t").set("page", 1)
        store.asset("shelf").set("more", [1])

    assert move("export") == {"moved": 4, "present": 0, "homeless": 1, "refused": 0}
    assert [key for key, _ in own("task_state_store")] == ["more", "page"]
    assert [key for key, _ in own("asset_state_store")] == ["mark", "more"]
    with keepstate.connect(database) as store:
        assert store.task("four_verbs", run.run_id, "all_verbs").get("more") is None
        assert store.task("unheard-of", "r", "t").get("page") == 1

    assert move("import", "--keep")["moved"] == 4
    with keepstate.connect(database) as store:
        entry = store.task("four_verbs", run.run_id, "all_verbs").entry("more")
        assert (entry.value, entry.expires_at) == ({"a": "ü"}, expires_at)
        assert store.asset("shelf").get("more") == [1]
    assert move("export", "--keep") == {"moved": 0, "present": 4, "homeless": 1, "refused": 0}
    assert move("import") == {"moved": 0, "present": 4, "homeless": 0, "refused": 0}
    assert own("task_state_store") == own("asset_state_store") == []


def test_what_can_not_be_moved_stays_and_is_named(tmp_path: Path) -> None:
    """One odd row keeps none of the others from being moved, in whatever page of them it is."""
    run_four_verbs(tmp_path)
    airflow = environment("3.3.2")
    environ = airflow.environ(tmp_path)
    database = tmp_path / "airflow.db"

    def move(command: str) -> subprocess.CompletedProcess[str]:
        whole = [str(airflow.python), "-m", "keepstate", "airflow", command]
        return subprocess.run(
            whole, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
        )

    of_task = """
    INSERT INTO task_state_store (dag_run_id, task_id, map_index, key, dag_id, run_id, value, updated_at)
    SELECT dag_run_id, task_id, map_index, ?, dag_id, run_id, ?, updated_at FROM task_state_store WHERE key = 'page'
    """
    of_asset = """
    INSERT INTO asset_state_store (asset_id, key, value, updated_at)
    SELECT asset_id, ?, '1', updated_at FROM asset_state_store WHERE key = 'mark'
    """
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(of_task, ("nan", '{"a": NaN}'))
        connection.executemany(of_task, [(f"row-{n}", f"{n}") for n in range(1100)])
        connection.execute(of_task, ("deep", "[" * 100_000))
        connection.executemany(of_asset, [("..",), ("sound",)])
        connection.commit()
    done = move("import")
    # 1,100, `page`, `sound` and `mark`
    assert done.stdout == "moved 1,103 entries; 3 can't be moved, and stay\n"
    assert "the key 'nan' of task instance four_verbs / " in done.stderr
    assert "NaN is no JSON" in done.stderr
    assert "the key '..' of asset 'shelf': a key must not have '.' or '..'" in done.stderr
    with closing(sqlite3.connect(database)) as connection:
        left = connection.execute(
            "SELECT key FROM task_state_store UNION ALL SELECT key FROM asset_state_store ORDER BY key"
        ).fetchall()
        assert left == [("..",), ("deep",), ("nan",)]
        connection.execute("UPDATE keepstate_entry SET value = '{' WHERE entry_key = 'row-7'")
        connection.commit()
    with keepstate.connect(f"sqlite:///{database}") as store:
        (run,) = store.runs()
        assert len(store.task("four_verbs", run.run_id, "dies_once").entries(damaged=True)) == 1101
    done = move("export")
    assert done.stdout == "moved 1,102 entries; 1 can't be moved, and stay\n"
    assert "the key 'row-7' of four_verbs / " in done.stderr
    with keepstate.connect(f"sqlite:///{database}") as store:
        left = store.task("four_verbs", run.run_id, "dies_once").entries(damaged=True)
        assert [entry.damaged for entry in left if entry.key == "row-7"] == ["{"]


def test_clear_on_success_in_one_sqlite_file(tmp_path: Path) -> None:
    """What succeeds is cleared at once, also where Airflow writes the success into the file that the state is in."""
    run_four_verbs(
        tmp_path, AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS="True", KEEPSTATE_RETRY_TIMEOUT="1", **BACKEND
    )
    with keepstate.connect(f"sqlite:///{tmp_path / 'airflow.db'}") as store:
        (run,) = store.runs()
        assert dict(store.task("four_verbs", run.run_id, "dies_once").items()) == {}
        assert store.asset("shelf").get("mark") == 20


def test_airflow_s_own_cleanup(tmp_path: Path) -> None:
    """`airflow state-store clean` removes what has expired from keepstate's tables; asked to tell only, it names the entries."""
    airflow = environment("3.3.2")
    environ = airflow.environ(tmp_path, **BACKEND)
    airflow.migrate(environ)
    with keepstate.connect(f"sqlite:///{tmp_path / 'airflow.db'}", clock=lambda: 10**15) as store:
        store.task("etl", "r", "load", map_index=3).set("page", 40)
        store.task("etl", "r", "load", map_index=3).set("kept", 1, retention=keepstate.NEVER_EXPIRE)

    def clean(*options: str) -> str:
        return airflow.run(["airflow", "state-store", "clean", *options], environ)

    said = clean("--dry-run")
    assert "Would delete 1 " in said
    assert "Dag 'etl', run 'r', task 'load', map_index 3, key 'page'" in said
    clean()
    assert "Nothing to delete" in clean("--dry-run")
    with closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        kept = database.execute("SELECT entry_key FROM keepstate_entry WHERE value IS NOT NULL").fetchall()
    assert kept == [("kept",)]
