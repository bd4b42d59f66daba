"""The pages as a part of another program's: in a frame of its pages, for its users. What Airflow is to them, in small."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import httpx
from fastapi import FastAPI
from playwright.sync_api import expect
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse
from starlette.routing import Mount, Route

from keepstate.server.app import create_app, create_service
from keepstate.server.headers import SecurityHeaders
from keepstate.server.roles import Caller, Role
from keepstate.web import live
from tests.support.served import running
from tests.web.stories import LOAD, LOAD_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest
    from playwright.sync_api import Browser
    from starlette.requests import Request

    from keepstate.store import StateStore
    from tests.web.stories import Story

FRAME = """<!doctype html><html class="dark"><style>html {{ background: rgb(1, 2, 3) }}</style><h1>The host</h1>
<iframe title="tab" sandbox="allow-scripts allow-same-origin allow-forms" width="900" height="600" src="keepstate{}"></iframe></html>"""


@dataclass
class Somebody:
    """A host whose cookie says what somebody may do."""

    name: str = "The Host"
    edits: bool = False

    async def caller_of(self, request: Request) -> Caller:
        if "role" not in request.cookies:
            raise HTTPException(401)
        return Caller("host", "ada", Role(request.cookies["role"]))


@contextmanager
def hosting(store: StateStore, host: Somebody) -> Iterator[str]:
    """Serve a page of the host, with ours in a frame of it."""
    ours = create_app(replace(create_service(store), host=host))
    ours.user_middleware = [one for one in ours.user_middleware if one.cls is not SecurityHeaders]
    ours.add_middleware(SecurityHeaders, framed=True)
    around = FastAPI()
    around.router.routes += [
        Route("/", lambda _: HTMLResponse(FRAME.format(LOAD_PATH))),
        Mount("/keepstate", ours),
    ]
    with running(around) as url:
        yield url


def test_in_a_frame_it_is_a_part_of_the_host(browser: Browser, store: StateStore, story: Story) -> None:
    """No login and no navigation of its own, the host's ground, and dialogs that a sandbox allows."""
    with hosting(store, Somebody()) as url:
        context = browser.new_context(base_url=url, color_scheme="light")
        context.add_cookies([{"name": "role", "value": "editor", "url": url}])
        page = context.new_page()
        page.goto("/")
        tab = page.frame_locator("iframe")
        expect(tab.locator("body")).to_have_attribute("data-live", "on")
        expect(tab.locator("html")).to_have_attribute("data-theme", "dark")
        expect(tab.locator("body")).to_have_css("background-color", "rgb(1, 2, 3)")
        for absent in ("Log out", "Switch between light and dark"):
            expect(tab.get_by_role("button", name=absent)).to_have_count(0)
        expect(tab.get_by_role("link", name="Dags")).to_have_count(0)
        tab.get_by_role("button", name="Delete job_id").click()
        tab.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(tab.get_by_role("row", name="job_id")).to_have_count(0)
        page.evaluate("document.documentElement.className = 'light'")
        expect(tab.locator("html")).to_have_attribute("data-theme", "light")
        tab.get_by_role("link", name="Attempts").click()
        expect(tab.get_by_role("region", name="Attempts")).to_contain_text("Attempt 2")
        context.close()
    assert story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id).get("job_id") is None


def test_where_the_host_edits_ours_only_restores(store: StateStore, story: Story) -> None:
    """The same control is not there twice."""
    with hosting(store, Somebody(edits=True)) as url, httpx.Client(base_url=f"{url}/keepstate") as client:
        client.cookies.set("role", "editor")
        assert "Add Task State Store" not in client.get(LOAD_PATH).text
        assert "Edit cursor" not in client.get(LOAD_PATH).text
        assert "Restore" in client.get(f"{LOAD_PATH}/history?key=cursor").text
    assert story


def test_who_the_host_does_not_know_is_sent_there(store: StateStore, story: Story) -> None:
    """And not to a login of ours."""
    with hosting(store, Somebody()) as url, httpx.Client(base_url=f"{url}/keepstate") as client:
        answer = client.get(LOAD_PATH)
        assert answer.status_code == 401
        assert "Log in to The Host" in answer.text
        # a token of ours is none of the host's
        token = create_service(store).tokens.create("t", Role.ADMIN)
        assert client.get(LOAD_PATH, headers={"Authorization": f"Bearer {token}"}).status_code == 401
    assert story


def test_events_end_and_go_on(
    browser: Browser, store: StateStore, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So an open page keeps no host from ending; to the one who looks, nothing happens."""
    monkeypatch.setattr(live, "_LONGEST_AT_A_HOST", 1.0)
    with hosting(store, Somebody()) as url:
        with httpx.Client(base_url=f"{url}/keepstate", cookies={"role": "viewer"}) as client:
            # it ends by itself
            assert client.get(f"/events{LOAD_PATH}").text.count("data: ") == 1
        context = browser.new_context(base_url=url)
        context.add_cookies([{"name": "role", "value": "viewer", "url": url}])
        page = context.new_page()
        page.goto("/")
        tab = page.frame_locator("iframe")
        for number in range(2):
            with page.expect_request(lambda request: "/events/" in request.url):
                pass
            story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id).set("meanwhile", f"text {number}")
            expect(tab.get_by_role("row", name="meanwhile")).to_contain_text(f"text {number}")
            expect(tab.locator("body")).to_have_attribute("data-live", "on")
        context.close()
