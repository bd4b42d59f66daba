"""keepstate's tab on Airflow's page of a task instance, in a real Chromium."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.airflow.tabs import PATIENCE, browsing, running, visiting
from tests.web.test_accessibility import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.airflow.tabs import Inside, Visit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

expect.set_options(timeout=PATIENCE)

# the version, the path that it is below, and what the tab is called; one of them has two workers
BELOW_3_3 = [("3.1.8", "/airflow", "Storage"), ("3.2.2", "", "Storage")]
NATIVE = [("3.3.2", "", "State History")]
in_all = pytest.mark.parametrize("inside", BELOW_3_3 + NATIVE, indirect=True, ids=lambda one: one[0])
below_3_3 = pytest.mark.parametrize("inside", BELOW_3_3, indirect=True, ids=lambda one: one[0])
natively = pytest.mark.parametrize("inside", NATIVE, indirect=True, ids=lambda one: one[0])


@pytest.fixture(scope="module")
def inside(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """A running Airflow."""
    version, prefix, tab = request.param
    workers = 2 if version == "3.2.2" else 1
    with running(version, prefix, tab, tmp_path_factory.mktemp("airflow"), workers=workers) as airflow:
        yield airflow


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for the tests of this file."""
    with browsing() as opened:
        yield opened


@pytest.fixture
def visit(inside: Inside, browser: Browser) -> Iterator[Visit]:
    """Open the tab as somebody."""
    with visiting(inside, browser) as opened:
        yield opened


@below_3_3
def test_an_admin_adds_edits_deletes_and_clears(inside: Inside, visit: Visit) -> None:
    """By mouse, for a task that stored nothing itself; each change is recorded with who made it."""
    _, tab = visit("admin", "plain")
    expect(tab.get_by_text("There are no entries.")).to_be_visible()
    # its buttons do nothing before the scripts have been loaded
    expect(tab.locator("body")).to_have_attribute("data-live", "on")
    # what is around it says where one is
    expect(tab.get_by_role("banner")).to_have_count(0)
    expect(tab.get_by_role("button", name="Log out")).to_have_count(0)
    for key, value in (("by hand", "41"), ("other", '"x"')):
        tab.get_by_role("button", name="Add Task State Store").click()
        dialog = tab.get_by_role("dialog", name="Add Task State Store")
        dialog.get_by_label("Key").fill(key)
        dialog.get_by_label("Value").fill(value)
        dialog.get_by_role("button", name="Save").click()
        expect(tab.get_by_role("row", name=key)).to_contain_text("admin, on the web pages")
    assert inside.entries("plain") == {"by hand": 41, "other": "x"}
    tab.get_by_role("button", name="Edit by hand").click()
    dialog = tab.get_by_role("dialog", name="Edit Task State Store")
    dialog.get_by_label("Value").fill("[42")
    expect(dialog.get_by_text("This is not valid JSON")).to_be_visible()
    dialog.get_by_label("Value").fill("[42]")
    dialog.get_by_role("button", name="Save").click()
    expect(tab.get_by_role("row", name="by hand")).to_contain_text("[42]")
    tab.get_by_role("button", name="Delete other").click()
    tab.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(tab.get_by_role("row", name="other")).to_have_count(0)
    assert inside.entries("plain") == {"by hand": [42]}
    tab.get_by_role("button", name="Clear All Task State Store").click()
    dialog = tab.get_by_role("dialog")
    expect(dialog).to_contain_text("This deletes 1 entry")
    dialog.get_by_role("button", name="Clear All").click()
    expect(tab.get_by_text("There are no entries.")).to_be_visible()
    assert inside.entries("plain") == {}
    tab.get_by_role("link", name="Removed keys").click()
    tab.get_by_role("link", name="by hand").click()
    tab.get_by_role("button", name="Restore version 3").click()
    expect(tab.get_by_text("Restored version 3 of by hand")).to_be_visible()
    assert inside.entries("plain") == {"by hand": [42]}


@in_all
def test_history_and_attempts_are_those_of_the_task(inside: Inside, visit: Visit) -> None:
    """What each try wrote, and how Airflow says that it ended; one looks, goes on and comes back within the tab."""
    _, tab = visit("admin", "load")
    expect(tab.get_by_role("row", name="page")).to_contain_text("80")
    tab.get_by_role("link", name="Attempts").click()
    attempts = tab.get_by_role("region", name="Attempts").get_by_role("listitem")
    expect(attempts.filter(has_text="Attempt 1")).to_contain_text("Failed")
    expect(attempts.filter(has_text="Attempt 2")).to_contain_text("Success")
    attempts.filter(has_text="Attempt 2").get_by_role("link", name="page").click()
    expect(tab.get_by_role("heading", name="History of page")).to_be_visible()
    versions = tab.locator(".versions > li")
    expect(versions.first).to_contain_text("Attempt 2")
    expect(versions.last).to_contain_text("Attempt 1")
    tab.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="load").click()
    expect(tab.get_by_role("row", name="submitted")).to_be_visible()


@in_all
def test_a_mapped_task_instance_has_its_own(inside: Inside, visit: Visit) -> None:
    """Each index shows what it stored."""
    _, tab = visit("viewer", "shard", 1)
    expect(tab.get_by_role("row", name="shard")).to_contain_text("20")


@in_all
def test_changes_are_seen_as_they_happen(inside: Inside, visit: Visit) -> None:
    """Also after the connection was made anew, which it is every few seconds: nobody tells of that, and nothing is missed."""
    page, tab = visit("viewer", "load")
    following = tab.locator("body")
    expect(following).to_have_attribute("data-live", "on")
    inside.store("PUT", "load", "live", {"value": "first"})
    expect(tab.get_by_role("row", name="live")).to_contain_text("first")
    with page.expect_request(lambda request: "/keepstate/events/" in request.url):
        pass
    inside.store("PUT", "load", "live", {"value": "second"})
    expect(tab.get_by_role("row", name="live")).to_contain_text("second")
    expect(following).to_have_attribute("data-live", "on")
    inside.store("DELETE", "load", "live")
    expect(tab.get_by_role("row", name="live")).to_have_count(0)


@in_all
def test_a_viewer_sees_and_changes_nothing(inside: Inside, visit: Visit) -> None:
    """The controls are not there, and what they would send is refused."""
    _, tab = visit("viewer", "load")
    expect(tab.get_by_role("row", name="page")).to_contain_text("80")
    expect(tab.get_by_role("button")).to_have_count(0)
    tab.get_by_role("link", name="History of page").click()
    expect(tab.get_by_role("heading", name="History of page")).to_be_visible()
    expect(tab.get_by_role("button", name="Restore")).to_have_count(0)
    before = inside.entries("load")
    assert set(statuses(inside, inside.services.token("viewer"))) == {403}
    assert inside.ask(inside.path("load") + "/entries/form", inside.services.token("viewer"))[0] == 403
    assert inside.entries("load") == before


@in_all
def test_others_see_nothing(inside: Inside) -> None:
    """Who has not logged in to Airflow is told so; who may see no dag is refused; and there is no other page of keepstate's."""
    pages = [inside.path("load"), inside.path("load") + "/history?key=page", "/events" + inside.path("load")]
    for path in pages:
        assert inside.ask(path)[0] == 401
        assert inside.ask(path, "no token")[0] in {401, 403}
        status, text, _ = inside.ask(path, inside.token_of_nobody())
        assert status == 403
        assert "submitted" not in text
    assert "Log in to Airflow" in inside.ask(inside.path("load"))[1]
    assert set(statuses(inside, None)) == {401}
    assert set(statuses(inside, inside.token_of_nobody())) == {403}
    admin = inside.services.token("admin")
    for path in (inside.path("nope"), "/dags", "/dags/tab", "/assets", "/login", "/search?q=load"):
        assert inside.ask(path, admin)[0] == 404, path


@in_all
def test_other_sites_change_nothing(inside: Inside) -> None:
    """Though a browser sends Airflow's cookie along; and none may put the page into a frame."""
    admin, before = inside.services.token("admin"), inside.entries("load")
    own = "{0.scheme}://{0.netloc}".format(urlsplit(inside.services.url))
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "cross-site", "Origin": own},
        # a browser that does not tell of sites, over plain HTTP; and none at all
        {"Origin": "http://elsewhere.example"},
        {"Origin": "null"},
        {},
    ):
        assert set(statuses(inside, admin, headers)) == {403}, headers
    # its own may, by whatever name a proxy asks for it: what is sent here is no entry
    saving = f"{inside.path('load')}/entries"
    for headers in ({"Origin": own}, {"Origin": own, "Host": "behind.example:8080"}):
        assert inside.ask(saving, admin, {}, headers)[0] == 422, headers
    assert inside.entries("load") == before
    answered = inside.ask(inside.path("load"), admin)[2]
    assert "frame-ancestors 'self'" in answered["content-security-policy"]
    assert answered["x-frame-options"] == "SAMEORIGIN"


def statuses(inside: Inside, token: str | None, headers: dict[str, str] | None = None) -> list[int]:
    """Send each change that there is; return how they were answered."""
    changes = {
        "/entries": {"key": "k", "value": "1", "version": "0"},
        "/entries/delete": {"key": "page", "version": "2"},
        "/entries/clear": {"forget": "on"},
        "/history/restore": {"key": "page", "version": "1"},
    }
    path = inside.path("load")
    return [inside.ask(path + end, token, fields, headers)[0] for end, fields in changes.items()]


@pytest.mark.parametrize("inside", BELOW_3_3[:1], indirect=True, ids=lambda one: one[0])
def test_a_proxy_may_take_the_path_off(inside: Inside) -> None:
    """Links have it all the same, as people's browsers do."""
    url = "{0.scheme}://{0.netloc}".format(urlsplit(inside.services.url))
    admin = inside.services.token("admin")
    left, taken = (inside.ask(inside.path("load"), admin, url=one) for one in (None, url))
    assert (left[0], taken[0]) == (200, 200)
    assert taken[1].count('"/airflow/keepstate/dags/') == left[1].count('"/airflow/keepstate/dags/') > 0
    assert inside.ask(f"{inside.path('load')}/mapped/%7BMAP_INDEX%7D", admin, url=url)[0] == 200


@in_all
def test_light_and_dark_follow_airflow(inside: Inside, visit: Visit) -> None:
    """From the start, and when somebody switches; on the same ground, on which all can be read."""
    # the policy keeps even axe out, as it is no script of ours
    page, tab = visit("admin", "load", color_scheme="dark", bypass_csp=True)
    expect(tab.get_by_role("row", name="page")).to_be_visible()
    frame = page.frame(url=re.compile("/keepstate/"))
    assert frame is not None
    for theme in ("dark", "light", "dark"):
        page.emulate_media(color_scheme=theme)
        expect(page.locator("html")).to_have_class(re.compile(theme))
        expect(tab.locator("html")).to_have_attribute("data-theme", theme)
        # it fades for a moment
        page.wait_for_function(
            """() => getComputedStyle(document.documentElement).backgroundColor ===
            getComputedStyle(document.querySelector("iframe").contentDocument.body).backgroundColor"""
        )
        judge(frame, theme)


@natively
def test_beside_airflow_s_own_tab_it_adds_what_that_lacks(inside: Inside, visit: Visit) -> None:
    """There is one tab called Storage, which edits; ours shows history, and restores what that one overwrote."""
    page, tab = visit("admin", "load")
    expect(page.get_by_role("link", name="Storage", exact=True)).to_have_count(1)
    expect(tab.get_by_role("row", name="page")).to_contain_text("80")
    expect(tab.get_by_role("button", name="Add Task State Store")).to_have_count(0)
    expect(tab.get_by_role("button", name="Edit page")).to_have_count(0)
    inside.store("PUT", "load", "page", {"value": 7})
    tab.get_by_role("link", name="History of page").click()
    versions = tab.locator(".versions > li")
    expect(versions.first).to_contain_text("admin, through the API")
    versions.nth(1).get_by_role("button", name="Restore").click()
    expect(versions.first).to_contain_text("admin, on the web pages")
    page.get_by_role("link", name="Storage", exact=True).click()
    expect(page.get_by_role("row", name="page")).to_contain_text("80")
