"""A served store with a run in it, Airflow's own client for it, and requests that no client sends."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from airflow_client.client import ApiClient, Configuration

from keepstate.testing import ManualClock
from tests.server.rest.places import DAG, RUN, TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keepstate.accessors import AssetStateStore, TaskStateStore
    from keepstate.store import StateStore
    from tests.support.served import Served


@pytest.fixture
def clock() -> ManualClock:
    """The time of the store and its server."""
    return ManualClock()


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
