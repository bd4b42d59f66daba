"""The pages below a path, behind a proxy that shares its name among several services."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.sync_api import expect
from starlette.routing import Route

from keepstate.errors import ConfigurationError
from keepstate.server.below import OWN, checked
from tests.support.served import running, serving_store
from tests.web.stories import LOAD, LOAD_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from keepstate.store import StateStore
    from tests.web.stories import Story

ROOT = "/tools/keepstate"


@contextmanager
def proxy(target: str, *, strips: bool) -> Iterator[str]:
    """Hand on what is asked for below ``ROOT``, as nginx does with and without a path in its ``proxy_pass``."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path = scope["raw_path"].decode()
        if not path.startswith(f"{ROOT}/"):
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"another service's"})
            return
        query = scope["query_string"].decode()
        url = target + (path.removeprefix(ROOT) if strips else path) + (f"?{query}" if query else "")
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        async with (
            httpx.AsyncClient(timeout=20) as client,
            client.stream(scope["method"], url, headers=scope["headers"], content=body) as answer,
        ):
            await send(
                {
                    "type": "http.response.start",
                    "status": answer.status_code,
                    "headers": [(name.lower(), value) for name, value in answer.headers.raw],
                }
            )
            async for piece in answer.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    with running(app) as url:
        yield url


@pytest.mark.parametrize("strips", [True, False], ids=["stripped", "left"])
def test_the_pages_work_below_a_path(browser: Browser, store: StateStore, story: Story, strips: bool) -> None:
    """Logging in, following links, changing an entry and seeing changes: whether the proxy takes the path off, or leaves it."""
    with serving_store(store, root_path=ROOT) as served, proxy(served.url, strips=strips) as url:
        context = browser.new_context(base_url=url)
        page = context.new_page()
        elsewhere: list[str] = []
        page.on("request", lambda request: ROOT in request.url or elsewhere.append(request.url))
        page.goto(f"{ROOT}/")
        page.get_by_label("Token").fill(served.token("editor"))
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"**{ROOT}/dags")
        page.get_by_role("link", name="etl_orders").click()
        page.goto(f"{ROOT}{LOAD_PATH}")
        expect(page.locator("body")).to_have_attribute("data-live", "on")
        page.get_by_role("button", name="Edit cursor").click()
        dialog = page.get_by_role("dialog")
        # longer than a form that is none may be: the limit goes by the server's own path
        dialog.get_by_label("Value").fill('{"page": 1}' + " " * 70_000)
        dialog.get_by_role("button", name="Save").click()
        expect(page.get_by_role("row", name="cursor")).to_contain_text('{"page": 1}')
        story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id).set("beside", 1)
        expect(page.get_by_role("row", name="beside")).to_be_visible()
        page.get_by_role("link", name="History of cursor").click()
        expect(page.get_by_role("heading", name="History of cursor")).to_be_visible()
        page.get_by_role("link", name="Assets").click()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        assert elsewhere == []
        context.close()


def test_what_is_no_path_to_be_below_is_refused() -> None:
    """A slash at its end is the same path without; a URL, or what would need encoding, is none."""
    assert [checked(path) for path in ("", "/", "/a", "/a/b/")] == ["", "", "/a", "/a/b"]
    for path in ("a", "//a", "http://x/a", "/a b", "/a?b", "/.", "/..", "/a/../b", "/a/./", "/a/.."):
        with pytest.raises(ConfigurationError, match="serve below"):
            checked(path)


def test_a_path_of_the_servers_own_is_none_to_be_below(store: StateStore) -> None:
    """Whether a proxy has taken such a path off could not be told."""
    with serving_store(store) as served:
        own = {route.path.split("/")[1] for route in served.app.routes if isinstance(route, Route)} - {""}
    assert own == OWN
    for first in own:
        for path in (f"/{first}", f"/{first}/more"):
            with pytest.raises(ConfigurationError, match=f"paths of its own that begin with /{first};"):
                checked(path)
    assert checked("/dagster") == "/dagster"


def test_the_path_without_its_slash_leads_in_too(store: StateStore) -> None:
    """It is the address that `keepstate serve` tells."""
    with serving_store(store, root_path=ROOT) as served:
        answer = httpx.get(f"{served.url}{ROOT}", headers={"Accept": "text/html"}, follow_redirects=True)
    assert answer.status_code == 200
    assert answer.url.path == f"{ROOT}/login"
