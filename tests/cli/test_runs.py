"""`keepstate runs` and `keepstate assets`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from keepstate.backends.requests import Begin, End, Fence, Holder
from keepstate.runtime.liveness import this_process
from keepstate.scope import RunScope, TaskScope
from tests.cli.conftest import TASK, one_line
from tests.cli.terminal import on_terminal


def attempt(store, task_id: str, state: str | None, map_index: int = -1) -> None:
    """Carry out an attempt as an engine would, up to ``state``."""
    scope = TaskScope("etl", "r1", task_id, map_index)
    begun = store.backend.begin(
        Begin(scope, "0190-a", Holder("host", 1, "x"), now=store.clock(), lease=10_000_000)
    )
    if state:
        fence = Fence(begun.try_number, "0190-a")
        store.backend.end(End(scope, fence, state, now=store.clock()))


def test_runs_are_listed_latest_first(run) -> None:
    """Of one dag, or of all."""
    for dag in ("etl", "ml"):
        for number in (1, 2):
            run("set", "k", "1", "--dag-id", dag, "--run-id", f"r{number}", "--task-id", "t")
    listed = json.loads(run("runs", "--json").out)
    assert [(found["dag_id"], found["run_id"]) for found in listed] == [
        ("ml", "r2"),
        ("ml", "r1"),
        ("etl", "r2"),
        ("etl", "r1"),
    ]
    names = ["dag_id", "run_id", "state", "presence", "try_number", "created_at", "updated_at"]
    assert list(listed[0]) == names
    assert [found["dag_id"] for found in json.loads(run("runs", "--dag-id", "ml", "--json").out)] == [
        "ml"
    ] * 2
    assert len(json.loads(run("runs", "--json", "--limit", "3").out)) == 3
    assert run("runs").out.splitlines()[1].split()[:2] == ["ml", "r2"]


def state_of(run) -> list[str]:
    """Return the state and the number of starts that the table has for the one run there is."""
    header, line = run("runs").out.splitlines()
    assert header.split()[2:4] == ["STATE", "STARTS"]
    return line.split()[2:4]


def test_a_run_that_was_not_started_as_a_whole_has_the_state_of_its_tasks(run, store) -> None:
    """The most serious one; in JSON it has none, as nobody recorded one."""
    run("set", "k", "1", "--dag-id", "etl", "--run-id", "r1", "--task-id", "notes")
    assert state_of(run) == ["-", "-"]
    for task_id, state, shown in (
        ("extract", "success", "success"),
        ("load", None, "running"),
        ("report", "up_for_retry", "up_for_retry"),
        ("mail", "failed", "failed"),
        ("zip", "success", "failed"),
    ):
        attempt(store, task_id, state)
        assert state_of(run) == [shown, "-"]
    (listed,) = json.loads(run("runs", "--json").out)
    assert (listed["state"], listed["try_number"]) == (None, None)


def test_a_script_without_a_run_is_shown_with_the_state_that_it_came_to(run) -> None:
    """Of a task that ran outside any `dag_run`."""
    for body, code, state in (("pass", 0, "success"), ("raise OSError", 1, "failed")):
        script = f"import keepstate\n@keepstate.task\ndef load():\n    {body}\nload()"
        assert (
            subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode
            == code
        )
        assert run("runs").out.splitlines()[1].split()[2:4] == [state, "-"]


def test_one_whose_task_was_killed_is_shown_as_lost(run, store) -> None:
    """As in the list of its tasks."""
    me = this_process()
    holder = Holder(me.host, me.pid, f"{me.started}0")
    scope = TaskScope("etl", "r1", "load")
    store.backend.begin(Begin(scope, "0190-a", holder, now=store.clock(), lease=10_000_000))
    assert state_of(run) == ["lost?", "-"]


def test_no_runs_is_no_error(run) -> None:
    """Stdout stays empty."""
    done = run("runs")
    assert (done.code, done.out) == (0, "")
    one_line(done.err)


def test_show_lists_task_instances_with_state_and_progress(run, store) -> None:
    """Each row has the state, the try, how many entries, and how far checkpoints are."""
    attempt(store, "load", "failed")
    attempt(store, "report", "success", 3)
    run("set", "position", '{"position":5,"total":10,"done":false}', *TASK)
    run("set", "job", "7", *TASK)
    listed = json.loads(run("runs", "show", "--dag-id", "etl", "--run-id", "r1", "--json").out)
    assert [(ti["task_id"], ti["map_index"], ti["state"], ti["entries"]) for ti in listed] == [
        ("load", -1, "failed", 2),
        ("report", 3, "success", 0),
    ]
    assert listed[0]["checkpoints"] == {"position": {"position": 5, "total": 10, "done": False}}
    _, load, report = run("runs", "show", "--dag-id", "etl", "--run-id", "r1").out.splitlines()
    assert load.split()[:4] == ["load", "failed", "1", "2"]
    assert "5/10 50%" in load
    assert report.split()[:4] == ["report", "3", "success", "1"]


def test_several_checkpoints_are_named(run) -> None:
    """One row shows them all."""
    for key in ("pages", "rows"):
        run("set", key, '{"position":5,"total":10,"done":false}', *TASK)
    shown = run("runs", "show", "--dag-id", "etl", "--run-id", "r1").out
    assert "pages ━" in shown
    assert "; rows ━" in shown


@pytest.mark.parametrize(
    ("state", "colour"), [("success", "32"), ("failed", "31"), ("up_for_retry", "33"), (None, "36")]
)
def test_states_have_colours(store, state: str | None, colour: str) -> None:
    """On a terminal a state is seen at a glance; running is what has not ended."""
    attempt(store, "load", state)
    _, shown = on_terminal("runs", "show", "--dag-id", "etl", "--run-id", "r1")
    assert f"\x1b[{colour}m{state or 'running'}" in shown


def test_show_takes_the_supervised_run(run, monkeypatch) -> None:
    """Under `keepstate run` the run need not be named; half of one is refused."""
    run("set", "k", "1", *TASK)
    monkeypatch.setenv("KEEPSTATE_DAG_ID", "etl")
    monkeypatch.setenv("KEEPSTATE_RUN_ID", "r1")
    assert "load" in run("runs", "show").out
    refused = run("runs", "show", "--dag-id", "etl")
    assert refused.code == 2
    assert "--run-id is missing" in one_line(refused.err)


@pytest.mark.parametrize("command", [("runs", "show"), ("attempts",)])
def test_an_unknown_run_is_exit_code_1(run, store, command: tuple[str, ...]) -> None:
    """Stdout stays empty; a run without any tasks is no error."""
    run_of = ("--dag-id", "etl", "--run-id", "r1")
    done = run(*command, *run_of)
    assert (done.code, done.out) == (1, "")
    assert one_line(done.err) == "there is no run etl / r1"
    done = run(*command, *run_of, "--json")
    assert (done.code, done.out) == (1, "[]\n")
    store.backend.begin(Begin(RunScope("etl", "r1"), "0190-a", None, now=store.clock(), lease=10_000_000))
    assert run(*command, *run_of).code == 0


def test_a_task_that_was_only_written_to_has_no_attempts(run) -> None:
    """That is no error."""
    run("set", "k", "1", *TASK)
    for options in (TASK, TASK[:4]):
        done = run("attempts", *options)
        assert (done.code, done.out) == (0, "")
        assert "there are no attempts" in one_line(done.err)
        assert run("attempts", "--json", *options).out == "[]\n"


def test_delete_erases_a_run(run) -> None:
    """Entries and history go; without --yes, and without anybody to ask, nothing happens."""
    run("set", "k", "1", *TASK)
    refused = run("runs", "delete", "--dag-id", "etl", "--run-id", "r1")
    assert refused.code == 2
    assert "--yes" in one_line(refused.err)
    done = run("runs", "delete", "--dag-id", "etl", "--run-id", "r1", "--yes")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert json.loads(run("runs", "--json").out) == []
    assert json.loads(run("history", "k", "--json", *TASK).out) == []
    again = run("runs", "delete", "--dag-id", "etl", "--run-id", "r1", "--yes")
    assert again.code == 1
    one_line(again.err)


@pytest.mark.parametrize(
    ("answer", "code", "left"), [("y\n", 0, 0), ("yes\n", 0, 0), ("n\n", 1, 1), ("\n", 1, 1), ("\x04", 1, 1)]
)
def test_a_person_is_asked(run, answer: str, code: int, left: int) -> None:
    """On a terminal a question comes first, and only yes is yes."""
    run("set", "k", "1", *TASK)
    ended, shown = on_terminal("clear", *TASK, answer=answer)
    assert "Delete all entries of etl / r1 / load? [y/N]" in shown
    assert ended == code
    assert len(json.loads(run("list", "--json", *TASK).out)) == left


def test_assets_are_listed_and_deleted(run) -> None:
    """By name, with how many entries each has."""
    run("set", "offset", "1", "--asset", "orders", "--asset-uri", "s3://lake/orders")
    run("set", "offset", "1", "--asset", "users")
    listed = json.loads(run("assets", "--json").out)
    assert [(found["name"], found["uri"], found["entries"]) for found in listed] == [
        ("orders", "s3://lake/orders", 1),
        ("users", "users", 1),
    ]
    assert list(listed[0]) == ["id", "name", "uri", "entries", "updated_at"]
    assert "s3://lake/orders" in run("assets").out
    assert run("assets", "delete", "s3://lake/orders").code == 2
    assert run("assets", "delete", "s3://lake/orders", "--yes").code == 0
    assert run("assets", "delete", "users", "--yes").code == 0
    assert json.loads(run("assets", "--json").out) == []
    gone = run("assets", "delete", "users", "--yes")
    assert gone.code == 1
    assert one_line(gone.err) == "there is no asset 'users'"
    assert run("assets").out == ""


def running(
    store, host: str, pid: int | None, started: str | None, age: int = 0, attempt_id: str = "0190-a"
) -> None:
    """Begin an attempt, as a process did that is gone before it could record its end."""
    for scope in (RunScope("etl", "r1"), TaskScope("etl", "r1", "load")):
        holder = Holder(host, pid, started) if pid else None
        store.backend.begin(Begin(scope, attempt_id, holder, now=store.clock() - age, lease=10_000_000))


def presence(run) -> set[str]:
    """Return what each command says of the presence of etl / r1."""
    run_of = ("--dag-id", "etl", "--run-id", "r1", "--json")
    found = [json.loads(run(*argv).out) for argv in (["runs", "--json"], ["runs", "show", *run_of])]
    return {one["presence"] for one in (*found[0], *found[1], *json.loads(run("attempts", *run_of).out))}


def test_what_was_killed_on_this_host_is_shown_as_lost(run, store) -> None:
    """The process is looked for by its pid and the time at which it started."""
    me = this_process()
    assert me.started is not None
    running(store, me.host, me.pid, me.started + "0")
    assert presence(run) == {"gone"}
    for argv in (["runs"], ["runs", "show", "--dag-id", "etl", "--run-id", "r1"]):
        shown = run(*argv).out
        assert " lost? " in shown
        assert "running" not in shown
    shown = run("attempts", "--dag-id", "etl", "--run-id", "r1").out.splitlines()
    assert [line.split()[0] for line in shown] == ["TASK", "load", "(the"]
    assert all(line.endswith("its process is gone") for line in shown[1:])
    assert str(me.pid) in shown[1]


def test_what_lives_is_running(run, store) -> None:
    """However old the last sign of life is, its process is there."""
    me = this_process()
    running(store, me.host, me.pid, me.started, age=3600_000_000)
    assert presence(run) == {"alive"}
    assert "lost" not in run("runs").out


def test_the_lease_decides_on_other_hosts(run, store) -> None:
    """Three heartbeats without a sign of life are too many."""
    running(store, "elsewhere", 1, "x y", age=90_000_000)
    assert presence(run) == {"silent"}
    assert "lost?" in run("runs").out
    assert "no heartbeat for 1 min" in run("attempts", *TASK).out
    assert run("runs", "delete", "--dag-id", "etl", "--run-id", "r1", "--yes").code == 0
    running(store, "elsewhere", 1, "x y", age=10_000_000, attempt_id="0190-b")
    assert presence(run) == {"alive"}


def test_of_what_another_engine_began_nothing_is_known(run, store) -> None:
    """It may take as long as it likes."""
    running(store, "", None, None, age=3600_000_000)
    assert presence(run) == {"unknown"}
    assert "running" in run("runs").out


def test_attempts_lists_those_of_a_task_newest_first(run, store, monkeypatch) -> None:
    """Under `keepstate run` nothing need be named."""
    attempt(store, "load", "failed")
    again = Begin(
        TaskScope("etl", "r1", "load"), "0190-b", Holder("h", 7, "x"), now=store.clock(), lease=10_000_000
    )
    store.backend.begin(again)
    listed = json.loads(run("attempts", "--json", *TASK).out)
    assert [(one["try_number"], one["state"], one["pid"]) for one in listed] == [
        (2, "running", 7),
        (1, "failed", 1),
    ]
    assert listed[1]["presence"] is None
    assert len(json.loads(run("attempts", "--json", "--limit", "1", *TASK).out)) == 1
    assert "failed" in run("attempts", *TASK).out
    for name, value in (("DAG", "etl"), ("RUN", "r1"), ("TASK", "load")):
        monkeypatch.setenv(f"KEEPSTATE_{name}_ID", value)
    assert json.loads(run("attempts", "--json").out) == listed


@pytest.mark.parametrize("limit", [1, 2, 3, 9])
def test_attempts_of_a_run_are_those_that_began_last(run, store, limit: int) -> None:
    """Of whichever tasks; those that were only written to, however many, leave them their place."""
    for number in range(10):
        store.task("etl", "r1", f"a{number}").set("k", 1)
    for task_id in ("z", "b", "m"):
        attempt(store, task_id, "failed")
    store.task("etl", "r1", "b").set("k", 1)
    listed = json.loads(
        run("attempts", "--json", "--dag-id", "etl", "--run-id", "r1", "--limit", str(limit)).out
    )
    assert [one["task_id"] for one in listed] == ["m", "b", "z"][:limit]


def test_attempts_of_a_mapped_task_have_its_index(run, store) -> None:
    """An index alone names nothing."""
    attempt(store, "load", "success", 3)
    assert "load [3]" in run("attempts", "--dag-id", "etl", "--run-id", "r1").out
    assert "load [3]" in run("attempts", *TASK, "--map-index", "3").out
    assert run("attempts", *TASK).code == 1
    refused = run("attempts", "--dag-id", "etl", "--run-id", "r1", "--map-index", "3")
    assert refused.code == 2
    assert "--task-id is missing" in one_line(refused.err)


@pytest.mark.parametrize("columns", [40, 80])
def test_a_run_id_stays_whole_on_a_narrow_terminal(run, store, columns: int) -> None:
    """So that it can be copied; less important columns are left out."""
    name = "manual__2026-11-29T21:32:04.707364+00:00"
    run("set", "k", "1", "--dag-id", "nightly-load", "--run-id", name, "--task-id", "load")
    _, shown = on_terminal("runs", columns=columns)
    assert name in shown
    assert "BEGAN" not in shown
    assert "STATE" in shown
