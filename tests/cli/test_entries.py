"""`keepstate get`, `set`, `delete` and `clear`."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from tests.cli.conftest import TASK, one_line
from tests.cli.terminal import on_terminal

VALUES = [
    "40",
    "-1",
    "-1500.5",
    "0.1",
    "true",
    "false",
    '"text"',
    '""',
    "[]",
    '{"a":[1,null,{"b":"ä🎉"}]}',
    '"line\\nbreak"',
    "12345678901234567890123",
]


@pytest.mark.parametrize("text", VALUES)
def test_get_prints_what_set_took(run, text: str) -> None:
    """A value comes back as the same JSON, negative numbers too, and set says nothing."""
    done = run("set", "key", text, *TASK)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert run("get", "key", *TASK).out == text + "\n"


def test_set_and_get_are_processes(process) -> None:
    """What one process wrote, the next one reads."""
    assert process("set", "page", "41", *TASK).code == 0
    got = process("get", "page", *TASK)
    assert (got.code, got.out, got.err) == (0, "41\n", "")


def test_white_space_around_json_does_not_matter(run) -> None:
    """JSON may be spread over lines; it is printed on one."""
    run("set", "key", ' {"a": 1,\n "b": [2]} ', *TASK)
    assert run("get", "key", *TASK).out == '{"a":1,"b":[2]}\n'


@pytest.mark.parametrize(
    "text", ["plain text", "", "-5", "--raw", '{"not": parsed', "ä🎉", " both ends ", "a\nb\n"]
)
def test_raw_text_is_taken_and_printed_as_it_is(run, text: str) -> None:
    """With --raw a value is the very text."""
    assert run("set", "key", "--raw", *TASK, "--", text).code == 0
    assert run("get", "key", "--raw", *TASK).out == text + "\n"
    assert json.loads(run("get", "key", *TASK).out) == text


def test_raw_prints_other_values_as_json(run) -> None:
    """A value that is no string has no bare form."""
    run("set", "key", '["a"]', *TASK)
    assert run("get", "key", "--raw", *TASK).out == '["a"]\n'


def test_a_dash_reads_stdin(run) -> None:
    """The value - stands for stdin."""
    assert run("set", "key", "-", *TASK, stdin=b'{"big": [1,\n2]}\n').code == 0
    assert run("get", "key", *TASK).out == '{"big":[1,2]}\n'


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"x\n", "x"), (b"x", "x"), (b"x\n\n", "x\n"), (b"\n", ""), (b"", ""), (b"x\r\n", "x\r")],
)
def test_raw_stdin_loses_one_newline(run, data: bytes, text: str) -> None:
    """Programs end their output with a newline that is not meant; exactly one is dropped."""
    run("set", "key", "-", "--raw", *TASK, stdin=data)
    assert json.loads(run("get", "key", *TASK).out) == text


def test_get_raw_and_set_raw_are_inverse(process) -> None:
    """Piping one into the other copies a value."""
    process("set", "one", "--raw", *TASK, "two\nlines\n")
    process("set", "other", "-", "--raw", *TASK, stdin=process("get", "one", "--raw", *TASK).out.encode())
    assert process("get", "other", *TASK).out == '"two\\nlines\\n"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("text", "the value is not JSON: Expecting value at line 1, column 1"),
        ('{"a": 1,\n "b" 2}', "Expecting ':' delimiter at line 2, column 6"),
        ("", "at line 1, column 1"),
        ("1 2", "Extra data at line 1, column 3"),
        ("null", "null"),
        ("NaN", "NaN is not JSON"),
        ('{"a":1,"a":2}', 'the value can\'t be read: the name "a" stands twice in one object'),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("[" * 100_000, "nested too deep"),
        ("[" * 300 + "]" * 300, "nested deeper than 200"),
        ("9" * 5000, "4300 digits"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(run, text: str, expected: str) -> None:
    """Input that can't be a value is exit code 2 and one line that says where and what."""
    done = run("set", "key", text, *TASK)
    assert done.code == 2
    assert expected in one_line(done.err)
    assert run("get", "key", *TASK).code == 1


def test_a_json_error_points_at_raw(run) -> None:
    """Whoever forgot the quotes is told what to do."""
    assert "--raw" in one_line(run("set", "key", "job-17", *TASK).err)


def test_stdin_must_be_utf8(run) -> None:
    """Bytes that are no text are refused with their place, raw or not."""
    for raw in ([], ["--raw"]):
        done = run("set", "key", "-", *raw, *TASK, stdin=b"ab\xffc")
        assert done.code == 2
        assert "byte 2 is 0xff" in one_line(done.err)


def test_an_endless_stdin_is_refused(process) -> None:
    """More than any value may take is not read to its end."""
    done = process("set", "key", "-", "--raw", *TASK, stdin=b"x" * (64 * 1024 * 1024 + 1))
    assert done.code == 2
    assert "67,108,864 bytes" in one_line(done.err)


def test_a_value_above_the_hard_limit_is_refused(run) -> None:
    """16 MiB is the most that is stored."""
    done = run("set", "key", "-", "--raw", *TASK, stdin=b"x" * (16 * 1024 * 1024))
    assert done.code == 2
    assert "16,777,216" in one_line(done.err)


def test_a_large_value_is_stored_with_one_line_of_warning(run) -> None:
    """Above the configured limit a write warns and goes on, as the library does."""
    done = run("set", "key", "-", "--raw", *TASK, stdin=b"x" * 70_000)
    assert done.code == 0
    assert "70002 bytes" in one_line(done.err)
    assert len(run("get", "key", "--raw", *TASK).out) == 70_001


def test_an_absent_key_is_one_line_and_code_1(run) -> None:
    """Nothing goes to stdout, so that $(...) is empty."""
    done = run("get", "nothing", *TASK)
    assert (done.code, done.out) == (1, "")
    assert one_line(done.err) == "there is no key 'nothing' in etl / r1 / load"


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--default", "0"], "0\n"),
        (["--default", "-1"], "-1\n"),
        (["--default", '"x"'], '"x"\n'),
        (["--default", "x", "--raw"], "x\n"),
        (["--default", "", "--raw"], "\n"),
        (["--default", "[1, 2]"], "[1,2]\n"),
    ],
)
def test_a_default_stands_in_for_an_absent_key(run, options: list[str], printed: str) -> None:
    """The default is JSON, or text with --raw, like a value."""
    done = run("get", "nothing", *options, *TASK)
    assert (done.code, done.out, done.err) == (0, printed, "")


def test_a_default_that_is_no_json_is_refused(run) -> None:
    """It is refused whether it is needed or not."""
    run("set", "key", "1", *TASK)
    done = run("get", "key", "--default", "zero", *TASK)
    assert done.code == 2
    assert "--default is not JSON" in one_line(done.err)


def test_json_prints_the_whole_entry(run) -> None:
    """The names of what --json prints are a promise."""
    run("set", "key", '{"a":1}', "--retention", "7d", *TASK)
    entry = json.loads(run("get", "key", "--json", *TASK).out)
    assert list(entry) == ["key", "value", "version", "updated_at", "expires_at", "writer"]
    assert (entry["key"], entry["value"], entry["version"]) == ("key", {"a": 1}, 1)
    assert entry["writer"]["kind"] == "cli"
    assert entry["writer"]["name"]
    updated, expires = (
        datetime.fromisoformat(entry[name].replace("Z", "+00:00")) for name in ("updated_at", "expires_at")
    )
    assert expires - updated == timedelta(days=7)
    assert abs(datetime.now(timezone.utc) - updated) < timedelta(minutes=1)


def test_json_of_a_default_has_version_0(run) -> None:
    """A default looks like an entry that was never written."""
    assert json.loads(run("get", "nothing", "--json", "--default", "7", *TASK).out) == {
        "key": "nothing",
        "value": 7,
        "version": 0,
        "updated_at": None,
        "expires_at": None,
        "writer": None,
    }


@pytest.mark.parametrize(
    ("text", "lasts"),
    [
        ("90s", timedelta(seconds=90)),
        ("30m", timedelta(minutes=30)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("1d12h", timedelta(days=1, hours=12)),
        ("1.5h", timedelta(minutes=90)),
        ("7D", timedelta(days=7)),
    ],
)
def test_retention_is_a_duration(run, store, text: str, lasts: timedelta) -> None:
    """An entry expires after the time that people write down."""
    assert run("set", "key", "1", "--retention", text, *TASK).code == 0
    entry = store.task("etl", "r1", "load").entry("key")
    assert entry.expires_at - entry.updated_at == lasts


def test_retention_never_and_default(run, store) -> None:
    """`never` keeps an entry; without a retention the configured default counts."""
    run("set", "kept", "1", "--retention", "never", *TASK)
    run("set", "usual", "1", *TASK)
    entries = store.task("etl", "r1", "load")
    assert entries.entry("kept").expires_at is None
    assert entries.entry("usual").expires_at - entries.entry("usual").updated_at == timedelta(days=30)


@pytest.mark.parametrize("text", ["7", "0", "0s", "-1d", "d", "7 days", "7x", "", "9999999999d", "inf", "٧d"])
def test_what_is_no_retention_is_refused(run, text: str) -> None:
    """A duration without a unit, or that is not longer than zero, is exit code 2."""
    done = run("set", "key", "1", "--retention", text, *TASK)
    assert done.code == 2
    assert "retention" in one_line(done.err)


def test_if_version_writes_only_over_that_version(run) -> None:
    """Shells can compare and set: a conflict is exit code 3, and changes nothing."""
    assert run("set", "key", "1", "--if-version", "0", *TASK).code == 0
    lost = run("set", "key", "2", "--if-version", "0", *TASK)
    assert lost.code == 3
    assert "version 1" in one_line(lost.err)
    assert run("set", "key", "2", "--if-version", "1", *TASK).code == 0
    assert run("get", "key", *TASK).out == "2\n"


def test_delete_of_an_absent_key_is_no_error(run) -> None:
    """Deleting what is not there does nothing."""
    run("set", "key", "1", *TASK)
    for _ in range(2):
        done = run("delete", "key", *TASK)
        assert (done.code, done.out, done.err) == (0, "", "")
    assert run("get", "key", *TASK).code == 1


def test_clear_removes_everything_and_keeps_the_history(run) -> None:
    """A script is not asked; the history is still there."""
    run("set", "one", "1", *TASK)
    run("set", "two", "2", *TASK)
    assert run("clear", *TASK).code == 0
    assert json.loads(run("list", "--json", *TASK).out) == []
    assert len(json.loads(run("history", "one", "--json", *TASK).out)) == 2
    assert run("clear", *TASK).code == 0


def test_clear_forget_by_a_script_needs_yes(run) -> None:
    """What can't be undone is not done unasked."""
    run("set", "one", "1", *TASK)
    refused = run("clear", "--forget", *TASK)
    assert refused.code == 2
    assert "--yes" in one_line(refused.err)
    assert run("get", "one", *TASK).out == "1\n"
    assert run("clear", "--forget", "--yes", *TASK).code == 0
    assert json.loads(run("history", "one", "--json", *TASK).out) == []


@pytest.mark.parametrize(
    "key", ["a/b", "ключ", "🎉", "[red]", "-", "key with space", "a\x1b[31mb", "x" * 512, "-5"]
)
def test_any_key_goes(run, key: str) -> None:
    """Slashes, emoji, markup and control characters are keys like any other."""
    assert run("set", key, "1", *TASK).code == 0
    assert run("get", key, *TASK).out == "1\n"
    assert [entry["key"] for entry in json.loads(run("list", "--json", *TASK).out)] == [key]


@pytest.mark.parametrize("key", ["", "..", "a/../b", "x" * 513, "broken \udcff"])
def test_a_key_that_breaks_the_rules_is_refused(run, key: str) -> None:
    """It is exit code 2 and one line, whatever is in it."""
    done = run("set", key, "1", *TASK)
    assert done.code == 2
    one_line(done.err)


def test_an_asset_has_entries_too(run) -> None:
    """--asset names an asset instead of a task instance."""
    assert run("set", "offset", "17", "--asset", "orders").code == 0
    assert run("get", "offset", "--asset", "orders").out == "17\n"
    assert run("get", "offset", "--asset-uri", "orders").out == "17\n"
    refused = run("set", "offset", "17", "--asset", "orders", "--retention", "7d")
    assert refused.code == 2
    assert "--retention" in one_line(refused.err)


def test_output_is_utf8_whatever_the_locale(process) -> None:
    """Another encoding of the terminal neither breaks nor changes what programs read."""
    process("set", "key", '"ä🎉"', *TASK)
    got = process(
        "get", "key", *TASK, LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0", PYTHONIOENCODING="latin-1"
    )
    assert (got.code, got.out) == (0, '"ä🎉"\n')


def test_a_person_is_told_what_set_makes_anew(run) -> None:
    """A mistyped name would be silent else; a pipe gets nothing, nor does what was there already."""
    said = [on_terminal("set", "page", value, *TASK, NO_COLOR="1")[1] for value in ("1", "2")]
    assert said == ["made a new task instance: etl / r1 / load\r\n", ""]
    assert (
        on_terminal("set", "pages", "1", *TASK)[1] == "\x1b[2mcreated key pages in etl / r1 / load\x1b[0m\r\n"
    )
    assert "made a new asset: orders" in on_terminal("set", "k", "1", "--asset", "orders")[1]
    done = run("set", "other", "1", *TASK)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_person_is_told_what_could_not_be_deleted(run) -> None:
    """A mistyped name would be silent else; a script, for which it is no error, gets nothing."""
    run("set", "page", "1", *TASK)
    typo = (*TASK[:-1], "laod")
    told = {
        ("delete", "pagge", *TASK): "there is no key pagge in etl / r1 / load, so nothing was deleted",
        ("delete", "page", *typo): "there is no task instance etl / r1 / laod, so nothing was deleted",
        ("clear", "--yes", *typo): "there is no task instance etl / r1 / laod, so nothing was deleted",
        ("delete", "k", "--asset", "odrers"): "there is no asset odrers, so nothing was deleted",
        ("delete", "page", *TASK): "",
        ("clear", "--yes", *TASK): "",
    }
    for argv, text in told.items():
        assert on_terminal(*argv, NO_COLOR="1") == (0, f"{text}\r\n" if text else "")
        done = run(*argv)
        assert (done.code, done.out, done.err) == (0, "", "")


def test_a_supervised_command_is_told_nothing(store) -> None:
    """Its keys are new all the time."""
    store.task("etl", "r1", "load", try_number=1).set("k", 1)
    ids = {
        f"KEEPSTATE_{name}_ID": value for name, value in zip(("DAG", "RUN", "TASK"), TASK[1::2], strict=True)
    }
    assert on_terminal("set", "new", "1", KEEPSTATE_TRY_NUMBER="1", **ids) == (0, "")


def test_null_points_to_delete(run) -> None:
    """That is what is meant by it."""
    assert "`keepstate delete pid`" in one_line(run("set", "pid", "null", *TASK).err)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["runs", "--limit", "abc"], "'abc' is not a whole number of at least 1;"),
        (["runs", "--limit", "0"], "0 is not a whole number of at least 1;"),
        (["tail", "--interval", "x"], "'x' is not a number of at least 0.05;"),
        (["get", "k", "--map-index", "x"], "'x' is not a whole number;"),
    ],
)
def test_a_number_that_is_none_is_told_what_is_allowed(run, argv: list[str], said: str) -> None:
    """In words of the command line."""
    done = run(*argv)
    assert done.code == 2
    assert said in one_line(done.err)
