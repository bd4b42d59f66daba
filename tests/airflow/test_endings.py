"""What becomes of a task's state when it succeeds, and when its run is deleted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import keepstate
from tests.support.airflow import environment

pytestmark = pytest.mark.slow

DAG_FILE = Path(__file__).parent / "dags" / "ending.py"


@pytest.mark.parametrize("version", ["2.11.2", "3.0.6", "3.1.8", "3.2.2"])
def test_success_clears_if_asked_and_a_deleted_dag_takes_all_with_it(version: str, tmp_path: Path) -> None:
    """Under clear_on_success, what a task stored goes when it succeeds, and stays when it fails.

    It is asked for in airflow.cfg. A run that is made again starts empty, and nothing is left of a deleted dag.
    """
    airflow = environment(version)
    environ = airflow.environ(tmp_path, AIRFLOW__CORE__DAGS_FOLDER=str(DAG_FILE.parent))
    airflow.run(["airflow", "db", "migrate"], environ)
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
