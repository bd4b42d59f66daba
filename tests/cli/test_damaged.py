"""Commands where somebody else has written into the tables: what is damaged is named, and hides nothing."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import TASK, one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAMAGED: dict[str | bytes, str] = {
    "{": "{",
    "": "",
    "NaN": "NaN",
    "null": "null",
    '"\0"': '"\0"',
    r'"\ud800"': r'"\ud800"',
    b"1": "b'1'",
    b'"\xff': "b'\"\\xff'",
}


@pytest.fixture
def spoil(home: Path) -> Callable[..., None]:
    """A function that writes into the tables, past keepstate, what a key has for a value; bytes as a text, too."""

    def write(stored: str | bytes, key: str = "bad", tables: str = "entry log", kind: str = "BLOB") -> None:
        what = "?" if isinstance(stored, str) else f"CAST(? AS {kind})"
        connection = sqlite3.connect(home / "keepstate.db")
        with connection:
            for table in tables.split():
                sql = f"UPDATE keepstate_{table} SET value = {what} WHERE entry_key = ?"
                assert connection.execute(sql, [stored, key]).rowcount
        connection.close()

    return write


@pytest.mark.parametrize("stored", DAMAGED, ids=ascii)
def test_list_shows_what_is_damaged_beside_the_others(run, spoil, stored: str | bytes) -> None:
    """The key is named on stderr too, and the exit code says that the store is damaged."""
    run("set", "bad", "1", *TASK)
    run("set", "good", "2", *TASK)
    spoil(stored)
    done = run("list", "--json", *TASK)
    bad, good = json.loads(done.out)
    assert (bad["value"], bad["damaged"], bad["version"]) == (None, DAMAGED[stored], 1)
    assert (good["value"], "damaged" in good) == (2, False)
    assert (done.code, one_line(done.err)) == (
        74,
        "keepstate did not write what is under the key 'bad'; write it anew, or delete it",
    )
    done = run("list", *TASK)
    _, bad_row, good_row = done.out.splitlines()
    assert done.code == 74
    assert bad_row.startswith("bad   damaged: ")
    assert good_row.split()[:2] == ["good", "2"]


def test_list_reads_a_text_that_is_no_utf_8(run, spoil) -> None:
    """SQLite takes it for a text; its driver does not."""
    run("set", "bad", "1", *TASK)
    run("set", "good", "2", *TASK)
    spoil(b"\xff", kind="TEXT")
    assert [entry.get("damaged") for entry in json.loads(run("list", "--json", *TASK).out)] == [
        r"b'\xff'",
        None,
    ]


def test_get_of_what_is_damaged_prints_nothing(run, spoil) -> None:
    """It ends with the key on stderr; `set` mends it."""
    run("set", "bad", "1", *TASK)
    spoil("{")
    for options in ([], ["--json"], ["--raw"], ["--default", "1"]):
        done = run("get", "bad", *options, *TASK)
        assert (done.code, done.out) == (74, "")
        assert "under the key 'bad' of etl / r1 / load that keepstate did not write" in one_line(done.err)
    assert run("set", "bad", "3", *TASK).code == 0
    assert run("get", "bad", *TASK).out == "3\n"
    assert run("list", *TASK).code == 0


def test_history_shows_what_is_damaged_beside_the_others(run, spoil) -> None:
    """So that an earlier version can be found and restored; the damaged one can't be."""
    run("set", "bad", "1", *TASK)
    run("set", "good", "2", *TASK)
    spoil("{", tables="log")
    run("set", "bad", "3", *TASK)
    done = run("history", "bad", "--json", *TASK)
    newer, older = json.loads(done.out)
    assert (newer["value"], "damaged" in newer) == (3, False)
    assert (older["version"], older["value"], older["damaged"]) == (1, None, "{")
    assert done.code == 74
    assert one_line(done.err).startswith("keepstate did not write version 1, so it can't be restored; ")
    shown = run("history", "bad", *TASK)
    assert shown.code == 74
    assert "damaged: {" in shown.out
    refused = run("restore", "bad", "1", *TASK)
    assert (refused.code, run("get", "bad", *TASK).out) == (1, "3\n")
    assert "it is damaged, as keepstate did not write it" in one_line(refused.err)
    assert run("restore", "bad", "3", *TASK).code == 0


def test_of_many_the_first_few_are_named(run, spoil) -> None:
    """In one line."""
    for number in range(7):
        run("set", f"k{number}", "1", *TASK)
        spoil("{", key=f"k{number}")
    done = run("list", *TASK)
    assert "under the keys 'k0', 'k1', 'k2', 'k3', 'k4' and 2 more; " in one_line(done.err)
    assert len(done.out.splitlines()) == 8


def test_a_damaged_writer_is_nobody(run, home: Path) -> None:
    """And keeps no entry from being listed."""
    run("set", "bad", "1", *TASK)
    connection = sqlite3.connect(home / "keepstate.db")
    with connection:
        for table in ("entry", "log"):
            connection.execute(f"UPDATE keepstate_{table} SET writer = '{{'")
    connection.close()
    for command in (["list"], ["history", "bad"]):
        done = run(*command, "--json", *TASK)
        (shown,) = json.loads(done.out)
        assert (done.code, shown["value"], shown["writer"]) == (0, 1, None)


@pytest.fixture
def spoiled(run, spoil, home: Path) -> str:
    """The URL of a store with damaged values of every kind: as they stand, and in the history of another key."""
    for place, stored in enumerate(DAMAGED):
        run("set", f"bad{place}", "1", *TASK)
        spoil(stored, key=f"bad{place}")
    run("set", "bad-text", "1", *TASK)
    spoil(b"\xff", key="bad-text", kind="TEXT")
    run("set", "mended", "1", *TASK)
    spoil("{", key="mended", tables="log")
    run("set", "mended", "2", *TASK)
    run("set", "good", "[1]", *TASK)
    run("set", "at", "1", "--asset", "orders")
    return f"sqlite:///{home / 'keepstate.db'}"


BAD = len(DAMAGED) + 1


def test_an_export_without_what_is_damaged_is_whole_else(run, spoiled: str, tmp_path: Path) -> None:
    """All else goes out and comes in; what is left out is named, and counted in the last line."""
    out, other = tmp_path / "out.jsonl", f"sqlite:///{tmp_path / 'other.db'}"
    stopped = run("export", "-o", str(out))
    assert (stopped.code, out.exists()) == (74, False)
    assert "the key 'bad-text' of etl / r1 / load is damaged, and stopped the export: " in one_line(
        stopped.err
    )
    done = run("export", "--skip-damaged", "-o", str(out))
    assert done.code == 0
    assert one_line(done.err).startswith(
        "left out, as damaged: the key 'bad-text' of etl / r1 / load, the key "
    )
    assert one_line(done.err).endswith(f" and {BAD + 1 - 5} more")
    assert json.loads(out.read_text().splitlines()[-1]) == {"end": True, "scopes": 3, "left_out": BAD + 1}
    assert run("import", str(out), "--url", other).code == 0
    listed = json.loads(run("list", "--json", *TASK, "--url", other).out)
    assert {entry["key"]: entry["value"] for entry in listed} == {"good": [1], "mended": 2}
    (version,) = json.loads(run("history", "mended", "--json", *TASK, "--url", other).out)
    assert version["value"] == 2
    assert run("get", "at", "--asset", "orders", "--url", other).out == "1\n"
    assert spoiled != other


def test_an_export_of_what_is_sound_leaves_nothing_out(run) -> None:
    """With the option, as without it."""
    run("set", "good", "1", *TASK)
    plain, skipping = run("export"), run("export", "--skip-damaged")
    assert plain.out.splitlines()[1:] == skipping.out.splitlines()[1:]
    assert skipping.err == ""


def test_a_damaged_column_leaves_out_its_scope_alone(run, home: Path) -> None:
    """Where what is damaged is no value, the task instance can't be taken in as a whole; others are."""
    run("set", "k", "1", *TASK)
    run("set", "k", "1", "--dag-id", "other", "--run-id", "r1", "--task-id", "load")
    connection = sqlite3.connect(home / "keepstate.db")
    with connection:
        connection.execute("UPDATE keepstate_scope SET state = X'FF' WHERE dag_id = 'etl' AND kind = 'task'")
    connection.close()
    done = run("export", "--skip-damaged")
    assert (done.code, json.loads(done.out.splitlines()[-1])) == (
        0,
        {"end": True, "scopes": 3, "left_out": 1},
    )
    assert one_line(done.err) == "left out, as damaged: etl / r1 / load"


@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_a_copy_takes_along_what_is_damaged(
    run, spoiled: str, where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As it is, or where a database can't hold that, as Python shows it; it is damaged there too, and hides nothing."""
    target = f"sqlite:///{tmp_path / 'other.db'}"
    if where == "postgres":
        target = request.getfixturevalue("postgres_url")
    done = run("copy", spoiled, target, "--json")
    assert done.code == 0
    assert json.loads(done.out)["damaged"] == BAD
    assert done.err.startswith(
        "keepstate: the source has damaged values, which stay so in the target: the key 'bad"
    )
    listed = json.loads(run("list", "--json", *TASK, "--url", target).out)
    told = {entry["key"]: entry.get("damaged") for entry in listed}
    assert {key for key, damage in told.items() if damage is None} == {"good", "mended"}
    assert {entry["key"]: entry["value"] for entry in listed if "damaged" not in entry} == {
        "good": [1],
        "mended": 2,
    }
    assert told["bad-text"] == r"b'\xff'"
    again = run("copy", spoiled, target, "--json")
    assert (again.code, json.loads(again.out)["copied"]) == (0, 0)
