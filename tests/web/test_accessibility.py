"""The rules of accessibility that a machine can check, on every page, in both themes and at a phone's width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.support.browser import axe
from tests.web.stories import LOAD_PATH, RUN

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Frame, Page

    from tests.web.stories import Story

PHONE = {"width": 390, "height": 844}
PAGES = [
    "/dags",
    "/dags?q=nothing",
    "/dags/etl_orders",
    f"/dags/etl_orders/runs/{RUN}",
    LOAD_PATH,
    f"{LOAD_PATH}?tab=attempts",
    f"{LOAD_PATH}?tab=removed",
    f"{LOAD_PATH}/history?key=cursor",
    "/dags/fine_tune/runs/run-1/tasks/train",
    "/assets",
    "/assets/{asset}",
    "/dags/nope",
]


# on a phone these are laid out in another way; of the others only the width is new
NARROW_TOO = {"/dags", "/dags/etl_orders", LOAD_PATH}


@pytest.mark.parametrize(
    ("theme", "width"),
    [
        ("light", "desk"),
        ("dark", "phone"),
        # colours depend on the theme and places on the width: the other pairs find little that these don't
        pytest.param("dark", "desk", marks=pytest.mark.slow),
        pytest.param("light", "phone", marks=pytest.mark.slow),
    ],
)
def test_no_page_breaks_a_rule(visit: Callable[..., Page], story: Story, theme: str, width: str) -> None:
    """Labels, order, names and contrast; and no page is wider than the screen."""
    # the policy keeps even axe out, as it is no script of ours
    options: dict[str, Any] = {"color_scheme": theme, "bypass_csp": True}
    if width == "phone":
        options["viewport"] = PHONE
    page = visit(**options)
    asset = next(one.id for one in story.store.assets() if one.name == "orders")
    for path in PAGES:
        page.goto(path.format(asset=asset))
        if width == "desk" or path in NARROW_TOO:
            judge(page, path)
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) <= 0, f"{path} is wider than the screen"
    page.goto(LOAD_PATH)
    for opener in ("Add Task State Store", "Clear All Task State Store", "Edit job_id", "Delete job_id"):
        page.get_by_role("button", name=opener).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        if opener.startswith("Add"):
            page.get_by_label("Custom").check()
            page.get_by_role("button", name="Save").click()
            expect(page.get_by_text("Enter a value")).to_be_visible()
        judge(page, opener)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
    page.context.clear_cookies()
    page.goto("/login")
    judge(page, "/login")


def test_the_theme_is_switched_and_kept(visit: Callable[..., Page]) -> None:
    """From the system's to the other one, and back; also on the next page."""
    page = visit(color_scheme="light")
    switch = page.get_by_role("button", name="Switch between light and dark")
    switch.click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto("/assets")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    switch.click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")


def judge(page: Page | Frame, what: str) -> None:
    """Fail for each rule that the page breaks as it stands."""
    page.evaluate(axe())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    broken = [
        f"{rule['id']}: {rule['help']}: {[node['html'][:160] for node in rule['nodes'][:3]]}"
        for rule in found["violations"]
    ]
    assert broken == [], what
