"""The pictures of the pages in the documentation: `make screenshots` takes them anew, in both themes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from keepstate.server.roles import Role
from tests.docs.pages import DOCS
from tests.web.stories import LOAD, LOAD_PATH

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.support.served import Served
    from tests.web.stories import Story

IMAGES = DOCS / "images"
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 780}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_take_pictures(browser: Browser, served: Served, story: Story, theme: str) -> None:
    """Of each page, as somebody sees it who looks after a load that is on its second attempt."""
    state = story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id)
    state.delete('tmp/שלום "quoted" <script>alert(1)</script> 🎉')
    token = served.service.tokens.create("ada", Role.EDITOR)
    options = {"color_scheme": theme, "timezone_id": "Europe/Berlin", "locale": "en-GB"}
    context = browser.new_context(base_url=served.url, viewport=DESK, **options)
    page = context.new_page()

    def take(name: str, path: str | None = None) -> None:
        if path is not None:
            page.goto(path)
        page.mouse.move(0, 0)
        page.screenshot(path=IMAGES / f"page-{name}-{theme}.png", animations="disabled")

    page.goto("/login")
    take("login")
    log_in(page, token)
    take("dags", "/dags")
    take("grid", "/dags/etl_orders")
    take("storage", LOAD_PATH)
    page.get_by_role("button", name="Add Task State Store").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Key").fill("cursor_backup")
    dialog.get_by_label("Value").fill('{"page": 9,\n "rows": [1 2]}')
    expect(dialog.get_by_text("Line 2, column 13")).to_be_visible()
    take("add")
    dialog.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Edit cursor").click()
    dialog.get_by_label("Value").fill('{"page": 8, "rows": [1, 2, 3], "since": "2025-12-13"}')
    state.set("cursor", {"page": 10, "rows": [1, 2, 3, 4, 5], "since": "2025-12-13"})
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    take("conflict")
    dialog.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Clear All Task State Store").click()
    expect(dialog).to_be_visible()
    take("clear")
    take("attempts", f"{LOAD_PATH}?tab=attempts")
    take("history", f"{LOAD_PATH}/history?key=cursor")
    take("asset", page_of_asset(story))
    take("search", "/search?q=or")
    page.set_viewport_size(PHONE)
    take("phone", LOAD_PATH)
    context.close()


def log_in(page: Page, token: str) -> None:
    """Come in by the form."""
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/dags")


def page_of_asset(story: Story) -> str:
    """Return where the asset of the story is."""
    return f"/assets/{next(one.id for one in story.store.assets() if one.name == 'orders')}"
