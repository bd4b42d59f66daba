"""A served store with a run in it, Airflow's own client for it, and requests that no client sends."""

from __future__ import annotations

import http.client
import sqlite3
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from airflow_client.client import ApiClient, Configuration

from keepstate.connect import connect
from keepstate.settings import Settings
from keepstate.testing import ManualClock
from tests.server.rest.places import DAG, RUN, TASK
from tests.support.served import serving_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from keepstate.accessors import AssetStateStore, TaskStateStore
    from keepstate.store import StateStore
    from tests.support.served import Served


# Starting a server takes longer than most of these tests: those of a file share one, and each finds its store empty.


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, StateStore, Served]]:
    """A store and its server, with the file that it lives in."""
    path = tmp_path_factory.mktemp("rest") / "keepstate.db"
    with (
        connect(f"sqlite:///{path}", settings=Settings(), clock=ManualClock()) as opened,
        serving_store(opened) as server,
    ):
        yield path, opened, server


@pytest.fixture
def store(shared: tuple[Path, StateStore, Served]) -> StateStore:
    """The store: empty, and at its first moment."""
    path, store, server = shared
    connection = sqlite3.connect(path, isolation_level=None)
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'keepstate_%'"
    )
    for (name,) in tables.fetchall():
        if name != "keepstate_migration":
            connection.execute(f"DELETE FROM {name}")
    connection.close()
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(ManualClock().now - store.clock.now)
    server.service.failures._seen.clear()
    return store


@pytest.fixture
def clock(store: StateStore) -> ManualClock:
    """The time of the store and its server."""
    assert isinstance(store.clock, ManualClock)
    return store.clock


@pytest.fixture
def served(shared: tuple[Path, StateStore, Served], store: StateStore) -> Served:
    """The store, served."""
    return shared[2]


@pytest.fixture
def task(store: StateStore) -> TaskStateStore:
    """A task instance that is known, for its first attempt."""
    accessor = store.task(DAG, RUN, TASK, try_number=1)
    accessor.get("k")
    return accessor


@pytest.fixture
def asset(store: StateStore) -> AssetStateStore:
    """An asset that is known."""
    accessor = store.asset("orders", uri="s3://orders")
    accessor.set("watermark", "2026-11-28")
    return accessor


@pytest.fixture
def asset_id(store: StateStore, asset: AssetStateStore) -> int:
    """The number of that asset."""
    return store.assets()[0].id


@pytest.fixture
def airflow(served: Served) -> Iterator[Callable[..., ApiClient]]:
    """A function that makes Airflow's own client, for a token of a role."""
    made: list[ApiClient] = []

    def make(role: str = "admin", dags: str | None = None) -> ApiClient:
        made.append(ApiClient(Configuration(host=served.url, access_token=served.token(role, dags))))
        return made[-1]

    yield make
    for client in made:
        client.rest_client.pool_manager.clear()


@pytest.fixture
def rest(served: Served) -> Iterator[httpx.Client]:
    """A client with a token that may do all."""
    with httpx.Client(base_url=served.url, headers=served.headers(), timeout=20) as client:
        yield client


@pytest.fixture
def raw(served: Served) -> Callable[..., tuple[int, dict[str, str], bytes]]:
    """A function that sends a path as it is, dots and all; it returns status, headers and body."""
    headers = served.headers()
    place = urlsplit(served.url).netloc

    def send(
        method: str, path: str, body: bytes | None = None, **more: Any
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(place, timeout=20)
        try:
            connection.request(method, path, body, {**headers, **more})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    return send
