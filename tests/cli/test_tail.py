"""`keepstate tail`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from keepstate.cli import tail
from keepstate.errors import BackendUnavailableError
from keepstate.scope import AssetScope, TaskScope
from tests.cli.conftest import TASK, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def following(*argv: str) -> Iterator[subprocess.Popen[str]]:
    """Start `keepstate tail`, and wait until it follows."""
    with subprocess.Popen(
        [sys.executable, "-m", "keepstate", "tail", "--interval", "0.05", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as child:
        try:
            assert child.stderr is not None
            assert child.stderr.readline().startswith("keepstate: following ")
            yield child
        finally:
            child.kill()


def test_changes_are_printed_as_they_happen(store) -> None:
    """A line each, with what it is now; what was there before is not shown. Ctrl-C is exit code 130."""
    entries = store.task("etl", "r1", "load")
    entries.set("before", 1)
    with following(*TASK) as child:
        entries.set("page", 41)
        assert " load  page = 41  (version 2, api)" in child.stdout.readline()
        entries.set("position", {"position": 1, "total": 4, "done": False})
        assert "position = ━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 1/4 25%" in child.stdout.readline()
        entries.delete("page")
        assert " page deleted " in child.stdout.readline()
        child.send_signal(signal.SIGINT)
        rest, err = child.communicate(timeout=30)
        assert (child.returncode, rest, err) == (130, "", "")


def test_all_begins_with_what_is_there(store) -> None:
    """Then it goes on with what comes; with --json each line is an object."""
    entries = store.task("etl", "r1", "load", map_index=2)
    entries.set("page", 40)
    with following("--all", "--json", *TASK, "--map-index", "2") as child:
        first = json.loads(child.stdout.readline())
        assert list(first) == [
            "dag_id",
            "run_id",
            "task_id",
            "map_index",
            "key",
            "action",
            "value",
            "version",
            "updated_at",
            "writer",
        ]
        assert (first["map_index"], first["key"], first["action"], first["value"]) == (2, "page", "set", 40)
        assert first["writer"] == {"kind": "api"}
        store.task("etl", "r1", "load", map_index=2, try_number=1).set("page", 41)
        assert json.loads(child.stdout.readline())["writer"] == {
            "kind": "task",
            "dag_id": "etl",
            "run_id": "r1",
            "task_id": "load",
            "map_index": 2,
            "try_number": 1,
        }
        entries.clear()
        gone = json.loads(child.stdout.readline())
        assert (gone["action"], gone["value"], gone["version"]) == ("delete", None, 3)


def test_a_run_is_followed_with_the_tasks_that_come(store) -> None:
    """Without a task id, all task instances of the run are followed, those that begin later too."""
    store.task("etl", "r1", "load").set("k", 1)
    with following("--json", "--dag-id", "etl", "--run-id", "r1") as child:
        store.task("etl", "r1", "report").set("k", 2)
        assert json.loads(child.stdout.readline())["task_id"] == "report"
        store.task("etl", "r1", "load").set("k", 3)
        assert json.loads(child.stdout.readline())["task_id"] == "load"
        store.delete_run("etl", "r1")
        store.task("etl", "r1", "load").set("again", 4)
        assert json.loads(child.stdout.readline())["key"] == "again"


def test_an_asset_is_followed(store) -> None:
    """By its name or its uri."""
    store.asset("orders", uri="s3://orders").set("offset", 1)
    with following("--json", "--all", "--asset-uri", "s3://orders") as child:
        line = json.loads(child.stdout.readline())
        assert (line["asset_uri"], line["key"], line["value"]) == ("s3://orders", "offset", 1)


DAMAGED = {"{": "{", "NaN": "NaN", "null": "null", '"\0"': '"\0"', b"1": "b'1'", b"\xff": r"b'\xff'"}


@pytest.mark.parametrize("stored", DAMAGED, ids=ascii)
def test_what_is_damaged_is_shown_and_followed_on(store, home: Path, stored: str | bytes) -> None:
    """As such, in its turn, with --json and without; what comes before it and behind it is shown like always."""
    entries = store.task("etl", "r1", "load")
    for key in ("before", "bad", "behind"):
        entries.set(key, 1)
    connection = sqlite3.connect(home / "keepstate.db")
    with connection:
        connection.execute("UPDATE keepstate_entry SET value = ? WHERE entry_key = 'bad'", [stored])
    connection.close()
    with following("--all", "--json", *TASK) as child:
        lines = [json.loads(child.stdout.readline()) for _ in range(3)]
        assert [line["key"] for line in lines] == ["before", "bad", "behind"]
        assert [line["value"] for line in lines] == [1, None, 1]
        assert [line.get("damaged") for line in lines] == [None, DAMAGED[stored], None]
        entries.set("behind", 2)
        assert json.loads(child.stdout.readline())["value"] == 2
    with following("--all", *TASK) as child:
        before, bad, _ = (child.stdout.readline() for _ in range(3))
        assert " before = 1  (version 1, api)" in before
        assert " bad = damaged: " in bad
        assert "  (version 2, api)" in bad
        entries.set("bad", 3)
        assert " bad = 3 " in child.stdout.readline()


def test_a_reader_that_goes_away_ends_it_quietly(store) -> None:
    """`keepstate tail | head -1` ends with code 141 and no message."""
    entries = store.task("etl", "r1", "load")
    with following("--json", *TASK) as child:
        child.stdout.close()
        entries.set("page", 1)
        assert child.wait(timeout=30) == 141
        assert child.stderr.read() == ""


def test_half_a_scope_is_refused(run) -> None:
    """A dag alone can't be followed."""
    done = run("tail", "--dag-id", "etl")
    assert done.code == 2
    assert "--run-id" in one_line(done.err)


def test_a_store_that_cannot_be_reached_is_waited_for(run, store, monkeypatch) -> None:
    """It is said once when the store goes and once when it is back, and nothing that changed meanwhile is missed."""
    down = [True, True, False]

    class Flaky(tail.Follower):
        def news(self):
            if not down:
                raise KeyboardInterrupt
            if down.pop(0):
                raise BackendUnavailableError("the store is away", address="x")
            return super().news()

    monkeypatch.setattr(tail, "Follower", Flaky)
    store.task("etl", "r1", "load").set("page", 1)
    done = run("tail", "--all", "--interval", "0.05", *TASK)
    assert done.code == 130
    assert " page = 1 " in done.out
    assert done.err.splitlines() == [
        "keepstate: following etl / r1 / load; Ctrl-C ends it",
        "keepstate: the store is away; still trying",
        "keepstate: the store can be reached again",
    ]


def test_a_follower_shows_each_change_once(store) -> None:
    """A key that changed several times between two looks is shown as it stands."""
    scope = TaskScope("etl", "r1", "load")
    entries = store.task("etl", "r1", "load")
    follower = tail.Follower(store, lambda: {scope: None})
    follower.skip()
    assert follower.news() == []
    for number in range(3):
        entries.set("page", number)
    assert [(notice.key, notice.text) for notice in follower.news()] == [("page", "2")]
    assert follower.news() == []


@pytest.mark.parametrize("kind", ["task instance", "asset"])
def test_what_is_deleted_and_made_again_is_followed_on(store, kind: str) -> None:
    """Between two looks, so that its versions begin anew below the one that was seen last."""
    scope = TaskScope("etl", "r1", "load") if kind == "task instance" else AssetScope("orders")

    def put(value: int) -> None:
        accessor = store.asset("orders") if kind == "asset" else store.task("etl", "r1", "load")
        accessor.set("k", value)

    for number in range(5):
        put(number)
    follower = tail.Follower(store, lambda: {scope: None})
    follower.skip()
    store.delete_run("etl", "r1")
    store.delete_asset("orders")
    put(6)
    assert [(notice.key, notice.text) for notice in follower.news()] == [("k", "6")]
    assert follower.news() == []
    put(7)
    assert [(notice.key, notice.text) for notice in follower.news()] == [("k", "7")]


def test_trouble_halfway_loses_nothing(store, monkeypatch) -> None:
    """Where the second of two scopes can't be read, the first one's changes are shown at the next look."""
    scopes = {TaskScope("etl", "r1", name): None for name in ("load", "report")}
    follower = tail.Follower(store, lambda: scopes)
    for name in ("load", "report"):
        store.task("etl", "r1", name).set("k", 1)
    changes = store.backend.changes

    def broken(scope, **rest):
        if scope.task_id == "report":
            raise BackendUnavailableError("away", address="x")
        return changes(scope, **rest)

    monkeypatch.setattr(store.backend, "changes", broken)
    with pytest.raises(BackendUnavailableError):
        follower.news()
    monkeypatch.undo()
    assert [notice.scope.task_id for notice in follower.news()] == ["load", "report"]


@pytest.mark.parametrize("interval", ["0", "-1", "often"])
def test_an_interval_that_is_none_is_refused(run, interval: str) -> None:
    """It is exit code 2."""
    done = run("tail", "--interval", interval, *TASK)
    assert done.code == 2
    one_line(done.err)
