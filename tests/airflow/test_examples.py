"""The examples that Airflow 3.3 itself ships for its state stores, in versions that have none."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import keepstate
from tests.support.airflow import environment

pytestmark = pytest.mark.slow

LOCATE = "import airflow.example_dags as them; print(*them.__path__)"
FILES = 4
DAGS = (
    "example_task_state_store",
    "example_task_state_store_async",
    "example_task_state_store_mapped",
    "example_asset_state_store_producer",
    "example_asset_state_store_producer",
    "example_asset_state_store_consumer",
)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files as they are in the installed 3.3.2."""
    newest = environment("3.3.2")
    environ = newest.environ(tmp_path_factory.mktemp("newest"))
    source = Path(newest.run([str(newest.python), "-c", LOCATE], environ).split()[-1])
    folder = tmp_path_factory.mktemp("shipped")
    found = sorted(source.glob("example_*state_store*.py"))
    assert len(found) == FILES
    for path in found:
        shutil.copy(path, folder)
    return folder


@pytest.mark.parametrize("version", ["3.0.6", "3.1.8", "3.2.2"])
def test_airflow_s_own_examples_run_unchanged(version: str, shipped: Path, tmp_path: Path) -> None:
    """Each of them does with keepstate what it is there to show: resuming, awaiting, mapped tasks, an asset's watermark."""
    airflow = environment(version)
    environ = airflow.environ(tmp_path, AIRFLOW__CORE__DAGS_FOLDER=str(shipped))
    airflow.migrate(environ)
    airflow.dags_test(environ, shipped, *DAGS)
    with keepstate.connect(f"sqlite:///{tmp_path / 'airflow.db'}") as store:
        runs = {run.dag_id: run.run_id for run in store.runs()}

        def entries(dag_id: str, task_id: str, index: int = -1) -> dict[str, Any]:
            return dict(store.task(dag_id, runs[dag_id], task_id, map_index=index).items())

        job = store.task(DAGS[0], runs[DAGS[0]], "run_job")
        assert job.get("status") == "complete"
        assert job.get("result")["job_id"] == job.get("job_id")
        entry = job.entry("job_id")
        assert entry is not None
        assert (entry.expires_at, entry.writer and entry.writer.try_number) == (None, 1)

        progress = entries(DAGS[1], "ingest_pages")["progress"]
        assert progress == {"done": list(range(1, 13)), "rows": 7800}

        tables = [entries(DAGS[2], "process_table", index)["result"]["table"] for index in range(3)]
        assert tables == ["orders", "customers", "products"]

        orders = dict(store.asset("orders/daily").items())
        assert orders["total_runs"] == 2
        assert orders["last_run_summary"]["prev_watermark"] < orders["watermark"]
