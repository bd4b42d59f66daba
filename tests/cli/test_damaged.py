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
