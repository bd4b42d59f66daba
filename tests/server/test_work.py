"""`Work` where the store is away: everybody gets an answer in time, and what has begun is left to end."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from keepstate.connect import connect
from keepstate.errors import BackendUnavailableError
from keepstate.server import work as module
from keepstate.server.work import Work, client_gone
from keepstate.settings import Settings
from tests.support.postgres import postgres_server
from tests.support.served import serving_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresServer


class Door:
    """A call that waits until it is let through, and remembers that it was made."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.knocked = threading.Event()
        self.made: list[object] = []

    def __call__(self, name: object = None) -> object:
        self.made.append(name)
        self.knocked.set()
        assert self.open.wait(20)
        return name


@pytest.fixture
def door() -> Door:
    """A store that does not answer."""
    return Door()


def make(patience: float = 0.2, stuck_after: float = 30) -> Work:
    """Return what has one thread for writes."""
    return Work(one_writer=True, patience=patience, stuck_after=stuck_after)


def test_what_waits_in_line_too_long_is_answered_at_once_and_never_made(door: Door) -> None:
    """All after the same time, not one patience after the other; the one that has begun is waited for."""

    async def ask() -> tuple[object, list[object], float]:
        work = make()
        first = asyncio.create_task(work.write(door, "first"))
        began = time.monotonic()
        rest = await asyncio.gather(*(work.write(door, n) for n in range(6)), return_exceptions=True)
        took = time.monotonic() - began
        door.open.set()
        answer = await first
        await asyncio.to_thread(work.close)
        return answer, rest, took

    answer, rest, took = asyncio.run(ask())
    assert answer == "first"
    assert [type(one) for one in rest] == [BackendUnavailableError] * 6
    assert "nothing was changed" in str(rest[0])
    assert took < 1
    assert door.made == ["first"]


def test_what_is_stuck_is_answered_for_while_its_thread_goes_on(door: Door) -> None:
    """And readers are no better than writers; afterwards the threads serve again."""

    async def ask() -> None:
        work = make(stuck_after=0.2)
        began = time.monotonic()
        stuck = [work.write(door, "w"), *(work.read(door, n) for n in range(30))]
        for error in await asyncio.gather(*stuck, return_exceptions=True):
            assert isinstance(error, BackendUnavailableError)
        assert time.monotonic() - began < 2
        assert len(door.made) == 1 + 8
        door.open.set()
        assert await work.read(door, "later") == "later"
        assert await work.write(door, "later") == "later"
        await asyncio.to_thread(work.close)

    asyncio.run(ask())


def test_what_was_given_up_before_it_began_is_not_made(door: Door) -> None:
    """By who asked, or because the connection of who asked is gone."""

    async def ask() -> None:
        work = make(patience=20)
        first = asyncio.create_task(work.write(door, "first"))
        cancelled = asyncio.create_task(work.write(door, "cancelled"))
        token = client_gone.set(lambda: True)
        gone = asyncio.create_task(work.write(door, "gone"))
        client_gone.reset(token)
        last = asyncio.create_task(work.write(door, "last"))
        await asyncio.sleep(0.05)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        door.open.set()
        assert await first == "first"
        assert await last == "last"
        with pytest.raises(BackendUnavailableError):
            await gone
        await asyncio.to_thread(work.close)

    asyncio.run(ask())
    assert door.made == ["first", "last"]


def test_the_line_has_an_end(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind it the answer comes at once; notes that nobody waits for give up earlier."""
    monkeypatch.setattr(module, "_LONGEST_LINE", 5)
    monkeypatch.setattr(module, "_MOST_NOTES", 2)

    async def ask() -> None:
        work = make(patience=20)
        first = asyncio.create_task(work.write(door, "first"))
        await asyncio.to_thread(door.knocked.wait, 20)
        for n in range(9):
            work.write_later(door, f"note {n}")
        rest = [asyncio.create_task(work.write(door, n)) for n in range(3)]
        await asyncio.sleep(0.05)
        with pytest.raises(BackendUnavailableError, match="too many"):
            await work.write(door, "one too many")
        door.open.set()
        await asyncio.gather(first, *rest)
        await asyncio.to_thread(work.close)

    asyncio.run(ask())
    assert door.made == ["first", "note 0", "note 1", 0, 1, 2]


def test_closing_finishes_what_was_begun_and_waits_for_no_dead_store(door: Door) -> None:
    """A database that never answers must not keep the server from ending."""

    async def ask() -> None:
        work = make(stuck_after=0.3)
        done: list[int] = []
        for n in range(20):
            work.write_later(done.append, n)
        await asyncio.to_thread(work.close)
        assert done == list(range(20))
        with pytest.raises(BackendUnavailableError):
            await work.write(door)

        work = make(stuck_after=0.3)
        stuck = asyncio.create_task(work.write(door))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await asyncio.to_thread(work.close)
        assert time.monotonic() - began < 2
        door.open.set()
        with pytest.raises(BackendUnavailableError, match="can't be told yet"):
            await stuck

    asyncio.run(ask())


def test_writes_to_a_locked_file_are_all_answered_after_the_patience(tmp_path: Path) -> None:
    """503, and when to try again; once the lock is gone, all goes on."""
    file = tmp_path / "keepstate.db"
    with (
        connect(f"sqlite:///{file}", settings=Settings(retry_timeout=1)) as store,
        serving_store(store) as served,
        httpx.Client(base_url=served.url, timeout=30) as http,
    ):
        headers = served.headers()

        def write(n: int) -> tuple[int, str | None, float]:
            began = time.monotonic()
            scope = {"task": {"dag_id": "d", "run_id": "r", "task_id": f"t{n}"}}
            change = {"put": {"key": "k", "text": "1", "expires_at": None}}
            batch = {"scope": scope, "changes": [change], "writer": {"kind": "cli"}}
            answer = http.post("/api/keepstate/v1/apply", json={"batch": batch}, headers=headers)
            return answer.status_code, answer.headers.get("Retry-After"), time.monotonic() - began

        assert write(0)[0] == 200
        with sqlite3.connect(file, isolation_level=None) as other, ThreadPoolExecutor(6) as threads:
            other.execute("BEGIN IMMEDIATE")
            answers = list(threads.map(write, range(1, 7)))
            other.execute("ROLLBACK")
        other.close()
        assert [answer[:2] for answer in answers] == [(503, "1")] * 6
        assert max(seconds for *_, seconds in answers) < 2.5
        assert write(7)[0] == 200


@contextmanager
def standing_still(server: PostgresServer) -> Iterator[None]:
    """Stop all processes of a database server: its system goes on taking what is sent, and nobody reads it."""
    assert server.pid is not None
    found = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    pids = [server.pid, *map(int, found)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_a_database_that_stands_still_is_not_waited_for_without_end() -> None:
    """503, for those whose call has begun, those in line, and the health check; when it goes on, so does the server."""
    with (
        postgres_server() as server,
        server.database() as url,
        connect(url, settings=Settings(retry_timeout=1)) as store,
        serving_store(store) as served,
        httpx.Client(base_url=served.url, timeout=60) as http,
        ThreadPoolExecutor(40) as threads,
    ):
        headers = served.headers()
        path = "/api/v2/dags/d/dagRuns/r/taskInstances/t/state-store/"

        def put(n: int) -> int:
            return http.put(f"{path}k{n}", json={"value": n}, headers=headers).status_code

        store.task("d", "r", "t").set("k", 0)
        assert set(threads.map(put, range(20))) == {204}
        with standing_still(server):
            began = time.monotonic()
            ready = threads.submit(http.get, "/health/ready")
            assert set(threads.map(put, range(40))) == {503}
            assert ready.result().status_code == 503
            assert time.monotonic() - began < 12
        deadline = time.monotonic() + 20
        while put(1) != 204:
            assert time.monotonic() < deadline, "the server does not go on"
            time.sleep(0.2)
