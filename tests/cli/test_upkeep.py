"""`keepstate cleanup`, `db` and `doctor`."""

from __future__ import annotations

import json
import sqlite3

import pytest

import keepstate
from keepstate.clock import DAY, system_clock
from tests.cli.conftest import TASK, one_line
from tests.cli.terminal import on_terminal


@pytest.fixture
def expired(home):
    """A store with three entries whose time is over."""
    with keepstate.connect(clock=lambda: system_clock() - 31 * DAY, purge_on_open=False) as store:
        store.task("etl", "r1", "load").set_many({"a": 1, "b": 2, "c": 3})


def test_a_dry_run_counts_and_removes_nothing(run, expired) -> None:
    """It can be asked again and again."""
    for _ in range(2):
        report = json.loads(run("cleanup", "--dry-run", "--json").out)
        assert report["entries"] == 3
        assert report["dry_run"] is True
    assert run("cleanup", "--dry-run").out.startswith("would remove 3 entries, ")


def test_cleanup_removes_what_has_expired(run, expired) -> None:
    """Then there is nothing left to do."""
    report = json.loads(run("cleanup", "--json").out)
    assert list(report) == ["entries", "history", "scopes", "attempts", "sessions", "dry_run", "total"]
    assert report["entries"] == 3
    assert report["total"] == sum(report[kind] for kind in list(report)[:5])
    # a scope that is empty now may go with the next one
    run("cleanup")
    assert run("cleanup").out == "nothing has expired\n"


def test_cleanup_shows_progress_on_a_terminal(expired) -> None:
    """A bar while it lasts, and one sentence that stays."""
    code, shown = on_terminal("cleanup")
    assert code == 0
    assert "Cleaning up" in shown
    assert "removed 3 entries" in shown


def test_other_commands_remove_nothing(run, expired) -> None:
    """Reading an expired entry says it is gone, and leaves the cleanup to others."""
    assert run("get", "a", *TASK).code == 1
    assert json.loads(run("cleanup", "--dry-run", "--json").out)["entries"] == 3


def test_db_upgrade_makes_the_tables(run, home) -> None:
    """Before it there is no revision, and asking for it makes no file."""
    assert run("db", "current").out == "none\n"
    checked = run("db", "check")
    assert checked.code == 1
    assert "there are no tables yet" in one_line(checked.err)
    assert not (home / "keepstate.db").exists()
    assert "applied 0001_initial" in run("db", "upgrade").out
    number = int(run("db", "current").out)
    assert run("db", "upgrade").out.endswith(f"is at revision {number}, the latest\n")
    assert run("db", "check").code == 0
    assert json.loads(run("db", "check", "--json").out)["ok"] is True
    assert json.loads(run("db", "current", "--json").out) == {
        "address": f"sqlite:///{home}/keepstate.db",
        "current": number,
        "latest": number,
    }


def test_db_check_finds_what_is_missing(run, store, home) -> None:
    """A missing table or column is named."""
    with sqlite3.connect(home / "keepstate.db") as connection:
        connection.execute("DROP TABLE keepstate_session")
        connection.execute("ALTER TABLE keepstate_asset DROP COLUMN uri")
    connection.close()
    done = run("db", "check")
    assert done.code == 1
    message = one_line(done.err)
    assert "the table keepstate_session is missing" in message
    assert "the table keepstate_asset has no column uri" in message
    report = json.loads(run("db", "check", "--json").out)
    assert report["ok"] is False
    assert len(report["problems"]) == 2


def test_db_check_finds_damage(run, home) -> None:
    """Pages that were overwritten are noticed."""
    run("set", "k", "-", "--raw", *TASK, stdin=b"x" * 60_000)
    file = home / "keepstate.db"
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 9000] = b"\xff" * 9000
    file.write_bytes(data)
    done = run("db", "check")
    assert done.code in {1, 74}
    assert "is damaged" in one_line(done.err)
    assert "restore it from a backup" in done.err


def test_db_downgrade_asks_and_loses_what_there_was(run, store) -> None:
    """Back to nothing, and up again."""
    run("set", "k", "1", *TASK)
    refused = run("db", "downgrade", "0")
    assert refused.code == 2
    assert "--yes" in one_line(refused.err)
    assert "took back 0001_initial" in run("db", "downgrade", "0", "--yes").out
    run("db", "upgrade")
    assert run("get", "k", *TASK).code == 1
    too_far = run("db", "downgrade", "99", "--yes")
    assert too_far.code == 78
    one_line(too_far.err)


def test_a_store_from_a_newer_keepstate_is_refused(run, store, home) -> None:
    """Every command says so, and touches nothing."""
    with sqlite3.connect(home / "keepstate.db") as connection:
        connection.execute("INSERT INTO keepstate_migration VALUES (999, '0999_later', 0)")
    connection.close()
    for command in (["get", "k", *TASK], ["db", "upgrade"], ["db", "downgrade", "0", "--yes"], ["doctor"]):
        done = run(*command)
        assert done.code == 78, command
        assert "999" in (done.err or done.out)
    assert run("db", "check").code == 1
    assert "upgrade keepstate" in one_line(run("db", "check").err)


def test_db_refuses_stores_without_tables(run) -> None:
    """What is kept in memory has none."""
    done = run("db", "check", "--url", "memory:")
    assert done.code == 78
    one_line(done.err)


def test_doctor_says_what_is_in_force(run, home) -> None:
    """Versions, the route and why, the address, and every setting with its source."""
    done = run("doctor", "--json")
    assert done.code == 0
    report = json.loads(done.out)
    assert report["ok"] is True
    assert {"keepstate", "python", "sqlite", "route", "why", "address", "revision"} <= report.keys()
    assert report["route"] == "embedded"
    assert report["address"] == f"sqlite:///{home}/keepstate.db"
    sources = {setting["variable"]: setting["source"] for setting in report["settings"]}
    assert sources["KEEPSTATE_HOME"] == "environment"
    assert sources["KEEPSTATE_URL"] == "default"
    shown = run("doctor").out
    assert "KEEPSTATE_HOME" in shown
    assert "KEEPSTATE_HISTORY_LIMIT" not in shown
    assert "WRONG" not in shown
    assert shown.splitlines()[-1].startswith("ok  test entry ")
    assert "KEEPSTATE_HISTORY_LIMIT" in run("doctor", "--all").out


def test_doctor_leaves_no_trace(run, store, home) -> None:
    """After the test entry there is no row that was not there before."""
    run("doctor")
    with sqlite3.connect(home / "keepstate.db") as connection:
        counts = {
            table: connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
            for table in (
                "keepstate_scope",
                "keepstate_entry",
                "keepstate_log",
                "keepstate_asset",
                "keepstate_session",
            )
        }
    connection.close()
    assert set(counts.values()) == {0}, counts


@pytest.mark.parametrize("setting", ["KEEPSTATE_URL", None])
def test_doctor_names_the_route(run, tmp_path, monkeypatch, setting: str | None) -> None:
    """A URL from the environment and one from the command line are told apart; no password is shown."""
    url = f"sqlite:///{tmp_path}/other.db"
    if setting:
        monkeypatch.setenv(setting, url)
        report = json.loads(run("doctor", "--json").out)
    else:
        report = json.loads(run("doctor", "--json", "--url", url).out)
    assert report["address"] == url
    assert report["route"] == (setting or "argument")


def test_doctor_hides_passwords(run, monkeypatch) -> None:
    """Neither the setting nor the trouble shows them."""
    monkeypatch.setenv("KEEPSTATE_URL", "postgresql://ada:s3cret@127.0.0.1:1/db?password=s3cret")
    monkeypatch.setenv("KEEPSTATE_RETRY_TIMEOUT", "0")
    for options in ([], ["--json"]):
        done = run("doctor", *options)
        assert done.code == 69
        assert "s3cret" not in done.out + done.err
        assert "ada" in done.out
    monkeypatch.setenv("KEEPSTATE_URL", "host=h user=ada password=s3cret")
    monkeypatch.setenv("KEEPSTATE_TOKEN", "s3cret")
    for command in (["doctor"], ["doctor", "--json"], ["runs"]):
        done = run(*command)
        assert done.code == 78
        assert "s3cret" not in done.out + done.err


def test_doctor_names_every_bad_setting(run, monkeypatch) -> None:
    """All of them at once, and variables that mean nothing."""
    monkeypatch.setenv("KEEPSTATE_HEARTBEAT", "often")
    monkeypatch.setenv("AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS", "maybe")
    monkeypatch.setenv("KEEPSTATE_URI", "x")
    done = run("doctor")
    assert done.code == 78
    assert "KEEPSTATE_HEARTBEAT is 'often'" in done.out
    assert "AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS is 'maybe'" in done.out
    assert "KEEPSTATE_URI" in done.out
    assert done.out.count("WRONG") == 2


def test_doctor_tells_what_is_wrong_with_a_store(run, tmp_path) -> None:
    """A file that is no database is code 74; a folder that is not there is a matter of configuration."""
    (tmp_path / "text.db").write_text("no database " * 100)
    done = run("doctor", "--url", f"sqlite:///{tmp_path}/text.db")
    assert done.code == 74
    assert "is not a SQLite file" in done.out
    assert run("doctor", "--url", f"sqlite:///{tmp_path}/nowhere/x.db").code == 78


def test_a_home_that_cannot_be_made_is_a_matter_of_configuration(run, tmp_path, monkeypatch) -> None:
    """The variable to change is named."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("KEEPSTATE_HOME", str(tmp_path / "file" / "home"))
    done = run("get", "k", *TASK)
    assert done.code == 78
    assert "KEEPSTATE_HOME" in one_line(done.err)


def test_a_busy_store_is_unavailable(run, store, home, monkeypatch) -> None:
    """A write that does not get its turn in time is exit code 69."""
    monkeypatch.setenv("KEEPSTATE_RETRY_TIMEOUT", "0.05")
    with sqlite3.connect(home / "keepstate.db") as other:
        other.execute("BEGIN IMMEDIATE")
        done = run("set", "k", "1", *TASK)
        other.rollback()
    other.close()
    assert done.code == 69
    one_line(done.err)


def test_doctor_warns_of_a_misspelt_setting(run, monkeypatch) -> None:
    """It is no trouble, and yet not as it was meant."""
    monkeypatch.setenv("KEEPSTATE_URI", "x")
    done = run("doctor")
    assert done.code == 0
    (line,) = [line for line in done.out.splitlines() if line.startswith("warning")]
    assert line.endswith("did you mean KEEPSTATE_URL?")
    report = json.loads(run("doctor", "--json").out)
    assert [found["name"] for found in report["checks"] if found["warning"]] == ["KEEPSTATE_URI"]
    assert report["ok"] is True


@pytest.mark.parametrize("url", ["sqlite:////nowhere/x.db", "nonsense", "oracle://db/x"])
def test_doctor_says_that_it_is_the_store_which_is_wrong(run, url: str) -> None:
    """A folder or URL that can't be used is no matter of tables."""
    done = run("doctor", "--url", url)
    assert done.code == 78
    assert done.out.splitlines()[-1].split()[:2] == ["WRONG", "store"]


def test_a_person_is_told_what_is_waited_for() -> None:
    """Once, after two seconds, and without the password."""
    url = "postgresql://ada:s3cret@127.0.0.1:1/db"
    code, shown = on_terminal("runs", "--url", url, KEEPSTATE_RETRY_TIMEOUT="2.5", NO_COLOR="1", columns=200)
    assert code == 69
    assert shown.count("waiting for the store at postgresql://ada:***@127.0.0.1:1/db\r\n") == 1
    assert "s3cret" not in shown
    _, shown = on_terminal("runs", "--url", url, KEEPSTATE_RETRY_TIMEOUT="0")
    assert "waiting" not in shown
