"""One search box for everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
from playwright.sync_api import expect

from keepstate.web import search
from keepstate.wire import VERBS

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from playwright.sync_api import Page

    from tests.support.served import Served
    from tests.web.stories import Story


def test_a_key_is_found_from_anywhere(visit: Callable[..., Page], story: Story) -> None:
    """By a part of it, by keyboard; the result leads to its history."""
    page = visit("/assets")
    page.get_by_label("Search dags, runs, tasks and keys").fill("CURS")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=CURS")
    page.get_by_role("region", name="Keys").get_by_role("link", name="cursor").click()
    expect(page.get_by_role("heading", name="History of cursor")).to_be_visible()
    assert story


def test_each_kind_is_found(served: Served, story: Story) -> None:
    """Dags, runs, tasks, keys and assets; what is odd is text."""
    story.store.task("odd <b>dag", "r", "t").set("k", 1)
    with httpx.Client(base_url=served.url, headers=served.headers("viewer")) as client:

        def groups(text: str) -> str:
            answer = client.get("/search", params={"q": text})
            assert answer.status_code == 200
            return answer.text.partition('id="live"')[2]

        assert 'href="/dags/etl_orders"' in groups("ETL_O")
        assert "2025-12-07T03%3A00" in groups("12-07")
        assert "/tasks/extract" in groups("extr")
        assert "/history?key=watermark" in groups("waterm")
        assert 'href="/assets/' in groups("warehouse")
        assert "odd &lt;b&gt;" in groups("odd <b>dag").replace("<mark>", "").replace("</mark>", "")
        assert "No name contains this text" in groups("no such thing")
        assert "Type a part of the name" in groups("  ")


def test_an_old_run_is_found_by_its_whole_id(
    served: Served, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though only the newest are looked through."""
    story.store.task("old", "the-first-run", "t").set("k", 1)
    monkeypatch.setattr(search, "RUNS", 2)
    run = "scheduled__2025-12-01T03:00:00+00:00"
    with httpx.Client(base_url=served.url, headers=served.headers("viewer")) as client:
        assert "/runs/scheduled__2025-12-01" in client.get("/search", params={"q": run}).text
        assert "/runs/scheduled__2025-12-01" not in client.get("/search", params={"q": run[:-3]}).text


def test_nothing_is_found_beyond_the_pattern(served: Served, story: Story) -> None:
    """Of other dags and assets, not even that they are there."""
    story.store.task("secret_dag", "secret_run", "secret_task").set("secret_key", 1)
    story.store.asset("secret_asset").set("secret_key", 1)
    with httpx.Client(base_url=served.url, headers=served.headers("viewer", dags="fine_*")) as client:
        found = client.get("/search", params={"q": "secret"}).text
        assert "No name contains this text" in found
        assert "secret_" not in found
        assert "fine_tune" in client.get("/search", params={"q": "tun"}).text.replace("<mark>", "").replace(
            "</mark>", ""
        )


def test_a_search_asks_little(served: Served, story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many dags and runs there are, the store is asked a dozen questions at most, none of them for a value."""
    for number in range(60):
        story.store.task(f"many_{number}", f"r{number}", "t").set("large", "x" * 100)
        story.store.asset(f"large_{number}").set("large_too", "x" * 100)
    backend, asked = story.store.backend, []

    def counted(verb: str) -> Callable[..., Any]:
        real = getattr(backend, verb)

        def asking(*args: Any, **more: Any) -> Any:
            asked.append(verb)
            return real(*args, **more)

        return asking

    for verb in VERBS:
        monkeypatch.setattr(backend, verb, counted(verb))
    with httpx.Client(base_url=served.url, headers=served.headers("viewer")) as client:
        assert "/history?key=large_too" in client.get("/search", params={"q": "large_t"}).text
    assert 0 < len(asked) <= 12, asked
    assert "read" not in asked
