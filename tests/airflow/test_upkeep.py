"""What Airflow's processes clean up now and then."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, String, create_engine, delete
from sqlalchemy.orm import Session, declarative_base

import keepstate
from keepstate.backends.requests import Fence
from keepstate.integrations.airflow import deletions, metadata, upkeep
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


Base: Any = declarative_base()


class DagRun(Base):
    """Stands in for Airflow's, with what is asked of it."""

    __tablename__ = "dag_run"
    dag_id = Column(String, primary_key=True)
    run_id = Column(String, primary_key=True)


def test_runs_that_airflow_deletes_in_bulk_take_their_state_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes when the deletion is committed, wherever the store is, and whether tries have ids or not."""
    module = ModuleType("airflow.models.dagrun")
    module.__dict__["DagRun"] = DagRun
    deletions.extend(module)
    engine = create_engine(f"sqlite:///{tmp_path / 'airflow.db'}")
    Base.metadata.create_all(engine)
    url = f"sqlite:///{tmp_path / 'state.db'}"
    with keepstate.connect(url, settings=Settings(url=url)) as store, Session(engine) as session:
        monkeypatch.setattr(metadata, "store", lambda: store)
        for dag_id, run_id in (("etl", "1"), ("etl", "2"), ("other", "1")):
            session.add(DagRun(dag_id=dag_id, run_id=run_id))
            store.task(dag_id, run_id, "load", try_number=1).set("page", 40)
        session.commit()
        for end in (session.rollback, session.commit):
            assert len(store.runs()) == 3
            session.execute(delete(DagRun).where(DagRun.dag_id == "etl"))
            end()
        assert [(run.dag_id, run.run_id) for run in store.runs()] == [("other", "1")]
    engine.dispose()
