"""`keepstate doctor`, `db` and the other commands in the environment of an Airflow."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.airflow import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.airflow import Airflow

pytestmark = pytest.mark.slow

DAGS = Path(__file__).parent / "dags"
BACKEND = "keepstate.integrations.airflow.StoreBackend"


@dataclass
class Shell:
    """A shell in the environment of an Airflow, where nothing of keepstate's is configured."""

    airflow: Airflow
    environ: Mapping[str, str]

    def keepstate(self, *command: str, code: int = 0, **more: str) -> str:
        """Run keepstate's command, which has to end with ``code``, and return what it prints."""
        done = subprocess.run(
            [str(self.airflow.folder / "bin" / "keepstate"), *command],
            env={**self.environ, **more},
            cwd=self.environ["AIRFLOW_HOME"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def doctor(self, *, code: int = 0, **more: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the doctor's report, and its checks by their names."""
        report = json.loads(self.keepstate("doctor", "--json", code=code, **more).splitlines()[-1])
        return report, {check["name"]: check for check in report["checks"]}


def shell(version: str, home: Path, **more: str) -> Shell:
    """Open one on a fresh metadata database."""
    airflow = environment(version)
    environ = airflow.environ(home, AIRFLOW__CORE__DAGS_FOLDER=str(DAGS), **more)
    airflow.migrate(environ)
    return Shell(airflow, environ)


@pytest.mark.parametrize(("version", "way"), [("2.11.2", "database"), ("3.1.8", "supervisor")])
def test_with_nothing_configured_they_mean_the_store_of_the_tasks(
    version: str, way: str, tmp_path: Path
) -> None:
    """`db upgrade` makes the tables in Airflow's metadata database, and the doctor tells the way there and tries it."""
    here = shell(version, tmp_path)
    assert here.keepstate("db", "current").split()[-1] == "none"
    assert "applied 0001_initial" in here.keepstate("db", "upgrade")
    with closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        assert database.execute("SELECT COUNT(*) FROM keepstate_entry").fetchone() == (0,)
    report, checks = here.doctor()
    assert (report["ok"], report["airflow"], report["route"]) == (True, version, way)
    assert report["address"].endswith("airflow.db")
    assert {"airflow", "tables", "store", "test entry"} <= checks.keys()
    # none runs here, and tasks would need one
    assert ("API server" in checks and checks["API server"]["warning"]) == (way == "supervisor")

    (tmp_path / "airflow.cfg").write_text("[state_store]\ndefault_retention_days = a month\n")
    report, checks = here.doctor(code=78)
    assert "AIRFLOW__STATE_STORE__DEFAULT_RETENTION_DAYS is 'a month'" in checks["settings"]["detail"]
    assert "airflow" in {setting["source"] for setting in report["settings"]}


def test_other_commands_are_told_by_a_url(tmp_path: Path) -> None:
    """`--url airflow:` is the store of the tasks, for looking at it and for putting it right."""
    here = shell("3.1.8", tmp_path)
    here.airflow.dags_test(here.environ, DAGS / "quick.py", "quick")
    (run,) = json.loads(here.keepstate("runs", "--json", "--url", "airflow:").splitlines()[-1])
    scope = ["--dag-id", "quick", "--run-id", run["run_id"], "--task-id", "dies_once", "--url", "airflow:"]
    assert here.keepstate("get", "tries", *scope).split()[-1] == "2"
    here.keepstate("clear", "--yes", *scope)
    here.keepstate("get", "tries", *scope, code=1)
    report, _ = here.doctor(KEEPSTATE_URL=f"sqlite:///{tmp_path / 'apart.db'}")
    assert (report["route"], report["address"]) == ("KEEPSTATE_URL", f"sqlite:///{tmp_path / 'apart.db'}")


def test_on_3_3_the_doctor_says_whether_it_is_the_backend(tmp_path: Path) -> None:
    """Where Airflow keeps the state itself, it looks no further, and makes no tables."""
    here = shell("3.3.2", tmp_path)
    report, checks = here.doctor()
    assert (report["ok"], report["route"], sorted(checks)) == (True, "native", ["airflow", "settings"])
    with closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        assert not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'keepstate_entry'").fetchall()
    report, checks = here.doctor(AIRFLOW__STATE_STORE__BACKEND=BACKEND)
    assert (report["route"], report["address"]) == ("store backend", f"sqlite:///{tmp_path / 'airflow.db'}")
    assert checks["test entry"]["ok"]
