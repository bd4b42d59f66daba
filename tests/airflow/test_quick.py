"""A quick pass through real Airflow, in every `make test`; the rest of it is slow."""

from __future__ import annotations

from pathlib import Path

import pytest

import keepstate
from tests.support.airflow import environment

DAG_FILE = Path(__file__).parent / "dags" / "quick.py"


# the first time, the environment is made
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["2.11.2", "3.1.8"])
def test_a_retry_finds_what_the_first_attempt_stored(version: str, tmp_path: Path) -> None:
    """With keepstate installed and nothing configured, a DAG file of 3.3 keeps its state in Airflow's database."""
    airflow = environment(version)
    environ = airflow.environ(tmp_path, AIRFLOW__CORE__DAGS_FOLDER=str(DAG_FILE.parent))
    airflow.migrate(environ)
    airflow.dags_test(environ, DAG_FILE, "quick")
    with keepstate.connect(f"sqlite:///{tmp_path / 'airflow.db'}") as store:
        (run,) = store.runs()
        entry = store.task("quick", run.run_id, "dies_once").entry("tries")
    assert entry is not None
    assert (entry.value, entry.writer and entry.writer.try_number) == (2, 2)
