"""Which scope a command works on, and in whose name."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import TASK, one_line


@pytest.fixture
def supervised(monkeypatch):
    """Set the variables that `keepstate run` sets, for a try number."""

    def set_up(try_number: int | None = 1, **others: str) -> None:
        facts = {"DAG_ID": "etl", "RUN_ID": "r1", "TASK_ID": "load", **others}
        if try_number is not None:
            facts["TRY_NUMBER"] = str(try_number)
        for name, value in facts.items():
            monkeypatch.setenv(f"KEEPSTATE_{name}", value)

    return set_up


def test_the_supervised_scope_needs_no_options(run, supervised) -> None:
    """Under `keepstate run` a key is enough, and the attempt is the writer."""
    supervised(3)
    assert run("set", "page", "4").code == 0
    entry = json.loads(run("get", "page", "--json").out)
    assert entry["writer"] == {
        "kind": "task",
        "dag_id": "etl",
        "run_id": "r1",
        "task_id": "load",
        "map_index": -1,
        "try_number": 3,
    }
    assert run("get", "page", *TASK).out == "4\n"


def test_a_mapped_index_counts(run, supervised) -> None:
    """The map index is part of the supervised scope."""
    supervised(1, MAP_INDEX="7")
    run("set", "page", "4")
    assert run("get", "page", *TASK).code == 1
    assert run("get", "page", *TASK, "--map-index", "7").out == "4\n"


@pytest.mark.parametrize(
    "command", [["set", "page", "9"], ["delete", "page"], ["clear"], ["clear", "--forget"]]
)
def test_an_attempt_that_was_superseded_may_change_nothing(run, supervised, command: list[str]) -> None:
    """A command of attempt 1 after attempt 2 has begun is exit code 76."""
    supervised(2)
    run("set", "page", "4")
    supervised(1)
    late = run(*command)
    assert late.code == 76
    one_line(late.err)
    assert run("get", "page", *TASK).out == "4\n"


def test_options_make_it_a_persons(run, supervised) -> None:
    """Explicit options are not fenced, even inside an attempt that was superseded."""
    supervised(2)
    run("set", "page", "4")
    supervised(1)
    assert run("set", "page", "5", *TASK).code == 0
    assert json.loads(run("get", "page", "--json", *TASK).out)["writer"]["kind"] == "cli"


def test_without_a_try_number_the_environment_names_a_scope_only(run, supervised) -> None:
    """The ids alone are a convenience for people."""
    supervised(None)
    run("set", "page", "4")
    assert json.loads(run("get", "page", "--json").out)["writer"]["kind"] == "cli"


def test_clear_asks_no_supervised_attempt(run, supervised) -> None:
    """An attempt clears its own state, history too, without a question."""
    supervised(1)
    run("set", "page", "4")
    assert run("clear", "--forget").code == 0
    assert json.loads(run("history", "page", "--json").out) == []


def test_an_asset_written_by_an_attempt_names_it(run, supervised) -> None:
    """Whoever looks at the asset sees which attempt wrote."""
    supervised(2)
    run("set", "offset", "17", "--asset", "orders")
    assert json.loads(run("get", "offset", "--json", "--asset", "orders").out)["writer"] == {
        "kind": "task",
        "dag_id": "etl",
        "run_id": "r1",
        "task_id": "load",
        "map_index": -1,
        "try_number": 2,
    }


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (["--dag-id", "etl"], "--run-id and --task-id are missing"),
        (["--run-id", "r1", "--task-id", "load"], "--dag-id is missing"),
        (["--map-index", "3"], "--dag-id and --run-id and --task-id are missing"),
        (["--dag-id", "etl", "--run-id", "", "--task-id", "load"], "--run-id is missing"),
    ],
)
def test_a_half_given_scope_is_refused(run, supervised, options: list[str], missing: str) -> None:
    """What is missing is named, and never filled in from the environment."""
    supervised(1)
    done = run("get", "page", *options)
    assert done.code == 2
    assert missing in one_line(done.err)


def test_a_half_given_environment_is_refused(run, monkeypatch) -> None:
    """The message names the variable."""
    monkeypatch.setenv("KEEPSTATE_DAG_ID", "etl")
    monkeypatch.setenv("KEEPSTATE_TASK_ID", "load")
    done = run("get", "page")
    assert done.code == 2
    assert "KEEPSTATE_RUN_ID is missing" in one_line(done.err)


def test_without_any_scope_it_says_how_to_give_one(run) -> None:
    """All three ways are named."""
    message = one_line(run("list").err)
    assert "--dag-id" in message
    assert "--asset" in message
    assert "keepstate run" in message


def test_task_and_asset_together_are_refused(run) -> None:
    """A command works on one scope."""
    done = run("list", *TASK, "--asset", "orders")
    assert done.code == 2
    assert "not both" in one_line(done.err)


@pytest.mark.parametrize("bad", ["a/b", "..", "x" * 251, "a\nb"])
def test_an_id_that_breaks_the_rules_is_refused(run, bad: str) -> None:
    """It is exit code 2 and one line."""
    done = run("list", "--dag-id", bad, "--run-id", "r", "--task-id", "t")
    assert done.code == 2
    one_line(done.err)


def test_a_bad_setting_is_refused_with_its_variable(run, monkeypatch) -> None:
    """The variable, the value and what is allowed are in one line, and the exit code is 78."""
    monkeypatch.setenv("KEEPSTATE_TRY_NUMBER", "first")
    done = run("get", "page", *TASK)
    assert done.code == 78
    assert one_line(done.err).startswith("KEEPSTATE_TRY_NUMBER is 'first', but must be")


def test_url_goes_before_the_environment(run, tmp_path, monkeypatch) -> None:
    """--url names the store, else KEEPSTATE_URL, else the embedded one."""
    one, other = (f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "other"))
    monkeypatch.setenv("KEEPSTATE_URL", other)
    run("set", "key", "1", "--url", one, *TASK)
    assert run("get", "key", *TASK).code == 1
    assert run("get", "key", "--url", one, *TASK).out == "1\n"


def test_an_unknown_store_is_a_matter_of_configuration(run) -> None:
    """The message names the schemes that are known; a password is not repeated."""
    done = run("list", *TASK, "--url", "redis://user:secret@host/0")
    assert done.code == 78
    assert "sqlite:///" in one_line(done.err)
    assert "secret" not in done.err
