"""Minutes of clients that are killed and databases that crash, at random, and an oracle that knows every answer."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.backends.servers import MYSQL, POSTGRES
from tests.backends.stores import open_url
from tests.support.soaked import SCOPE, SHARED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from keepstate.store import StateStore
    from tests.backends.servers import Server

CLIENTS = 4
NOTHING: Any = None


@dataclass
class Oracle:
    """What a client's journal says that its entries may be: one of several values where an answer is missing."""

    counted: int = 0
    shared: list[float] = field(default_factory=list)
    may_be: dict[str, set[Any]] = field(default_factory=dict)
    unanswered: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    _read: int = 0

    def read(self, journal: Path) -> None:
        """Take in what was written since the last time; the client has been killed."""
        lines = journal.read_text().splitlines() if journal.exists() else []
        asked = None
        for line in lines[self._read :]:
            said = json.loads(line)
            if "asked" in said:
                asked = said
            else:
                self._answered(said)
                asked = None
        self._read = len(lines)
        if asked is not None:
            self._never_answered(asked)

    def _answered(self, said: dict[str, Any]) -> None:
        verb, number = said["answered"], said["number"]
        self.changes += 1
        if verb == "count":
            self.counted += 1
        elif verb == "share":
            self.shared.append(said["answer"])
        else:
            self.may_be[verb] = {_written(verb, number)}

    def _never_answered(self, said: dict[str, Any]) -> None:
        verb, number = said["asked"], said["number"]
        self.unanswered[verb] = self.unanswered.get(verb, 0) + 1
        if verb in {"set", "pair", "toggle"}:
            self.may_be.setdefault(verb, {NOTHING}).add(_written(verb, number))

    def check(self, store: StateStore, name: str) -> None:
        """Compare with what is stored, and take that for certain from here on."""
        found = dict(store.task(*SCOPE, name).items())
        assert found.get("left") == found.get("right"), "half a batch"
        for verb, key in {"set": "set", "pair": "left", "toggle": "toggle"}.items():
            value = found.get(key, NOTHING)
            assert value in self.may_be.get(verb, {NOTHING}), (name, verb)
            self.may_be[verb] = {value}
        count = found.get("count", 0)
        assert self.counted <= count <= self.counted + self.unanswered.get("count", 0), name
        self.counted, self.unanswered["count"] = count, 0


def _written(verb: str, number: int) -> Any:
    return NOTHING if verb == "toggle" and number % 2 == 0 else number


class Soak:
    """Clients on one store, each of which begins its next attempt once it has been killed and looked at."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.store = open_url(url, timeout=120)
        self.random = random.Random(seed)
        self.oracles = [Oracle() for _ in range(CLIENTS)]
        self._url, self._folder = url, folder
        self._tries = [0] * CLIENTS
        self._processes = [self._start(number) for number in range(CLIENTS)]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        self._tries[number] += 1
        arguments = [
            self._url,
            f"client{number}",
            str(self._tries[number]),
            str(self.random.random())[2:],
            str(self._journal(number)),
        ]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.soaked", *arguments], stderr=subprocess.PIPE
        )

    def _journal(self, number: int) -> Path:
        return self._folder / f"client{number}.jsonl"

    def kill(self, number: int, *, restart: bool = True) -> None:
        """Kill a client, compare what it left behind, and begin its next attempt."""
        process = self._processes[number]
        process.kill()
        _, said = process.communicate()
        assert process.returncode == -9, said.decode()
        self.oracles[number].read(self._journal(number))
        self.oracles[number].check(self.store, f"client{number}")
        if restart:
            self._processes[number] = self._start(number)

    def end(self) -> None:
        """Kill all, and compare the number that they share with what each of them was answered."""
        for number in range(CLIENTS):
            self.kill(number, restart=False)
        sums = [one for oracle in self.oracles for one in oracle.shared]
        lost = sum(oracle.unanswered.get("share", 0) for oracle in self.oracles)
        total = self.store.task(*SCOPE, SHARED).get("count", 0)
        assert len(sums) == len(set(sums)), "a sum was given twice"
        assert len(sums) <= total <= len(sums) + lost
        self.store.close()


@contextmanager
def soaked(server: Server | None, url: str, folder: Path, seconds: float) -> Iterator[Soak]:
    """Kill clients for so long, and the database in between; yield once all is over."""
    soak = Soak(url, folder, seed=7)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        # the pace of the kills, not a wait for anything
        time.sleep(soak.random.uniform(0.1, 2))
        if server is not None and soak.random.random() < 0.2:
            server.crash()
            time.sleep(soak.random.uniform(0, 1))
            server.start()
        else:
            soak.kill(soak.random.randrange(CLIENTS))
    soak.end()
    yield soak


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("database", ["sqlite", "postgres", "mysql"])
def test_every_answered_change_is_there_once(database: str, tmp_path: Path) -> None:
    """Whoever is killed, and whenever: what was answered is there, what was not is there as a whole or not at all."""
    kinds = {"postgres": POSTGRES, "mysql": MYSQL}
    start: AbstractContextManager[Any] = kinds[database].start() if database in kinds else nullcontext()
    with start as server:
        made = server.database() if server else nullcontext(f"sqlite:///{tmp_path / 'keepstate.db'}")
        with (
            made as url,
            soaked(server, url, tmp_path, seconds=200) as soak,
        ):
            assert all(oracle.changes > 50 for oracle in soak.oracles)


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ([("asked", "set", 1), ("answered", "set", 1)], {}),
        ([("asked", "set", 1), ("answered", "set", 1), ("asked", "set", 2)], {"set": 3}),
        ([("asked", "pair", 1)], {"left": 1}),
        ([("asked", "count", 1), ("answered", "count", 1)], {"count": 2}),
        ([("asked", "toggle", 2), ("answered", "toggle", 2)], {"toggle": 1}),
    ],
)
def test_the_oracle_notices(tmp_path: Path, said: list[tuple[str, str, int]], stored: dict[str, int]) -> None:
    """A lost change, one that nobody made, half a batch, a doubled one, and one that came back."""
    journal = tmp_path / "journal"
    journal.write_text("".join(json.dumps({kind: verb, "number": n}) + "\n" for kind, verb, n in said))
    oracle = Oracle()
    oracle.read(journal)
    with open_url("memory:") as store:
        if stored:
            store.task(*SCOPE, "client0").set_many(stored)
        with pytest.raises(AssertionError):
            oracle.check(store, "client0")
