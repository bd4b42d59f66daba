"""The runtime over other stores than the embedded one, and what a program keeps besides its tasks."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from keepstate import AlreadyRunningError, StateStore, connect, dag_run, task
from tests.support.programs import until

if TYPE_CHECKING:
    from tests.support.programs import Programs

HOLD = """
    import time
    from pathlib import Path
    from keepstate import dag_run, task

    @task
    def work(ti, task_state_store):
        for page in task_state_store.checkpoint(range(10)):
            Path("begun").touch()
            while page == 5 and not Path("go").exists():
                time.sleep(0.01)
        return ti.try_number

    with dag_run("nightly"):
        print(work())
"""


@pytest.mark.parametrize("server", ["postgres", pytest.param("mysql", marks=pytest.mark.slow)])
def test_over_a_database_server(programs: Programs, server: str, request: pytest.FixtureRequest) -> None:
    """A run is held, refused to a second start, found lost after SIGKILL, and goes on, under a supervisor too."""
    url = str(request.getfixturevalue(f"{server}_url"))
    programs.environment |= {"KEEPSTATE_URL": url, "KEEPSTATE_HEARTBEAT": "600"}
    command = programs.python(HOLD)
    with connect(url) as store:
        with programs.started(command) as first:
            until(programs.file("begun").exists)
            assert "AlreadyRunningError" in programs.run(command).stderr
            until(lambda: store.task("nightly", store.runs()[0].run_id, "work").get("position"))
            first.kill()
        programs.file("go").touch()
        second = programs.run(command)
        assert second.stdout.strip() == "2", second.stderr
        (run,) = store.runs("nightly")
        assert run.state == "success"
        supervised = programs.supervised(
            command, "--dag-id", "nightly", "--run-id", "2", "--task-id", "outer"
        )
        done = programs.run(supervised)
        assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr
        # `nightly` is the supervised dag, so its run is the supervised one
        states = {one.scope.task_id: one.state for one in store.task_instances("nightly", "2")}
        assert states == {"outer": "success", "work": "success"}


def test_over_memory() -> None:
    """Tests of one's own tasks need no file."""

    @task(retries=1, retry_delay=0)
    def work(task_state_store: Any) -> int:
        count: int = task_state_store.increment("count")
        if count == 1:
            raise RuntimeError
        return count

    with connect("memory:") as store:
        for _ in range(2):
            with dag_run("nightly", "1", store=store):
                assert work() == 2
                with pytest.raises(AlreadyRunningError), dag_run("nightly", "1", store=store):
                    pass
        assert [one.state for one in store.attempts("nightly", "1", "work")] == ["success", "up_for_retry"]


def test_a_new_run_withdraws_over_a_custom_class_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where runs can't be erased, one that began at the same moment as another is left as failed."""
    monkeypatch.setenv("AIRFLOW__STATE_STORE__BACKEND", "tests.support.custom_class.DictStore")
    with connect() as store:
        real, calls = store.backend.runs, []

        def runs(dag_id: str | None = None, **window: Any) -> Any:
            calls.append(1)
            return [] if len(calls) == 1 else real(dag_id, **window)

        with dag_run("nightly", "1", store=store):
            monkeypatch.setattr(store.backend, "runs", runs)
            with pytest.raises(AlreadyRunningError, match="same moment"), dag_run("nightly", store=store):
                pass
        assert sorted(str(run.state) for run in real("nightly")) == ["failed", "success"]


THROTTLED = """
    import sys
    from keepstate import task_state_store

    pages = task_state_store().checkpoint(range(10), every=100)
    for page in pages:
        if page == 7:
            sys.exit(1)
"""


def test_a_supervised_program_writes_what_it_held_back(programs: Programs, store: StateStore) -> None:
    """A throttled checkpoint outside any @task is written when the program ends, however it ends but by a kill."""
    ids = ("--dag-id", "nightly", "--run-id", "1", "--task-id", "load")
    assert programs.run(programs.supervised(programs.python(THROTTLED), *ids)).returncode == 1
    assert store.task("nightly", "1", "load").get("position")["position"] == 7


def test_a_dag_run_of_its_own_in_a_supervised_program(programs: Programs, store: StateStore) -> None:
    """A program that names another dag holds its own run, and it goes on when the supervisor starts the program again."""
    programs.file("go").touch()
    text = HOLD.replace("print(work())", "print(work()); time.sleep(600 * (not Path('done').exists()))")
    with programs.started(programs.supervised(programs.python(text), "--run-id", "1", "--retries", 3)) as it:
        attempt = until(
            lambda: (found := store.runs("nightly")) and store.attempts("nightly", found[0].run_id)
        )[0]
        until(lambda: store.task_instances("nightly", store.runs("nightly")[0].run_id)[0:])
        until(lambda: store.task_instances("nightly", store.runs("nightly")[0].run_id)[0].state == "success")
        programs.file("done").touch()
        os.kill(attempt.pid or 0, signal.SIGKILL)
        assert it.communicate(timeout=60)[0].split() == ["1", "1"]
    (run,) = store.runs("nightly")
    assert [one.state for one in store.attempts("nightly", run.run_id)] == ["success", "lost"]
    assert [run.state for run in store.runs("job.py")] == ["success"]
