"""What the server tells of itself, and does by itself."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from keepstate.clock import SECOND
from keepstate.errors import (
    BackendError,
    BackendUnavailableError,
    StaleAttemptError,
    StoreCorruptedError,
    StoreFullError,
    StoreReadOnlyError,
)
from keepstate.retention import NEVER_EXPIRE
from keepstate.server.app import create_service
from keepstate.server.cleaning import clean, clean_again_and_again
from keepstate.server.health import Health
from keepstate.server.metrics import Metrics
from keepstate.server.roles import Role
from keepstate.server.work import client_gone
from tests.support.served import serving_store

if TYPE_CHECKING:
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock
    from tests.support.served import Served


def figures(served: Served, http: httpx.Client) -> dict[str, float]:
    """Return the figures at `/metrics`, by name and labels."""
    text = http.get("/metrics", headers=served.headers()).text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


# ------------------------------------------------------------------------------------------------- health


@pytest.mark.parametrize("path", ["/health", "/health/ready"])
def test_the_server_is_ready_while_its_store_can_be_written(
    served: Served, http: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """And says so honestly when it can't, while it lives on."""
    assert http.get(path).json() == {"status": "ready"}
    health = served.health
    health._asked_at = float("-inf")

    def away() -> None:
        raise BackendUnavailableError("the store is away", address="x")

    monkeypatch.setattr(served.service.store.backend, "check_writable", away, raising=False)
    answer = http.get(path)
    assert answer.status_code == 503
    assert answer.json() == {"status": "the store can't be written to"}
    assert http.get("/health/live").json() == {"status": "live"}


def test_a_database_that_hangs_is_not_ready(
    served: Served, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes all the same."""
    let_go = threading.Event()
    monkeypatch.setattr(
        served.service.store.backend, "check_writable", lambda: let_go.wait(20), raising=False
    )
    served.health._patience = 0.1
    try:
        assert http.get("/health").status_code == 503
        assert http.get("/health/live").status_code == 200
    finally:
        let_go.set()


def test_who_asks_and_leaves_does_not_make_the_store_unready(served: Served) -> None:
    """The answer is kept for everybody, and the one who asked first may be gone before it is looked for."""

    async def ask() -> bool:
        token = client_gone.set(lambda: True)
        try:
            return await Health(served.service).ready()
        finally:
            client_gone.reset(token)

    assert asyncio.run(ask())


def test_many_who_ask_cost_one_question(
    served: Served, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody needs a token to ask, so asking must be cheap."""
    asked = []
    backend = served.service.store.backend
    monkeypatch.setattr(backend, "check_writable", lambda: asked.append(1), raising=False)
    for _ in range(20):
        assert http.get("/health").status_code == 200
    assert len(asked) <= 2


@pytest.mark.parametrize(
    "error",
    [
        BackendUnavailableError("the store postgresql://keeper@db:5432/jobs is away", address="x"),
        StoreFullError("the store sqlite:////var/lib/keeper.db has no room", address="x"),
        StoreReadOnlyError("keeper.db may only be read by this user", address="x"),
        StoreCorruptedError("keeper.db is damaged", address="x"),
        BackendError("keeper failed at db:5432", address="x"),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_where_the_database_is_stays_here(
    served: Served, http: httpx.Client, monkeypatch: pytest.MonkeyPatch, error: BackendError, known: bool
) -> None:
    """Whoever asks, with a token or with a made-up one, over REST, the worker API or the pages."""
    headers = served.headers() if known else {"Authorization": f"Bearer kst_{'0' * 16}_{'x' * 43}"}

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    backend = served.service.store.backend._backend
    monkeypatch.setattr(backend, "_query", fail)
    monkeypatch.setattr(backend, "_write", fail)
    monkeypatch.setattr(served.service.tokens._rows, "_query", fail)
    monkeypatch.setattr(served.service.tokens._rows, "_write", fail)
    token = headers["Authorization"].partition(" ")[2]
    ours = {"Sec-Fetch-Site": "same-origin"}
    answers = [
        http.get("/api/v2/dags", headers=headers),
        http.post("/api/keepstate/v1/dags", json={}, headers=headers),
        http.get("/dags", headers={"Cookie": f"keepstate_session={token.replace('kst', 'kss')}"}),
        http.post("/login", data={"token": token}, headers=ours),
        http.get(f"/login?code={token.replace('kst', 'ksl')}"),
        http.post("/logout", headers={**ours, "Cookie": f"keepstate_session={token.replace('kst', 'kss')}"}),
        http.get("/metrics", headers=headers),
        http.get("/health"),
    ]
    assert {answer.status_code for answer in answers} <= {500, 503, 507}
    for answer in answers:
        assert "keeper" not in answer.text
        assert "5432" not in answer.text
        assert "Traceback" not in answer.text


# ------------------------------------------------------------------------------------------------- figures


def test_the_figures_count_what_happens(served: Served, http: httpx.Client) -> None:
    """Requests by route, entries written, attempts refused, whoever asked for them."""
    store = served.service.store
    store.task("etl", "r", "t", try_number=2).set_many({"a": 1, "b": 2})
    store.task("etl", "r", "t").delete("a")
    with pytest.raises(StaleAttemptError):
        store.task("etl", "r", "t", try_number=1).set("a", 1)
    http.get("/health/live")
    http.get("/no/such/page/17")
    found = figures(served, http)
    assert found["keepstate_entries_written_total"] == 2
    assert found["keepstate_stale_attempts_refused_total"] == 1
    assert found['keepstate_requests_total{method="GET",route="/health/live",status="200"}'] == 1
    # a path that is nobody's is no route, or each would be a time series of its own
    assert found['keepstate_requests_total{method="GET",route="(none)",status="404"}'] == 1
    assert found['keepstate_request_seconds_count{method="GET",route="/health/live"}'] == 1
    assert found["keepstate_requests_in_flight"] == 1


def test_the_figures_are_for_who_may_read_all(served: Served, http: httpx.Client) -> None:
    """They tell of all dags together."""
    assert http.get("/metrics").status_code == 401
    assert http.get("/metrics", headers=served.headers("viewer")).status_code == 200
    assert http.get("/metrics", headers=served.headers("admin", "etl_*")).status_code == 403


# ------------------------------------------------------------------------------------------------ the log


def test_each_request_is_a_line_of_json(
    served: Served, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """With who asked, and without what logs in."""
    caplog.set_level(logging.INFO, "keepstate.access")
    token = served.token("viewer")
    http.get("/metrics?token=hidden", headers={"Authorization": f"Bearer {token}"})
    http.get(f"/login?code={token}")
    http.post("/login", data={"token": token}, headers={"Sec-Fetch-Site": "same-origin"})
    http.get("/a%0ab\u2028c")
    # a line is written when its answer is on the way
    for _ in range(1_000):
        if len(caplog.records) >= 4:
            break
        time.sleep(0.01)
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("GET", "/metrics", 200),
        ("GET", "/login", 401),
        ("POST", "/login", 303),
        ("GET", "/a\nb\u2028c", 404),
    ]
    assert lines[0]["token"] == "viewer-0"
    assert lines[0]["client"] == "127.0.0.1"
    assert lines[0]["bytes"] > 100
    assert lines[0]["ms"] > 0
    assert "hidden" not in caplog.text
    assert token not in caplog.text
    assert all("\n" not in record.getMessage() for record in caplog.records)


# ------------------------------------------------------------------------------------------------- headers


@pytest.mark.parametrize("path", ["/health", "/login", "/metrics", "/nothing"])
def test_every_answer_makes_a_browser_careful(http: httpx.Client, path: str) -> None:
    """No inline script, no frame, no guess at types, nothing kept."""
    headers = http.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


# ------------------------------------------------------------------------------------------------- cleanup


def test_cleanup_removes_what_has_expired(store: StateStore, clock: ManualClock) -> None:
    """In batches, tokens that ended long ago too, and the figures tell of it."""
    service = create_service(store)
    tss = store.task("etl", "r", "t")
    for number in range(25):
        tss.set(f"k{number}", number, retention=timedelta(days=1))
    tss.set("stays", 1, retention=NEVER_EXPIRE)
    service.tokens.create("brief", Role.VIEWER, lasts=SECOND)
    clock.advance(timedelta(days=2))
    assert asyncio.run(clean(service)) >= 25
    assert [token.name for token in service.tokens.all()] == ["brief"]
    clock.advance(timedelta(days=29))
    asyncio.run(clean(service))
    assert service.tokens.all() == []
    text = service.metrics.text().decode()
    assert 'keepstate_purged_rows_total{kind="entries"} 25.0' in text
    finished = next(line for line in text.splitlines() if line.startswith("keepstate_purge_last_success_"))
    assert float(finished.split()[1]) == clock() / SECOND
    service.work.close()


def test_a_cleanup_that_fails_is_tried_again(
    store: StateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The trouble is logged and counted, and the timer goes on."""
    service = create_service(store)
    calls: list[int] = []

    def purge(**_: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            third.set()
        if len(calls) == 1:
            raise BackendUnavailableError("the store is away", address="x")
        return iter(())

    monkeypatch.setattr(service.store.backend, "purge", purge, raising=False)

    third = threading.Event()

    async def run() -> None:
        timer = asyncio.create_task(clean_again_and_again(service, 0.01))
        assert await asyncio.to_thread(third.wait, 20)
        timer.cancel()

    asyncio.run(run())
    assert "cleanup failed, and will be tried again: the store is away" in caplog.text
    assert b"keepstate_purge_failures_total 1.0" in service.metrics.text()
    service.work.close()


def test_the_server_cleans_up_by_itself(store: StateStore, clock: ManualClock) -> None:
    """Nobody asks for it."""
    tss = store.task("etl", "r", "t")
    tss.set("k", 1, retention=timedelta(days=1))
    clock.advance(timedelta(days=2))
    with (
        serving_store(store, cleanup_interval=0.01) as served,
        httpx.Client(base_url=served.url, timeout=20) as http,
    ):
        headers = served.headers()
        for _ in range(2000):
            text = http.get("/metrics", headers=headers).text
            if 'keepstate_purged_rows_total{kind="entries"} 1.0' in text:
                break
        else:
            pytest.fail("nothing was removed")


def test_the_page_of_figures_lists_them_all() -> None:
    """Each figure has its line in the documentation."""
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs/reference/server.md").read_text(encoding="utf-8")
    for family in Metrics().registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        assert f"`{family.name}{suffix}`" in page, family.name
