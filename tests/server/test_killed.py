"""A server that is killed again and again, under load: what was answered is there, and nothing is there twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import httpx
import pytest

from keepstate.connect import connect, tokens_of
from keepstate.server.roles import Role
from keepstate.server.tokens import Tokens
from keepstate.settings import Settings
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

DAG, RUN = "etl", "r"


class Supervised:
    """A server that is started again whenever it was killed."""

    def __init__(self, url: str, home: Path, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self._command = [sys.executable, "-m", "keepstate", "serve", "--port", str(port), "--no-access-log"]
        self._environment = {**os.environ, "KEEPSTATE_HOME": str(home), "KEEPSTATE_URL": url}
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        # it says where it is once it answers
        assert "serving" in self._process.stderr.readline()

    def kill_and_restart(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._start()

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=60)


def incrementing(address: str, token: str, number: int, done: threading.Event, acked: list[int]) -> None:
    """Count up through the worker API, as a task does: a lost answer is asked for again, and applies once."""
    settings = Settings(token=token, retry_timeout=60)
    with connect(address, settings=settings) as store:
        tss = store.task(DAG, RUN, f"count{number}", try_number=1)
        while not done.is_set():
            tss.increment("k")
            acked[number] += 1


def putting(
    address: str,
    headers: dict[str, str],
    number: int,
    done: threading.Event,
    acked: list[int],
    sent: list[int],
) -> None:
    """Put rising numbers over REST; after a lost connection, go on with the next."""
    path = f"/api/v2/dags/{DAG}/dagRuns/{RUN}/taskInstances/put/state-store/k{number}"
    with httpx.Client(base_url=address, headers=headers, timeout=20) as http:
        while not done.is_set():
            sent[number] += 1
            try:
                answer = http.put(path, json={"value": sent[number]})
            except httpx.TransportError:
                # until it is there again
                done.wait(0.05)
                continue
            if answer.status_code == 204:
                acked[number] = sent[number]


@pytest.mark.parametrize("database", ["sqlite", "postgres", pytest.param("mysql", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("kills", "every", "connections"),
    [
        pytest.param(2, 1.5, 8),
        pytest.param(12, 5, 32, marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
    ],
)
def test_what_was_answered_is_there_once(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: str,
    kills: int,
    every: float,
    connections: int,
) -> None:
    """Half of the connections count up through the worker API, half put rising numbers over REST."""
    url = (
        f"sqlite:///{tmp_path / 'keepstate.db'}"
        if database == "sqlite"
        else str(request.getfixturevalue(f"{database}_url"))
    )
    with connect(url, settings=Settings()) as store:
        token = Tokens(tokens_of(store), store.clock).create("load", Role.WORKER)
        store.task(DAG, RUN, "put").set("known", 1)
    server = Supervised(url, tmp_path / "home", free_port())
    half = connections // 2
    counted, put, sent = [0] * half, [0] * half, [0] * half
    done = threading.Event()
    headers = {"Authorization": f"Bearer {token}"}
    threads = [
        threading.Thread(target=incrementing, args=(server.address, token, n, done, counted))
        for n in range(half)
    ] + [
        threading.Thread(target=putting, args=(server.address, headers, n, done, put, sent))
        for n in range(half)
    ]
    for thread in threads:
        thread.start()
    for _ in range(kills):
        done.wait(every)
        server.kill_and_restart()
    done.wait(every)
    done.set()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    server.end()
    with connect(url, settings=Settings()) as store:
        for number in range(half):
            found = store.task(DAG, RUN, f"count{number}").get("k")
            assert found == counted[number] > 0, f"{found} counted, {counted[number]} answered"
            value = store.task(DAG, RUN, "put").get(f"k{number}")
            # the last ones sent may have been written though nobody heard of it
            assert 0 < put[number] <= value <= sent[number]
