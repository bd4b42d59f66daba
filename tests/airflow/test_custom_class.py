"""A class of the user's own as the store of Airflow's tasks, below 3.3 as from 3.3 on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.airflow import environment

pytestmark = pytest.mark.slow

DAGS = Path(__file__).parent / "dags"


@pytest.mark.parametrize("version", ["2.11.2", "3.0.6", "3.1.8", "3.2.2"])
def test_tasks_keep_their_state_in_the_class_that_is_named(version: str, tmp_path: Path) -> None:
    """What a task stores is handed to the class in its own process, under clear_on_success taken back, and stays out of Airflow's database."""
    airflow = environment(version)
    files = tmp_path / "files"

    def run(**more: str) -> list[str]:
        environ = airflow.environ(
            tmp_path,
            AIRFLOW__CORE__DAGS_FOLDER=str(DAGS),
            AIRFLOW__STATE_STORE__BACKEND="files.FileStore",
            PYTHONPATH=str(DAGS),
            FILES=str(files),
            **more,
        )
        airflow.migrate(environ)
        airflow.dags_test(environ, DAGS / "plain.py", "using")
        return [path.name for path in files.rglob("*") if path.is_file()]

    assert run() == ["page"]
    assert (files / "using" / "using" / "-1" / "page").read_text() == "1"
    assert run(AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS="True") == []
    with closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        assert not database.execute("SELECT 1 FROM sqlite_master WHERE name LIKE 'keepstate%'").fetchall()
