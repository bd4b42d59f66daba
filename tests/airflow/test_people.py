"""keepstate's pages inside an Airflow whose roles reach some dags only: with its FAB auth manager."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.airflow.tabs import DAG_FILE, Inside
from tests.support.airflow import environment
from tests.support.airflow_services import services

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PEOPLE = Path(__file__).parent / "people.py"
FAB = {"AIRFLOW__CORE__AUTH_MANAGER": "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"}


def test_a_role_for_another_dag_sees_nothing_of_this_one(tmp_path: Path) -> None:
    """Who may see the dag's task instances sees what they store, and who may edit and delete these changes it."""
    dags = tmp_path / "dags"
    dags.mkdir()
    shutil.copy(DAG_FILE, dags)
    airflow = environment("3.1.8", "apache-airflow-providers-fab")
    with services(airflow, tmp_path, dags, **FAB) as running:
        airflow.run([str(airflow.python), str(PEOPLE)], running.environ)
        assert set(running.wait_until_done("tab").values()) == {"success"}, running.logs()
        ((run_id,),) = running.query("SELECT run_id FROM dag_run WHERE dag_id = 'tab'")
        inside = Inside(running, run_id, "Storage")
        page = inside.path("load")
        entry = {"key": "by hand", "value": "1", "version": "0"}
        found = {}
        for name in ("looker", "keeper", "stranger"):
            token = running.token(name)
            status, text, _ = inside.ask(page, token)
            events = inside.ask(f"/events{page}", token)[0]
            saved = inside.ask(f"{page}/entries", token, entry)[0]
            found[name] = status, events, "submitted" in text, "Add Task State Store" in text, saved
        assert found == {
            "looker": (200, 200, True, False, 403),
            "keeper": (200, 200, True, True, 204),
            "stranger": (403, 403, False, False, 403),
        }
        assert "keeper, on the web pages" in inside.ask(page, running.token("looker"))[1]
