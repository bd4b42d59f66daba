"""The commands on a store behind a server: all but those that look after its tables."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

import keepstate
from keepstate.cli.exit_codes import ExitCode
from keepstate.settings import Settings
from tests.cli.conftest import TASK
from tests.support.ports import free_port
from tests.support.served import serving_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Result
    from tests.support.served import Served

    Run = Callable[..., Result]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server, which the environment names, with the token of a worker."""
    with (
        keepstate.connect(f"sqlite:///{tmp_path / 'behind.db'}", settings=Settings()) as store,
        serving_store(store) as served,
    ):
        monkeypatch.setenv("KEEPSTATE_URL", served.url)
        monkeypatch.setenv("KEEPSTATE_TOKEN", served.token("worker"))
        yield served


def test_entries_are_set_and_looked_at(served: Served, run: Run) -> None:
    """As in any store."""
    for value in ("40", '{"é": [1, null]}'):
        assert run("set", "page", value, *TASK).code == 0
    assert json.loads(run("get", "page", *TASK).out) == {"é": [1, None]}
    assert [one["key"] for one in json.loads(run("list", "--json", *TASK).out)] == ["page"]
    assert len(json.loads(run("history", "page", "--json", *TASK).out)) == 2
    assert run("restore", "page", "1", *TASK).code == 0
    assert run("get", "page", *TASK).out == "40\n"
    assert run("delete", "page", *TASK).code == 0
    assert run("get", "page", *TASK).code != 0
    assert run("set", "a", "1", "--asset", "orders").code == 0
    assert [one["name"] for one in json.loads(run("assets", "--json").out)] == ["orders"]
    assert [one["run_id"] for one in json.loads(run("runs", "--json").out)] == ["r1"]


def test_programs_are_supervised(served: Served, run: Run) -> None:
    """The second attempt finds what the first one wrote, through the server."""
    code = (
        "import sys, keepstate; tss = keepstate.task_state_store(); "
        "sys.exit(0 if tss.increment('n') == 2 else 3)"
    )
    done = run(
        "run",
        "--dag-id",
        "d",
        "--run-id",
        "r",
        "--retries",
        "1",
        "--retry-delay",
        "0s",
        "--",
        sys.executable,
        "-c",
        code,
    )
    assert done.code == 0, done.err
    with keepstate.connect() as store:
        (instance,) = store.task_instances("d", "r")
        assert (instance.state, instance.try_number, instance.entries) == ("success", 2, 1)


@pytest.mark.parametrize(
    ("role", "dags"),
    [("viewer", None), ("worker", None), ("worker", "étl_*"), ("editor", None), ("admin", None)],
)
def test_the_doctor_asks_it(
    served: Served, run: Run, monkeypatch: pytest.MonkeyPatch, role: str, dags: str | None
) -> None:
    """With whatever token; and shows where it is, and that there is a token, but not which."""
    token = served.token(role, dags)
    monkeypatch.setenv("KEEPSTATE_TOKEN", token)
    for found in (run("doctor"), run("doctor", "--json"), run("doctor", "--all")):
        assert found.code == 0, found.out
        assert served.url in found.out
        assert "***" in found.out
        assert "admits the token" in found.out
        assert f"has the role {role}" in " ".join(found.out.split())
        assert token not in found.out + found.err
    (check,) = [one for one in json.loads(run("doctor", "--json").out)["checks"] if one["name"] == "token"]
    assert check["ok"]
    if role in {"worker", "admin"}:
        assert not check["warning"]
        assert check["detail"].endswith("tasks can run with it")
    else:
        assert check["warning"]
        assert "tasks can't run with it" in check["detail"]
    assert ("for dags that match 'étl_*'" in check["detail"]) == (dags is not None)
    with keepstate.connect() as store:
        assert store.assets() == []


def test_what_the_doctor_says_of_a_token_holds(
    served: Served, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the one that it warns of no command runs; with the other one, it does."""
    for role, code in (("editor", ExitCode.DENIED), ("worker", ExitCode.OK)):
        monkeypatch.setenv("KEEPSTATE_TOKEN", served.token(role))
        checks = json.loads(run("doctor", "--json").out)["checks"]
        warned_of = {one["name"] for one in checks if one["warning"]}
        assert ("token" in warned_of) == (code is ExitCode.DENIED)
        assert run("run", "--dag-id", "d", "--run-id", "r", "--retries", "0", "--", "true").code == code


def test_the_doctor_finds_nobody_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is called open that does not answer."""
    monkeypatch.setenv("KEEPSTATE_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("KEEPSTATE_RETRY_TIMEOUT", "0.1")
    found = run("doctor", "--json")
    assert found.code == ExitCode.UNAVAILABLE
    assert "is open" not in found.out


def test_the_doctor_says_what_is_wrong(served: Served, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that the server does not know, and one that no header can hold."""
    monkeypatch.setenv("KEEPSTATE_TOKEN", "kst_of_nobody")
    found = run("doctor", "--json")
    assert found.code == ExitCode.DENIED
    assert "set KEEPSTATE_TOKEN" in found.out
    assert "kst_of_nobody" not in found.out
    monkeypatch.setenv("KEEPSTATE_TOKEN", "kst of nobody")
    found = run("doctor", "--json")
    assert found.code == ExitCode.CONFIGURATION
    assert "kst of nobody" not in found.out + found.err


@pytest.mark.parametrize(
    "command", [("db", "current"), ("db", "check"), ("db", "upgrade"), ("db", "downgrade", "1", "--yes")]
)
def test_tables_are_looked_after_where_they_are(served: Served, run: Run, command: tuple[str, ...]) -> None:
    """Not through the server: one line says so."""
    refused = run(*command)
    assert refused.code == ExitCode.CONFIGURATION
    assert refused.err.count("\n") == 1
    assert "where the server runs" in refused.err


def test_cleaning_up_takes_the_right_to(served: Served, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is refused in one line, an administrator is not."""
    refused = run("cleanup")
    assert refused.code == ExitCode.DENIED
    assert "the role worker does not have" in refused.err
    assert refused.err.count("\n") == 1
    monkeypatch.setenv("KEEPSTATE_TOKEN", served.token("admin"))
    assert run("cleanup").code == 0
    assert run("cleanup", "--dry-run").code == 0
