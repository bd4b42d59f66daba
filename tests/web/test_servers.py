"""The pages over database servers: the same, by the same verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from keepstate.connect import connect
from keepstate.settings import Settings
from tests.web.stories import LOAD, LOAD_PATH
from tests.web.test_paths import SEEN, asset_paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.store import StateStore
    from keepstate.testing import ManualClock
    from tests.backends.servers import Server
    from tests.support.served import Served
    from tests.web.stories import Story


@pytest.fixture(params=["postgres", "mysql"])
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[StateStore]:
    """A store in a database of its own."""
    server: Server = request.getfixturevalue(request.param)
    with server.database() as url, connect(url, settings=Settings(), clock=clock) as opened:
        yield opened


def test_all_pages_are_there_and_changes_are_made(served: Served, story: Story) -> None:
    """Each page is shown, live ones tell of a change, an entry is saved, deleted, restored and cleared."""
    state = story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id)
    headers = {**served.headers("editor"), "Sec-Fetch-Site": "same-origin"}
    with httpx.Client(base_url=served.url, headers=headers, timeout=20) as client:
        for path in [*SEEN, *asset_paths(story), "/search?q=curs"]:
            assert client.get(path).status_code == 200, path
        for path in ("/dags", "/dags/etl_orders", LOAD_PATH, "/assets"):
            with client.stream("GET", f"/events{path}") as stream:
                assert any(line.startswith("data: ") for line in stream.iter_lines())
        form = {"key": "k/é", "value": '{"n": 1}', "expiry": "never", "version": "0"}
        assert client.post(f"{LOAD_PATH}/entries", data=form).status_code == 204
        assert client.post(f"{LOAD_PATH}/entries", data=form).status_code == 409
        entry = state.entry("k/é")
        assert entry is not None
        assert entry.value == {"n": 1}
        gone = {"key": "k/é", "version": entry.version}
        assert client.post(f"{LOAD_PATH}/entries/delete", data=gone).status_code == 204
        back = {**gone, "standing": "0"}
        assert client.post(f"{LOAD_PATH}/history/restore", data=back).status_code == 204
        assert state.get("k/é") == {"n": 1}
        assert client.post(f"{LOAD_PATH}/history/restore", data=back).status_code == 412
        assert client.post(f"{LOAD_PATH}/entries/clear", data={"forget": "on"}).status_code == 204
        assert state.entries() == []
        assert state.history("k/é") == []


def test_what_can_be_no_name_is_nobodys_fault(served: Served, story: Story) -> None:
    """A database refuses some texts; here they are what is not there, or is wrong with what was sent."""
    headers = {**served.headers("editor"), "Sec-Fetch-Site": "same-origin"}
    with httpx.Client(base_url=served.url, headers=headers, timeout=20) as client:
        for odd in ("%00", "a%00b", "%ED%A0%80", "%FF", "x" * 600, "..", "a/../b", "%E2%80%AE"):
            for path in (
                f"/dags/{odd.replace('/', '%2F')}",
                f"/events/dags/{odd.replace('/', '%2F')}",
                f"/dags/d/runs/{odd.replace('/', '%2F')}/tasks/t",
                f"/dags?q={odd}",
                f"/search?q={odd}",
                f"{LOAD_PATH}?q={odd}",
                f"{LOAD_PATH}/entries/form?key={odd}",
                f"{LOAD_PATH}/entries/value?key={odd}",
                f"{LOAD_PATH}/entries/delete?key={odd}",
                f"{LOAD_PATH}/history?key={odd}",
            ):
                assert client.get(path).status_code < 500, path
            body = f"key={odd}&value=1&version=1"
            for path in ("entries", "entries/check", "entries/delete", "history/restore"):
                assert client.post(f"{LOAD_PATH}/{path}", content=body).status_code < 500, (path, odd)
    assert story
