"""The command line over database servers, as over SQLite."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.backends.servers import KINDS, Kind, Server
from tests.cli.conftest import TASK, one_line


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    """One kind of server after the other."""
    return request.param


@pytest.fixture(autouse=True)
def url(kind: Kind, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database of the test's own, named by the environment."""
    url = str(request.getfixturevalue(f"{kind.name}_url"))
    monkeypatch.setenv("KEEPSTATE_URL", url)
    return url


@pytest.fixture
def server(kind: Kind, request: pytest.FixtureRequest) -> Server:
    """The server that it is on."""
    return request.getfixturevalue(kind.name)


def test_tables_entries_and_doctor(run) -> None:
    """Made, checked, used and taken down."""
    assert run("db", "current").out == "none\n"
    assert run("db", "check").code == 1
    assert run("db", "upgrade").code == 0
    assert run("db", "check").code == 0
    assert run("set", "k", '{"a":[1,2.5,"ä🎉"]}', *TASK).code == 0
    assert run("get", "k", *TASK).out == '{"a":[1,2.5,"ä🎉"]}\n'
    report = json.loads(run("doctor", "--json").out)
    assert report["ok"] is True, report
    assert report["route"] == "KEEPSTATE_URL"
    assert run("assets", "--json").out == "[]\n"
    assert run("db", "downgrade", "0", "--yes").code == 0
    assert run("db", "current").out == "0\n"


def test_db_check_finds_what_is_missing(run, kind, url) -> None:
    """A missing table or column is named, one after another."""
    run("db", "upgrade")
    kind.ask(url, "DROP TABLE keepstate_session")
    kind.ask(url, "ALTER TABLE keepstate_asset DROP COLUMN uri")
    message = one_line(run("db", "check").err)
    assert "the table keepstate_session is missing" in message
    assert "the table keepstate_asset has no column uri" in message


def test_tail_waits_for_a_server_that_restarts(run, server, store_process, monkeypatch) -> None:
    """What changed after the restart is shown, and stderr says that the store was away."""
    monkeypatch.setenv("KEEPSTATE_RETRY_TIMEOUT", "0")
    run("set", "k", "1", *TASK)
    with store_process("tail", "--interval", "0.05", "--json", *TASK) as child:
        assert child.stderr.readline().startswith("keepstate: following")
        server.stop()
        assert child.stderr.readline().endswith("; still trying\n")
        server.start()
        assert child.stderr.readline() == "keepstate: the store can be reached again\n"
        run("set", "k", "2", *TASK)
        assert json.loads(child.stdout.readline())["value"] == 2
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        assert child.returncode == 130


@pytest.fixture
def store_process():
    """Start the command line as a process that is killed at the end."""
    children = []

    def start(*argv: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "keepstate", *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()


def test_a_server_that_is_not_there_is_69(run, url, monkeypatch) -> None:
    """One line, with the address and without the password."""
    scheme = url.partition(":")[0]
    monkeypatch.setenv("KEEPSTATE_URL", f"{scheme}://ada:s3cret@127.0.0.1:1/db")
    monkeypatch.setenv("KEEPSTATE_RETRY_TIMEOUT", "0")
    for argv in (["get", "k", *TASK], ["db", "check"], ["runs"]):
        done = run(*argv)
        assert done.code == 69
        message = one_line(done.err)
        assert "127.0.0.1:1" in message
        assert "s3cret" not in message
