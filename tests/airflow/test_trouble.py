"""keepstate in trouble inside Airflow: it stands in nobody's way, and says what is the matter to those who use it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.airflow.test_checkup import Shell
from tests.support.airflow import environment, keeping_out
from tests.support.airflow_services import services

pytestmark = pytest.mark.slow

DAGS = Path(__file__).parent / "dags"
TROUBLE = {
    "a setting that is no number": (
        {"AIRFLOW__STATE_STORE__DEFAULT_RETENTION_DAYS": "a month"},
        "AIRFLOW__STATE_STORE__DEFAULT_RETENTION_DAYS is 'a month'",
    ),
    "a database that is away": (
        {"KEEPSTATE_URL": "postgresql+psycopg2://keeper@127.0.0.1:1/nowhere", "KEEPSTATE_RETRY_TIMEOUT": "1"},
        "127.0.0.1",
    ),
    "an unknown store": ({"KEEPSTATE_URL": "gopher://nowhere"}, "there is no store of the kind gopher://"),
}


@pytest.mark.parametrize("trouble", TROUBLE)
@pytest.mark.parametrize("version", ["2.11.2", "3.1.8"])
def test_dags_that_use_no_store_run_whatever_is_wrong(version: str, trouble: str, tmp_path: Path) -> None:
    """A DAG without stores succeeds; one that uses them fails, and its log names what is wrong."""
    more, said = TROUBLE[trouble]
    airflow = environment(version)
    environ = airflow.environ(tmp_path, AIRFLOW__CORE__DAGS_FOLDER=str(DAGS), **more)
    airflow.migrate(environ)
    where = "--subdir" if version.startswith("2.") else "--dagfile-path"
    airflow.run(["airflow", "dags", "test", "plain", where, str(DAGS / "plain.py")], environ)
    done = subprocess.run(
        ["airflow", "dags", "test", "using", where, str(DAGS / "plain.py")],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert said in done.stdout + done.stderr


def test_an_api_server_without_keepstate_is_told_of_within_seconds(tmp_path: Path) -> None:
    """A task whose API server lacks keepstate fails at once, with the advice to install it there, and so does the doctor."""
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "using.py").write_text(
        (DAGS / "plain.py").read_text().replace('"using", schedule=None', '"using", schedule="@once"')
    )
    without = {"api-server": {"PYTHONPATH": str(keeping_out(tmp_path))}}
    with services(environment("3.1.8"), tmp_path, dags, apart=without) as airflow:
        assert airflow.wait_until_done("using") == {"using": "failed"}
        _, checks = Shell(airflow.airflow, airflow.environ).doctor(code=78)
        assert "has no keepstate" in checks["API server"]["detail"]
        ((seconds,),) = airflow.query("SELECT duration FROM task_instance WHERE dag_id = 'using'")
        logs = "".join(
            path.read_text()
            for path in (tmp_path / "logs").rglob("*.log")
            if "dag_id=using" in os.fspath(path)
        )
    assert "Airflow's API server has no keepstate" in logs
    assert "install keepstate there too" in logs
    assert seconds < 30
