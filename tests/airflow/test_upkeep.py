"""What Airflow's processes clean up now and then."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from typing import TYPE_CHECKING

import keepstate
from keepstate.backends.requests import Fence
from keepstate.integrations.airflow import deletions, upkeep
from keepstate.scope import TaskScope
from keepstate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest


def test_a_damaged_writer_stops_no_cleanup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a success all is cleared that its attempt wrote; what nobody is known to have written stays."""
    file = tmp_path / "state.db"
    scopes = [TaskScope("dag", "run", task) for task in ("damaged", "sound")]

    def successes(dag_id: str, run_id: str) -> Iterator[tuple[TaskScope, Fence]]:
        assert (dag_id, run_id) == ("dag", "run")
        for scope in scopes:
            yield scope, Fence(1)

    monkeypatch.setattr(upkeep, "_successes", successes)
    with keepstate.connect(f"sqlite:///{file}", settings=Settings(clear_on_success=True)) as store:
        for scope in scopes:
            store.task("dag", "run", scope.task_id, try_number=1).set("k", 1)
        with closing(sqlite3.connect(file)) as raw, raw:
            damaged = (
                "UPDATE keepstate_entry SET writer = '{' WHERE scope_id = "
                "(SELECT id FROM keepstate_scope WHERE task_id = 'damaged')"
            )
            assert raw.execute(damaged).rowcount == 1
        assert upkeep.clear_what_succeeded(store) == 1
        assert [one.entries for one in store.task_instances("dag", "run")] == [1, 0]


def test_only_runs_of_airflow_s_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Airflow no longer knows goes with its run; what scripts keep in the same database is theirs."""
    url = f"sqlite:///{tmp_path / 'state.db'}"
    monkeypatch.setattr(deletions, "_known", lambda runs: {run for run in runs if run[1] == "kept"})
    monkeypatch.setenv("KEEPSTATE_URL", url)

    @keepstate.task
    def load(task_state_store: keepstate.TaskStateStore) -> None:
        task_state_store.set("page", 40)

    with keepstate.dag_run("script", run_id="by its runtime"):
        load()
    monkeypatch.delenv("KEEPSTATE_URL")
    with keepstate.connect(url) as store:
        for run_id in ("kept", "gone"):
            store.task("etl", run_id, "load", try_number=1, attempt_id=str(uuid.uuid4())).set("page", 40)
        store.task("script", "by hand", "load").set("page", 40)
        store.task("script", "with attempts", "load", try_number=1).set("page", 40)
        assert deletions.sweep(store) == 1
        left = {run.run_id for run in store.runs()}
    assert left == {"kept", "by hand", "with attempts", "by its runtime"}
