"""What becomes of a task's state when it succeeds, and when its run is deleted."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest

import keepstate
from tests.support.airflow import environment
from tests.support.airflow_services import services

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.slow

DAG_FILE = Path(__file__).parent / "dags" / "ending.py"
IN_SQLITE = {"3.0.6", "3.2.2"}


@pytest.mark.parametrize("version", ["2.11.2", "3.0.6", "3.1.8", "3.2.2"])
def test_success_clears_if_asked_and_a_deleted_dag_takes_all_with_it(version: str, tmp_path: Path) -> None:
    """Under clear_on_success, what a task stored goes when it succeeds, and stays when it fails.

    It is asked for in airflow.cfg. A run that is made again starts empty, and nothing is left of a deleted dag.
    """
    airflow = environment(version)
    environ = airflow.environ(tmp_path, AIRFLOW__CORE__DAGS_FOLDER=str(DAG_FILE.parent))
    airflow.migrate(environ)
    if version[:3] in {"2.1", "3.0"}:
        # there a dag is known only once it has been read for the scheduler
        airflow.run(["airflow", "dags", "reserialize"], environ)
    with (tmp_path / "airflow.cfg").open("a") as configuration:
        configuration.write("\n[state_store]\nclear_on_success = True\n")
    where = "--subdir" if version.startswith("2.") else "--dagfile-path"
    for _ in range(2):
        command = ["airflow", "dags", "test", "ending", "2026-11-29", where, str(DAG_FILE)]
        subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, check=False, timeout=300)

    with keepstate.connect(f"sqlite:///{tmp_path / 'airflow.db'}") as store:
        (run,) = store.runs()
        assert store.task("ending", run.run_id, "succeeds").get("left") is None
        assert store.task("ending", run.run_id, "fails").get("left") == 1
        airflow.run(["airflow", "dags", "delete", "--yes", "ending"], environ)
        assert store.runs() == []


@pytest.mark.parametrize("version", ["2.11.2", "3.0.6", "3.1.8", "3.2.2", "3.3.2"])
def test_nothing_stays_that_nobody_will_ask_for(
    version: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    """Cleanup comes by itself, for what has expired and for what a task left that died between success and clearing.

    A person who marks a task as successful has its state cleared, too. A task may outlast the token it began with.
    """
    more = {
        "AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS": "True",
        "AIRFLOW__EXECUTION_API__JWT_EXPIRATION_TIME": "20",
        "KEEPSTATE_CLEANUP_INTERVAL": "15",
    }
    if version.startswith("3.3"):
        more["AIRFLOW__STATE_STORE__BACKEND"] = "keepstate.integrations.airflow.StoreBackend"
    with ExitStack() as stack:
        # where Airflow marks a success in the file that is to be cleared, one must not wait for the other
        database = None if version in IN_SQLITE else stack.enter_context(postgres.database())
        folder = DAG_FILE.parent / "endings"
        airflow = stack.enter_context(
            services(environment(version), tmp_path, folder, database=database, **more)
        )
        store = stack.enter_context(keepstate.connect(database or f"sqlite:///{tmp_path / 'airflow.db'}"))
        airflow.note("marked", "waits")
        ((run_id,),) = airflow.query("SELECT run_id FROM dag_run WHERE dag_id = 'endings'")

        def entries(task_id: str) -> dict[str, Any]:
            return dict(store.task("endings", run_id, task_id).items())

        assert entries("marked") == {"left": 1}
        if version.startswith("2."):
            # without its pages, which tell keepstate nothing either
            with psycopg.connect(database or "") as metadata:
                metadata.execute("UPDATE task_instance SET state = 'success' WHERE task_id = 'marked'")
            airflow.wait_for("a cleanup", lambda: entries("marked") == {})
        else:
            path = f"/api/v2/dags/endings/dagRuns/{quote(run_id, safe='')}/taskInstances/marked"
            status, answer = airflow.request(
                "PATCH", path, token=airflow.token("admin"), body={"new_state": "success"}
            )
            assert status == 200, answer
            assert entries("marked") == {}

            # here its callbacks run after the success, and there before; 3.3 clears before it takes a success for one
            assert airflow.note("crashing") == ["crashing", None if version.startswith("3.3") else 1]
            airflow.wait_for("a cleanup", lambda: entries("crashing") == {})
            changes = store.task("endings", run_id, "crashing").history("left")
            assert [change.action for change in changes] == ["clear", "set"]
        rows = "SELECT entry_key FROM keepstate_entry WHERE entry_key IN ('short', 'long')"
        airflow.wait_for("a cleanup", lambda: airflow.query(rows) == [("long",)])
        assert airflow.note("lasting") == ["lasting", 44]
        airflow.wait_for("the success", lambda: airflow.states("endings")["lasting"] == "success")
        airflow.wait_for("its end", lambda: entries("lasting") == {})
