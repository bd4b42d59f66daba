"""What a write returned from is there after `kill -9`, whole; what it did not is there whole or not at all."""

from __future__ import annotations

import os
import random
import signal
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.backends.children import wait_until
from tests.backends.stores import open_url, task

if TYPE_CHECKING:
    from pathlib import Path

    from keepstate.store import StateStore

ROUNDS = 20
NUMBER = struct.Struct("<q")


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new store."""
    if request.param != "sqlite":
        return str(request.getfixturevalue(f"{request.param}_url"))
    return f"sqlite:///{tmp_path / 'keepstate.db'}"


class Victim:
    """A forked process that writes pairs of numbers until it is killed, and tells each that was written."""

    def __init__(self, url: str, start: int) -> None:
        self._acknowledged, acknowledge = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(acknowledge)
            return
        try:
            with open_url(url) as store:
                tss = task(store, try_number=1)
                for number in range(start, start + 100_000):
                    # an odd number is written alone, an even one with others, a tenth by increment
                    if number % 10 == 0:
                        tss.increment("n")
                    elif number % 2:
                        tss.set("n", number)
                    else:
                        tss.set_many({"n": number, "left": number, "right": number})
                    os.write(acknowledge, NUMBER.pack(number))
        finally:
            os._exit(1)

    def kill(self, after: int, delay: float) -> int:
        """Kill it some time after that many acknowledged writes; return the last number it acknowledged."""
        last = 0
        with os.fdopen(self._acknowledged, "rb") as pipe:
            for _ in range(after):
                last = NUMBER.unpack(pipe.read(NUMBER.size))[0]
            until = time.perf_counter() + delay
            while time.perf_counter() < until:
                pass
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            rest = pipe.read()
        whole = len(rest) // NUMBER.size
        return NUMBER.unpack_from(rest, (whole - 1) * NUMBER.size)[0] if whole else last


def left_behind(url: str) -> dict[str, Any]:
    """Return what a new process finds: the entries, and the versions of ``n`` that history has."""
    with open_url(url) as store:
        tss = task(store)
        entry = tss.entry("n")
        assert entry is not None
        return {
            **dict(tss.items()),
            "version": entry.version,
            "history": [one.version for one in tss.history("n")],
        }


def test_kill_9_at_random_moments(url: str) -> None:
    """Every write that returned is there, none is half there, and the versions are consecutive."""
    dice = random.Random()
    number = 0
    for _ in range(ROUNDS // 2 if url.startswith("mysql") else ROUNDS):
        after, delay = dice.randint(1, 30), dice.random() * 0.002
        acknowledged = Victim(url, number + 1).kill(after, delay)
        assert acknowledged >= number + after
        # the server may still be busy with the last request of who has gone
        found = wait_until(lambda: _settled(url))
        assert found["n"] in {acknowledged, acknowledged + 1}
        assert found["version"] == found["n"]
        pairs = [one for one in range(2, found["n"] + 1, 2) if one % 10]
        assert found.get("left") == found.get("right") == (pairs[-1] if pairs else None)
        assert found["history"] == list(range(found["n"], max(0, found["n"] - 20), -1))
        number = found["n"]


def _settled(url: str) -> dict[str, Any] | None:
    """Return what is there once it has stopped changing."""
    before = left_behind(url)
    return before if before == left_behind(url) else None


def test_sqlite_syncs_every_commit(tmp_path: Path) -> None:
    """A store's own connections run with a write-ahead log, and FULL: a power loss takes nothing that was returned."""
    store: StateStore
    with open_url(f"sqlite:///{tmp_path / 'keepstate.db'}") as store:
        query = store.backend._db.query  # type: ignore[attr-defined]
        assert query("PRAGMA journal_mode", {}) == [("wal",)]
        assert query("PRAGMA synchronous", {}) == [(2,)]
        assert query("PRAGMA fullfsync", {}) == [(1,)]
        with store.backend._db.transaction() as tx:  # type: ignore[attr-defined]
            assert tx.one("PRAGMA synchronous", {}) == (2,)


def test_postgres_syncs_every_commit(postgres_url: str) -> None:
    """A store's own connections leave the server's durability on."""
    with open_url(postgres_url) as store:
        assert store.backend._db.query("SHOW synchronous_commit", {}) == [("on",)]  # type: ignore[attr-defined]
