"""`keepstate copy`, `export` and `import`: from place to place, interrupted, again, and with what is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import keepstate
from keepstate import copies
from keepstate.backends.images import Head, Image, KeptEntry, Selection
from keepstate.cli.exit_codes import ExitCode
from keepstate.scope import TaskScope
from keepstate.settings import Settings
from tests.cli.conftest import TASK, one_line
from tests.cli.terminal import on_terminal
from tests.support.programs import until
from tests.support.served import serving_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Result

    Run = Callable[..., Result]

MANY = 4000


@pytest.fixture
def source(tmp_path: Path) -> str:
    """The URL of a store with an asset, a run and two task instances, one of which has a history."""
    url = f"sqlite:///{tmp_path / 'source.db'}"
    with keepstate.connect(url) as store:
        load = store.task("etl", "r1", "load")
        load.set("page", 1)
        load.set("page", {"é": [1, None]})
        store.task("other", "r2", "load", try_number=1).set("k", 1)
        store.asset("orders").set("at", 5)
    return url


@pytest.fixture
def target(tmp_path: Path) -> str:
    """The URL of a store that is yet to be made."""
    return f"sqlite:///{tmp_path / 'target.db'}"


def content(url: str) -> list[Image]:
    """Return all that a store holds."""
    with keepstate.connect(url, settings=Settings()) as store:
        return [one for batch in copies.images_of(store, Selection()) for one in batch]


def heads(url: str) -> set[str]:
    """Return how each scope of a store stands."""
    return {one.head.fingerprint for one in content(url)}


def test_a_store_goes_over_and_again(run: Run, source: str, target: str) -> None:
    """All of it, then nothing, then what is new; as text and as JSON."""
    done = run("copy", source, target)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("copied 5 scopes, with 3 entries, 4 versions and 1 attempt\n")
    assert "the target has 2 task instances, 2 runs, 1 asset, 3 entries and 1 attempt" in done.out
    assert heads(target) == heads(source)
    assert run("copy", source, target).out.startswith(
        "nothing copied: 5 scopes looked at, and none has changed\n"
    )
    assert run("set", "page", "3", *TASK, "--url", source).code == 0
    report = json.loads(run("copy", source, target, "--json").out)
    assert (report["copied"], report["unchanged"], report["conflicts"]) == (1, 4, 0)
    assert report["source"] == report["target"]
    assert run("get", "page", *TASK, "--url", target).out == "3\n"
    assert len(json.loads(run("history", "page", "--json", *TASK, "--url", target).out)) == 3


def test_what_both_have_changed(run: Run, source: str, target: str) -> None:
    """It is named, and stays, with a code of its own, until it is to be overwritten."""
    run("copy", source, target)
    for url, value in ((source, "1"), (target, "2")):
        run("set", "page", value, *TASK, "--url", url)
    done = run("copy", source, target)
    assert done.code == ExitCode.CONFLICT
    assert "1 scope of the target had been changed there" in one_line(done.err)
    assert "etl / r1 / load; --overwrite" in done.err
    assert run("get", "page", *TASK, "--url", target).out == "2\n"
    assert run("copy", source, target, "--overwrite").code == 0
    assert run("get", "page", *TASK, "--url", target).out == "1\n"


def test_a_duplicated_file_does_not_replace_what_its_original_brought(
    run: Run, source: str, target: str, tmp_path: Path
) -> None:
    """It goes by the same name; what both have changed is told, and what one of them did goes over."""
    duplicate = tmp_path / "duplicate.db"
    shutil.copyfile(source.removeprefix("sqlite:///"), duplicate)
    run("set", "page", "2", *TASK, "--url", source)
    assert run("copy", source, target).code == ExitCode.OK
    for value in ("3", "4"):
        run("set", "page", value, *TASK, "--url", f"sqlite:///{duplicate}")
    run("set", "at", "6", "--asset", "orders", "--url", f"sqlite:///{duplicate}")
    done = run("copy", f"sqlite:///{duplicate}", target, "--json")
    assert (done.code, json.loads(done.out)["conflicts"], json.loads(done.out)["copied"]) == (
        ExitCode.CONFLICT,
        1,
        1,
    )
    assert "stayed as before: etl / r1 / load; --overwrite replaces that" in one_line(done.err)
    assert run("get", "page", *TASK, "--url", target).out == "2\n"
    assert run("get", "at", "--asset", "orders", "--url", target).out == "6\n"


def test_a_copy_that_is_killed_is_completed_by_the_next(run: Run, tmp_path: Path, target: str) -> None:
    """No scope is ever half there: what is in the target is equal to its original."""
    url = f"sqlite:///{tmp_path / 'source.db'}"
    entry = KeptEntry("k", 1, 7, '"v"', writer='{"kind":"api"}')
    with keepstate.connect(url, settings=Settings()) as store:
        many = (Image(Head(TaskScope("d", "r", f"t{n}"), 1, 1, n, n), (entry,)) for n in range(MANY))
        assert copies.take_in(store, copies.in_batches(many)).copied == MANY
    command = [sys.executable, "-m", "keepstate", "copy", url, target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until(lambda: count(tmp_path / "target.db"))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    partly = content(target)
    assert 0 < len(partly) < MANY
    assert all([one.text for one in image.entries] == ['"v"'] for image in partly)
    report = json.loads(run("copy", url, target, "--json").out)
    assert (report["copied"], report["unchanged"]) == (MANY - len(partly), len(partly))
    assert heads(target) == heads(url)


def count(file: Path) -> int:
    """Return how many scopes are in a file, without making it."""
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        try:
            found: int = connection.execute("SELECT COUNT(*) FROM keepstate_scope").fetchone()[0]
        except sqlite3.OperationalError:
            return 0
    return found


def test_a_copy_shows_its_progress_on_a_terminal(source: str, target: str) -> None:
    """A bar while it lasts, and sentences that stay."""
    code, shown = on_terminal("copy", source, target)
    assert code == 0
    assert "Copying" in shown
    assert "copied 5 scopes" in shown


def test_the_stores_of_a_copy_are_meant(run: Run, source: str, target: str, tmp_path: Path) -> None:
    """An empty name, one that is mistyped, memory, and a second name of the same file are refused; nothing is made."""
    (tmp_path / "link.db").symlink_to("source.db")
    (tmp_path / "twin.db").hardlink_to(tmp_path / "source.db")
    missing = f"sqlite:///{tmp_path / 'sorce.db'}"
    for argv, told in (
        (("copy", source, ""), "TARGET_URL is empty"),
        (("copy", "", target), "SOURCE_URL is empty"),
        (("copy", missing, target), "there is no store at"),
        (("export", "--url", missing), "there is no store at"),
        (("copy", source, "memory:"), "memory: ends with this command"),
        (("copy", "memory:", target), "memory: ends with this command"),
        (("copy", source, f"sqlite:///{tmp_path / 'link.db'}"), "the same store"),
        (("copy", f"sqlite:///{tmp_path / 'twin.db'}", source), "the same store"),
    ):
        done = run(*argv)
        assert (done.code, done.out) == (ExitCode.USAGE, ""), argv
        assert told in one_line(done.err), argv
    assert {one.name for one in tmp_path.glob("*.db")} == {"source.db", "link.db", "twin.db"}


def test_what_the_target_has_more_is_told(run: Run, source: str, target: str) -> None:
    """What was deleted in the source stays in the target, and the command says so."""
    run("copy", source, target)
    with keepstate.connect(source) as store:
        store.delete_asset("orders")
    done = run("copy", source, target)
    assert done.code == 0
    assert "the target has 1 asset more than the source" in one_line(done.err)


def test_what_can_not_be_copied(run: Run, source: str, home: Path) -> None:
    """The same store twice; a store behind a server, which says where it can be done."""
    assert "the same store" in one_line(run("copy", source, source).err)
    with keepstate.connect(source) as store, serving_store(store) as served:
        for argv in (("copy", source, served.url), ("export", "--url", served.url)):
            done = run(*argv)
            assert done.code == ExitCode.CONFIGURATION
            assert "where the server runs" in one_line(done.err)


@pytest.fixture
def exported(run: Run, source: str, tmp_path: Path) -> Path:
    """A file with all that the source holds."""
    file = tmp_path / "state.jsonl"
    done = run("export", "--output", str(file), "--url", source)
    assert (done.code, done.err) == (0, "")
    assert done.out == "exported 5 scopes, with 3 entries, 4 versions and 1 attempt\n"
    return file


def test_an_export_is_a_header_scopes_and_an_end(run: Run, source: str, exported: Path) -> None:
    """The file is its user's alone, and nothing is left beside it; without one, the same goes to stdout."""
    header, *scopes, end = [json.loads(line) for line in exported.read_text().splitlines()]
    assert (header["kind"], header["format"]) == ("keepstate-export", 1)
    assert [next(iter(one["head"]["scope"])) for one in scopes] == ["task", "run", "task", "run", "asset"]
    assert end == {"end": True, "scopes": 5}
    assert stat.S_IMODE(exported.stat().st_mode) == 0o600
    assert {one.suffix for one in exported.parent.glob("*state.jsonl*")} == {".jsonl"}
    assert run("export", "--url", source).out.splitlines()[1:] == exported.read_text().splitlines()[1:]


def test_an_export_goes_where_it_is_told_to(run: Run, source: str, exported: Path, tmp_path: Path) -> None:
    """Through a link to the file behind it, and into a pipe; neither link nor pipe is replaced."""
    whole = exported.read_text().splitlines()[1:]
    (tmp_path / "far").mkdir()
    link, pipe = tmp_path / "link.jsonl", tmp_path / "pipe"
    link.symlink_to("far/state.jsonl")
    for _ in range(2):
        assert run("export", "-o", str(link), "--url", source).code == 0
        assert link.is_symlink()
        assert (tmp_path / "far" / "state.jsonl").read_text().splitlines()[1:] == whole
    assert [one.name for one in (tmp_path / "far").iterdir()] == ["state.jsonl"]
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "keepstate", "export", "-o", str(pipe), "--url", source]
    with subprocess.Popen(command) as process:
        assert pipe.read_text().splitlines()[1:] == whole
        assert process.wait(timeout=30) == 0
    assert pipe.is_fifo()
    # it has another name for the file that it was redirected to
    out = tmp_path / "out"
    with out.open("w") as file:
        file.write("before\n")
        file.flush()
        command[command.index(str(pipe))] = "/dev/stdout"
        subprocess.run(command, stdout=file, check=True, timeout=30)
    assert out.read_text().splitlines()[0] == "before"
    assert out.read_text().splitlines()[2:] == whole


def test_a_damaged_value_stops_an_export(run: Run, source: str, exported: Path) -> None:
    """With the key and its scope named, and an older export left as it is; with an earlier version brought back, all goes out."""
    before = exported.read_text()
    with closing(sqlite3.connect(source.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE keepstate_entry SET value = 'oops' WHERE entry_key = 'page'")
    done = run("export", "-o", str(exported), "--url", source)
    assert done.code == ExitCode.IO
    assert "the key 'page' of etl / r1 / load is damaged" in one_line(done.err)
    assert exported.read_text() == before
    assert "`keepstate restore`" in one_line(done.err)
    assert run("restore", "page", "1", *TASK, "--url", source).code == 0
    assert run("export", "-o", str(exported), "--url", source).code == 0


def test_an_import_is_the_original(run: Run, source: str, target: str, exported: Path) -> None:
    """From a file or stdin; the second time nothing is done, and what has been changed since stays."""
    done = run("import", str(exported), "--url", target)
    assert (done.code, done.err) == (0, "")
    assert done.out == "imported 5 scopes, with 3 entries, 4 versions and 1 attempt\n"
    assert heads(target) == heads(source)
    run("set", "page", "9", *TASK, "--url", target)
    report = json.loads(run("import", "-", "--json", "--url", target, stdin=exported.read_bytes()).out)
    assert (report["copied"], report["unchanged"]) == (0, 5)
    assert run("get", "page", *TASK, "--url", target).out == "9\n"


@pytest.mark.parametrize(
    ("options", "scopes"),
    [
        (("--dag-id", "etl"), ["etl / r1 / load", "etl / r1"]),
        (("--run-id", "r2"), ["other / r2 / load", "other / r2"]),
        (("--dags", "o*"), ["other / r2 / load", "other / r2"]),
        (("--assets", "ord*"), ["asset orders"]),
    ],
)
def test_a_part(run: Run, source: str, target: str, options: tuple[str, ...], scopes: list[str]) -> None:
    """Of a dag, a run, a pattern of either; the end counts what is there."""
    out = run("export", *options, "--url", source).out
    assert run("import", "-", "--url", target, stdin=out.encode()).code == 0
    assert [str(one.head.scope) for one in content(target)] == scopes


def test_a_part_of_which_there_is_nothing(run: Run, source: str, exported: Path) -> None:
    """A mistyped name does not replace an export by an empty one, and a script hears of it."""
    before = exported.read_text()
    for output in ((), ("--output", str(exported))):
        done = run("export", "--dags", "typo_*", *output, "--url", source)
        assert done.code == ExitCode.FAILED
        assert one_line(done.err) == "nothing in the store matches that, so nothing was exported"
    assert exported.read_text() == before


def test_an_empty_store_is_exported_as_such(run: Run, tmp_path: Path) -> None:
    """A backup on the first day is no mistake."""
    source, file = f"sqlite:///{tmp_path / 'empty.db'}", tmp_path / "empty.jsonl"
    assert run("db", "upgrade", "--url", source).code == 0
    done = run("export", "-o", str(file), "--url", source)
    assert (done.code, done.out) == (0, "nothing exported: there is nothing\n")
    assert len(file.read_text().splitlines()) == 2


def bad(lines: list[str]) -> Iterator[tuple[str, list[str], str]]:
    """Yield exports with something wrong, and what is said of it."""
    header, first, *_, end = lines
    other = json.loads(header) | {"format": 2, "keepstate": "9.9"}
    yield "another format", [json.dumps(other)], r"format 2, and this keepstate reads format 1.*'9\.9'"
    yield "no export", ['{"a": 1}'], "this is no export"
    yield "nothing", [], "there is nothing to import"
    yield "cut after a line", [header, first], "line 3 is missing: the export was cut short"
    yield "cut within a line", [header, first[:-9]], "line 2 is no JSON"
    yield "a wrong count", [header, first, end], "line 3 says that there are 5 scopes, and 1 came before"
    yield "more", [*lines, first], "line 8 stands behind the last line"

    def changed(change: Callable[[Any], object]) -> list[str]:
        data = json.loads(first)
        change(data)
        return [header, json.dumps(data), *lines[2:]]

    yield "no scope", changed(lambda data: data["head"].pop("scope")), r"line 2 .*it\.head: lacks 'scope'"
    yield "an id", changed(lambda data: data["head"]["scope"]["task"].update(dag_id="a/b")), "dag_id must not"
    yield "a value", changed(lambda data: data["entries"][0].update(text="{")), "is no JSON"
    yield "null", changed(lambda data: data["entries"][0].update(text="null")), "value is None"
    yield "a key", changed(lambda data: data["entries"][0].update(key="..")), "line 2"
    yield "a twin", changed(lambda data: data["entries"].append(data["entries"][0])), "the same key twice"
    yield (
        "a version",
        changed(lambda data: data["entries"][0].update(version=9)),
        "later version than its own",
    )
    yield "a writer", changed(lambda data: data["entries"][0].update(writer="{}")), "no writer"
    yield "a time", changed(lambda data: data["entries"][0].update(expires_at=2**62)), "expires_at must be"
    yield (
        "history alone",
        changed(lambda data: data.update(entries=[])),
        "history of a key that it does not have",
    )
    yield "a stranger", changed(lambda data: data.update(new=1)), "'new', which is not known here"
    yield (
        "a version with none to come",
        changed(lambda data: data["head"].update(version=2**63 - 1)),
        "from 0 to",
    )
    yield "an incarnation", changed(lambda data: data["head"].update(incarnation=2**31 - 1)), "from 1 to"
    writer = r'{"kind":"api","name":"\ud800"}'
    yield "half a character", changed(lambda data: data["entries"][0].update(writer=writer)), "no writer"
    writer = '{"kind":"task","try_number":"abc"}'
    yield "a writer's number", changed(lambda data: data["entries"][0].update(writer=writer)), "no writer"
    yield (
        "half a character in text",
        changed(lambda data: data["head"].update(item="\ud800")),
        "lone surrogate",
    )
    yield "a mark", changed(lambda data: data.update(store="a b")), "hexadecimal"
    yield "a format of another type", [json.dumps(json.loads(header) | {"format": True})], "format True"
    yield "no end", [header, first, '{"end": false, "scopes": 1}'], "line 3 is neither a scope nor the last"
    asset = json.loads(lines[5])

    def asset_with(**more: object) -> list[str]:
        return [*lines[:5], json.dumps(asset | more), end]

    brief = [asset["entries"][0] | {"expires_at": 2**50}]
    yield "an asset's attempt", asset_with(head=asset["head"] | {"try_number": 3}), "an asset has no attempts"
    yield "an asset's expiry", asset_with(entries=brief), "an entry of an asset does not expire"
    yield "a state", changed(lambda data: data["head"].update(state="x")), "no state 'x'"


def test_a_bad_line_is_told_with_its_number(run: Run, target: str, exported: Path, tmp_path: Path) -> None:
    """One line on stderr, the code of bad input, and nothing half-written; what is not JSON Lines at all neither."""
    lines = exported.read_text().splitlines()
    cases = list(bad(lines))
    assert len({name for name, _, _ in cases}) == len(cases) > 15
    for name, wrong, told in cases:
        done = run("import", "-", "--url", target, stdin="\n".join([*wrong, ""]).encode())
        assert done.code == ExitCode.USAGE, name
        assert re.search(told, one_line(done.err)), (name, done.err)
        assert all(
            len(one.log) == len(one.entries) * 2 or len(one.log) == len(one.entries)
            for one in content(target)
        )
    done = run("import", "-", "--url", target, stdin=b"\xff\xfe")
    assert "line 1 is no UTF-8" in one_line(done.err)
    done = run("import", str(tmp_path / "absent"), "--url", target)
    assert (done.code, "can't be read: No such file" in done.err) == (ExitCode.IO, True)


def test_a_scope_that_is_there_twice(run: Run, target: str, exported: Path) -> None:
    """As in two exports put together: what comes last counts, where it is newer than what it meets."""
    header, first, *rest, _ = exported.read_text().splitlines()
    later = json.loads(first)
    later["head"]["version"] = 3
    later["entries"][0].update(version=3, text="7")
    lines = [header, first, *rest, json.dumps(later), json.dumps({"end": True, "scopes": 6})]
    report = json.loads(run("import", "-", "--json", "--url", target, stdin="\n".join(lines).encode()).out)
    assert (report["scopes"], report["copied"]) == (6, 6)
    assert run("get", "page", *TASK, "--url", target).out == "7\n"


def test_an_export_that_fails_leaves_the_file_as_it_was(run: Run, source: str, tmp_path: Path) -> None:
    """A folder that is not there, or a store that breaks off: an older export stays whole."""
    done = run("export", "-o", str(tmp_path / "no" / "x"), "--url", source)
    assert done.code == ExitCode.IO
    assert "can't be written: No such file" in one_line(done.err)
    old = tmp_path / "old.jsonl"
    old.write_text("old")
    with closing(sqlite3.connect(source.removeprefix("sqlite:///"))) as connection:
        connection.execute("DROP TABLE keepstate_attempt")
    assert run("export", "-o", str(old), "--url", source).code == ExitCode.IO
    assert old.read_text() == "old"
    assert list(tmp_path.glob(".old*")) == []
