"""`keepstate list`, `history` and `restore`."""

from __future__ import annotations

import json

import pytest

from keepstate.cli.tables import progress
from tests.cli.conftest import TASK, one_line
from tests.cli.terminal import on_terminal

STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\r\n"


def test_list_shows_entries_by_key(run) -> None:
    """A pipe gets plain whole lines under a heading."""
    run("set", "page", "40", *TASK)
    run("set", "job", '"j-17"', "--retention", "never", *TASK)
    done = run("list", *TASK)
    heading, job, page = done.out.splitlines()
    assert heading.split() == ["KEY", "VALUE", "VERSION", "UPDATED", "EXPIRES", "BY"]
    assert job.split()[:3] == ["job", '"j-17"', "2"]
    assert "never" in job
    assert page.split()[:3] == ["page", "40", "1"]
    assert "in 30 d" in page
    assert not any(line.endswith(" ") for line in (heading, job, page))


def test_list_of_nothing_prints_nothing(run) -> None:
    """Stdout stays empty, stderr says why, and it is no error; what has never been there is."""
    for options in ([], ["--json"]):
        absent = run("list", *options, *TASK)
        assert (absent.code, absent.out) == (1, "[]\n" if options else "")
        assert one_line(absent.err) == "there is no task instance: etl / r1 / load"
        absent = run("list", *options, "--asset", "orders")
        assert (absent.code, one_line(absent.err)) == (1, "there is no asset: orders")
    run("set", "page", "40", *TASK)
    run("delete", "page", *TASK)
    done = run("list", *TASK)
    assert (done.code, done.out) == (0, "")
    assert one_line(done.err) == "there are no entries in etl / r1 / load"
    assert run("list", "--json", *TASK).out == "[]\n"


def test_list_json_is_an_array_of_entries(run) -> None:
    """Each is what `get --json` prints."""
    run("set", "b", "2", *TASK)
    run("set", "a", "[1]", *TASK)
    listed = json.loads(run("list", "--json", *TASK).out)
    assert [entry["key"] for entry in listed] == ["a", "b"]
    assert listed[0] == json.loads(run("get", "a", "--json", *TASK).out)


def test_a_checkpoint_is_a_bar(run) -> None:
    """What checkpoint() stores is shown as progress."""
    run("set", "position", '{"position":120,"total":300,"done":false,"fingerprint":"ab"}', *TASK)
    assert "━━━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌ 120/300 40%" in run("list", *TASK).out


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"position": 0, "total": 10, "done": False}, "╌╌╌╌ 0/10 0%"),
        ({"position": 10, "total": 10, "done": True}, "━━━━ 10/10 100%"),
        ({"position": 1999, "total": 2000, "done": False}, "━━━╌ 1,999/2,000 99%"),
        ({"position": 12, "total": 10, "done": False}, "━━━━ 12/10 100%"),
        ({"position": 1200, "total": None, "done": False}, "1,200 done so far"),
        ({"position": 1200, "total": None, "done": True}, "━━━━ 1,200 done"),
        ({"position": 3, "total": 0, "done": True}, "3 done so far"),
        ({"position": 3, "total": -5, "done": False}, "3 done so far"),
    ],
)
def test_progress_never_shows_more_than_there_is(value, shown: str) -> None:
    """A bar is full, and says 100 %, only at its end; odd totals break nothing."""
    assert progress(value, 4) == shown


@pytest.mark.parametrize(
    "text",
    [
        '{"position":1}',
        '{"position":"1","total":3,"done":false}',
        '{"position":1,"total":"3","done":false}',
        "[]",
    ],
)
def test_what_only_looks_like_a_checkpoint_is_shown_as_json(run, text: str) -> None:
    """A user's own dict is no checkpoint."""
    run("set", "key", text, *TASK)
    assert text in run("list", *TASK).out


def test_stored_text_steers_no_terminal(run) -> None:
    """Control characters in keys and values are written out, in tables, JSON and messages."""
    key = f"key{STEERING}"
    run("set", key, "--raw", STEERING, *TASK)
    outputs = [
        run("list", *TASK).out,
        run("list", "--json", *TASK).out,
        run("history", key, *TASK).out,
        run("get", key, *TASK).out,
        run("get", key, "--json", *TASK).out,
        run("get", f"no {key}", *TASK).err,
        run("list", "--dag-id", STEERING, "--run-id", "r", "--task-id", "t").err,
        run("set", key, "x", "--if-version", "9", *TASK).err,
        run("set", key, "--retention", STEERING, "1", *TASK).err,
        run(STEERING).err,
        run("get", key, f"--{STEERING}").err,
    ]
    for text in outputs:
        assert text.strip()
        assert not set(STEERING) - set("owned031m2J]gnp;\n[") & set(text), text
        assert text.count("\n") <= 2


def test_get_raw_on_a_terminal_writes_control_characters_out(run) -> None:
    """A pipe gets the very bytes; a terminal is not steered."""
    run("set", "key", "--raw", f"one\ttwo\n{STEERING}", *TASK)
    assert run("get", "key", "--raw", *TASK).out == f"one\ttwo\n{STEERING}\n"
    code, shown = on_terminal("get", "key", "--raw", *TASK)
    assert code == 0
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert "one\ttwo\r\n\\x1b]0;owned" in shown


def test_markup_is_text(run) -> None:
    """Rich's own markup in keys and values is shown as it is."""
    run("set", "[red]key[/red] :smile:", "--raw", "[link=http://x]v[/link] [/]", *TASK)
    listed = run("list", *TASK).out
    assert "[red]key[/red] :smile:" in listed
    assert "[link=http://x]v[/link] [/]" in listed


def test_wide_and_long_values_keep_the_table_whole(run) -> None:
    """A value of 64 KB is one short cell, and emoji don't push columns about."""
    run("set", "big", "-", "--raw", *TASK, stdin=b"x" * 65_000)
    run("set", "家族👨‍👩‍👧", '"日本語"', *TASK)
    lines = run("list", *TASK).out.splitlines()
    assert len(lines) == 3
    assert "(65,002 characters)" in lines[1]
    assert max(len(line) for line in lines) < 200


def test_a_terminal_gets_colours_and_no_color_none(run) -> None:
    """NO_COLOR takes colours away, and bold and dim too."""
    run("set", "position", '{"position":1,"total":3,"done":false}', *TASK)
    assert "\x1b[36m" in on_terminal("list", *TASK)[1]
    assert "\x1b[" not in on_terminal("list", *TASK, NO_COLOR="1")[1]
    assert "\x1b[" not in on_terminal("list", "--help", NO_COLOR="1")[1]
    assert "\x1b[" in on_terminal("list", "--help")[1]
    assert "\x1b[" not in on_terminal("list", *TASK, TERM="dumb")[1]


def test_a_terminal_that_cannot_show_a_character_gets_it_written_out(run) -> None:
    """Another encoding than UTF-8 breaks neither tables nor help."""
    run("set", "🎉", '{"position":1,"total":3,"done":false}', *TASK)
    code, shown = on_terminal("list", *TASK, PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    assert code == 0
    assert "\\U0001f389" in shown
    code, shown = on_terminal("list", "--help", PYTHONIOENCODING="ascii", PYTHONUTF8="0", NO_COLOR="1")
    assert code == 0
    assert "--run-id" in shown


def test_a_narrow_terminal_keeps_keys_whole(run) -> None:
    """A key that has no room is not cut off, nor broken by the table."""
    run("set", "k" * 100, "1", *TASK)
    _, shown = on_terminal("list", *TASK, columns=60)
    assert "k" * 100 in shown


def test_a_narrow_terminal_gives_the_value_the_room(run) -> None:
    """Each entry takes one line; what matters less is left out."""
    run("set", "position", '{"position":640,"total":1000,"done":false}', *TASK)
    run("set", "report", "--raw", "word " * 50, *TASK)
    _, shown = on_terminal("list", *TASK, columns=80, NO_COLOR="1")
    lines = [line for line in shown.splitlines() if line.strip()]
    assert len(lines) == 4
    assert max(len(line) for line in lines) <= 80
    assert "640/1,000 64%" in lines[2]
    assert '"' + "word " * 7 in lines[3]
    assert "UPDATED" in lines[0]
    assert "EXPIRES" not in lines[0]
    _, shown = on_terminal("history", "report", *TASK, columns=60, NO_COLOR="1")
    assert len([line for line in shown.splitlines() if line.strip()]) == 3


def test_history_shows_versions_newest_first(run) -> None:
    """Each version has its action, value, size, time and writer."""
    run("set", "job", '"one"', *TASK)
    run("set", "job", '"two"', *TASK)
    run("delete", "job", *TASK)
    heading, *rows = run("history", "job", *TASK).out.splitlines()
    assert heading.split() == ["VERSION", "ACTION", "VALUE", "BYTES", "WRITTEN", "BY"]
    assert [row.split()[:2] for row in rows] == [["3", "delete"], ["2", "set"], ["1", "set"]]
    assert [version["value"] for version in json.loads(run("history", "job", "--json", *TASK).out)] == [
        None,
        "two",
        "one",
    ]
    assert len(json.loads(run("history", "job", "--json", "--limit", "1", *TASK).out)) == 1


def test_history_json_has_stable_names(run) -> None:
    """The names of what --json prints are a promise."""
    run("set", "job", '"one"', *TASK)
    (version,) = json.loads(run("history", "job", "--json", *TASK).out)
    assert list(version) == [
        "key",
        "version",
        "action",
        "value",
        "size",
        "sha256",
        "written_at",
        "expires_at",
        "writer",
    ]


def test_history_of_a_large_value_says_what_was_kept(run) -> None:
    """Above the size limit only size and hash are in the history."""
    run("set", "big", "-", "--raw", *TASK, stdin=b"x" * 70_000)
    row = run("history", "big", *TASK).out.splitlines()[1]
    assert "not kept, sha256" in row
    assert "70,002" in row


def test_no_history_is_no_error_where_there_is_the_key(run, monkeypatch) -> None:
    """Stdout stays empty; a key that has never been there is exit code 1."""
    absent = run("history", "k", *TASK)
    assert (absent.code, absent.out) == (1, "")
    assert "there is no key 'k'" in one_line(absent.err)
    assert run("history", "k", "--json", *TASK).out == "[]\n"
    monkeypatch.setenv("KEEPSTATE_HISTORY_LIMIT", "0")
    run("set", "k", "1", *TASK)
    done = run("history", "k", *TASK)
    assert (done.code, done.out) == (0, "")
    one_line(done.err)


def test_restore_writes_a_version_again(run) -> None:
    """A deleted key comes back."""
    run("set", "job", '"one"', *TASK)
    run("delete", "job", *TASK)
    done = run("restore", "job", "1", *TASK)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert run("get", "job", *TASK).out == '"one"\n'


def test_restoring_what_is_not_kept_fails(run) -> None:
    """It is exit code 1, and nothing changes."""
    run("set", "job", '"one"', *TASK)
    done = run("restore", "job", "7", *TASK)
    assert done.code == 1
    assert "version 7" in one_line(done.err)
    assert "`keepstate history job` lists what can" in done.err


def test_where_airflow_is_what_is_not_found_may_be_elsewhere(run, tmp_path, monkeypatch) -> None:
    """In the store of its tasks, which no command but `doctor` and `db` takes by itself."""
    monkeypatch.syspath_prepend(tmp_path)
    there = tmp_path / "apache_airflow_core-3.1.8.dist-info"
    there.mkdir()
    (there / "METADATA").write_text("Metadata-Version: 2.1\nName: apache-airflow-core\nVersion: 3.1.8\n")
    for command in (("list", *TASK), ("get", "k", *TASK), ("history", "k", *TASK), ("attempts", *TASK)):
        done = run(*command)
        assert done.code == 1
        assert done.err.endswith("for the state of Airflow's tasks, give --url airflow:\n"), command
    assert "airflow:" not in run("list", *TASK, "--url", f"sqlite:///{tmp_path}/other.db").err
    monkeypatch.setenv("KEEPSTATE_URL", f"sqlite:///{tmp_path}/other.db")
    assert "airflow:" not in run("list", *TASK).err
