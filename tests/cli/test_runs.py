"""`keepstate runs` and `keepstate assets`."""

from __future__ import annotations

import json

import pytest

from keepstate.backends.base import Begin, End, Fence, Holder
from keepstate.scope import TaskScope
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
    assert list(listed[0]) == ["dag_id", "run_id", "state", "try_number", "created_at", "updated_at"]
    assert [found["dag_id"] for found in json.loads(run("runs", "--dag-id", "ml", "--json").out)] == [
        "ml"
    ] * 2
    assert len(json.loads(run("runs", "--json", "--limit", "3").out)) == 3
    assert run("runs").out.splitlines()[1].split()[:2] == ["ml", "r2"]


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


def test_show_of_an_unknown_run_is_empty(run) -> None:
    """Stdout stays empty."""
    done = run("runs", "show", "--dag-id", "no", "--run-id", "no")
    assert (done.code, done.out) == (0, "")
    one_line(done.err)


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
