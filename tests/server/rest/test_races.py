"""Many clients at once: no expiry comes back, no write is lost, nothing is half seen. Over SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from keepstate.connect import connect
from keepstate.retention import NEVER_EXPIRE
from keepstate.settings import Settings
from keepstate.testing import ManualClock
from tests.server.rest.places import BASE, DAG, RUN, TASK
from tests.support.served import serving_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from keepstate.store import StateStore
    from tests.support.served import Served

CLIENTS = 8


@pytest.fixture
def clock() -> ManualClock:
    """The time of the store and its server."""
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[StateStore]:
    """A store of each database."""
    url = (
        f"sqlite:///{tmp_path / 'keepstate.db'}"
        if request.param == "sqlite"
        else request.getfixturevalue("postgres_url")
    )
    with connect(url, settings=Settings(), clock=clock) as opened:
        yield opened


def at_once(served: Served, *works: Callable[[httpx.Client], Any]) -> list[Any]:
    """Run each work with a client of its own, all from the same moment on; return what they return."""
    headers, gate = served.headers(), threading.Barrier(len(works))

    def run(work: Callable[[httpx.Client], Any]) -> Any:
        with httpx.Client(base_url=served.url, headers=headers, timeout=60) as client:
            client.get(BASE)
            gate.wait()
            return work(client)

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def test_a_patch_never_brings_an_old_expiry_back(served: Served, store: StateStore) -> None:
    """PUT and PATCH at once: whoever comes last, the expiry is that of the last PUT."""
    tss = store.task(DAG, RUN, TASK)
    tss.set("k", "begin", retention=timedelta(days=1))

    def patching(client: httpx.Client) -> None:
        for number in range(30):
            assert client.patch(f"{BASE}/k", json={"value": number}).status_code == 200

    def putting(client: httpx.Client) -> str:
        last = ""
        for number in range(30):
            last = f"2031-01-01T00:00:00.{number:06}Z"
            body = {"value": "put", "expires_at": last}
            assert client.put(f"{BASE}/k", json=body).status_code == 204
        return last

    *_, last = at_once(served, patching, patching, patching, putting)
    with httpx.Client(base_url=served.url, headers=served.headers()) as client:
        assert client.get(f"{BASE}/k").json()["expires_at"] == last
    # each version that a patch made has the expiry of the one before it
    past = tss.history("k")
    for newer, older in pairwise(past):
        if newer.value != "put":
            assert newer.expires_at == older.expires_at


def test_no_increment_under_if_match_is_lost(served: Served, store: StateStore) -> None:
    """Read, add, write if it still stands so, else again: everybody gets through."""
    tss = store.task(DAG, RUN, TASK)
    tss.set("n", 0, retention=NEVER_EXPIRE)

    def adding(client: httpx.Client) -> int:
        refused = 0
        for _ in range(10):
            while True:
                found = client.get(f"{BASE}/n")
                headers = {"If-Match": found.headers["etag"]}
                body = {"value": found.json()["value"] + 1}
                done = client.put(f"{BASE}/n", json=body, headers=headers)
                if done.status_code == 204:
                    break
                assert done.status_code == 412
                refused += 1
        return refused

    at_once(served, *[adding] * CLIENTS)
    assert tss.get("n") == 10 * CLIENTS
    entry = tss.entry("n")
    assert entry is not None
    assert entry.version == 10 * CLIENTS + 1


def test_one_of_many_creates(served: Served, store: StateStore) -> None:
    """With `If-None-Match: *` one gets 204, and all others 412."""
    store.task(DAG, RUN, TASK, try_number=1).get("k")

    def creating(client: httpx.Client) -> list[int]:
        return [
            client.put(f"{BASE}/k{number}", json={"value": 1}, headers={"If-None-Match": "*"}).status_code
            for number in range(10)
        ]

    for statuses in zip(*at_once(served, *[creating] * CLIENTS), strict=True):
        assert sorted(statuses) == [204, *[412] * (CLIENTS - 1)]


def test_writers_to_a_run_that_is_deleted_meanwhile(served: Served, store: StateStore) -> None:
    """Each write is there before the deletion and goes with it, or it is 404: none makes the run again."""
    for number in range(10):
        run, base = f"r{number}", BASE.replace(RUN.replace("+", "%2B"), f"r{number}")
        store.task(DAG, run, TASK).set("k", 1)

        def writing(client: httpx.Client, base: str = base) -> list[int]:
            return [client.put(f"{base}/k{n}", json={"value": n}).status_code for n in range(10)]

        def deleting(client: httpx.Client, run: str = run) -> list[int]:
            return [client.delete(f"/api/v2/dags/{DAG}/dagRuns/{run}").status_code]

        *written, deleted = at_once(served, writing, writing, deleting)
        assert deleted == [204]
        for statuses in written:
            assert statuses == sorted(statuses)
            assert set(statuses) <= {204, 404}
        assert dict(store.task(DAG, run, TASK).items()) == {}
        assert store.task_instances(DAG, run) == []


def test_readers_see_whole_entries(served: Served, store: StateStore) -> None:
    """While others write: a value and its version belong together, and a list is of one moment."""
    tss = store.task(DAG, RUN, TASK)
    tss.set_many({"a": 0, "b": 0})

    def writing(_client: httpx.Client) -> None:
        for number in range(1, 60):
            tss.set_many({"a": number, "b": number})

    def reading(client: httpx.Client) -> None:
        for _ in range(60):
            found = client.get(BASE).json()["task_state_store"]
            assert found[0]["value"] == found[1]["value"]
            one = client.get(f"{BASE}/a")
            assert one.headers["etag"] == f'"{one.json()["value"] + 1}"'

    at_once(served, writing, reading, reading)


@pytest.fixture
def served(store: StateStore) -> Iterator[Served]:
    """The store, served."""
    with serving_store(store) as server:
        yield server
