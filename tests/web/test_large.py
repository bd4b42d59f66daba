"""Many keys, many runs, large values: what is shown is one page, and costs what one page costs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import httpx
from playwright.sync_api import expect

from keepstate.backends.requests import Batch, Put
from keepstate.scope import TaskScope, Writer
from keepstate.values import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from keepstate.store import StateStore
    from keepstate.testing import ManualClock
    from tests.support.served import Served

MANY, FEW = TaskScope("many", "r", "t"), TaskScope("few", "r", "t")


def keys(store: StateStore, scope: TaskScope, count: int, value: object) -> None:
    """Write so many entries."""
    text = encode(value)
    puts = tuple(Put(f"key-{number:05d}", text, None) for number in range(count))
    store.backend.apply(Batch(scope, puts, store.clock(), Writer("api")))


def test_five_thousand_keys_cost_what_fifty_do(served: Served, store: StateStore) -> None:
    """At most three times the server's processor time, in the best of several tries of each."""
    keys(store, MANY, 5000, {"offset": 17})
    keys(store, FEW, 50, {"offset": 17})
    with httpx.Client(base_url=served.url, headers=served.headers("viewer")) as client:

        def cost(path: str) -> float:
            # the server is a thread of this process, so its time is in here
            began = time.process_time()
            answer = client.get(path)
            assert answer.status_code == 200
            assert answer.text.count('<tr id="entry-') == 50
            return time.process_time() - began

        costs = [(cost("/dags/many/runs/r/tasks/t"), cost("/dags/few/runs/r/tasks/t")) for _ in range(12)]
        assert "5,000 entries" in client.get("/dags/many/runs/r/tasks/t").text
        last = client.get("/dags/many/runs/r/tasks/t?page=100").text
        assert "key-04999" in last
        assert 'rel="next"' not in last
        assert "There are no entries on this page" in client.get("/dags/many/runs/r/tasks/t?page=101").text
    many, few = (min(column) for column in zip(*costs, strict=True))
    assert many <= 3 * few, (many, few)


def test_a_key_is_found_among_many(visit: Callable[..., Page], store: StateStore) -> None:
    """As one types a part of it, while others write; where there are few, there is nothing to find."""
    keys(store, MANY, 5000, 1)
    keys(store, FEW, 50, 1)
    page = visit("/dags/many/runs/r/tasks/t")
    find = page.get_by_label("Find a key")
    find.fill("KEY-0471")
    expect(page.get_by_role("row", name="key-04711")).to_be_visible()
    expect(page.get_by_text("10 entries", exact=True)).to_be_visible()
    expect(page).to_have_url("/dags/many/runs/r/tasks/t?q=KEY-0471")
    find.press_sequentially("9")
    expect(page.get_by_text("1 entry", exact=True)).to_be_visible()
    expect(find).to_be_focused()
    expect(page.locator("body")).to_have_attribute("data-live", "on")
    store.task("many", "r", "t").set("key-04719", "changed")
    expect(page.get_by_role("row", name="key-04719")).to_contain_text("changed")
    find.fill("key")
    expect(page.get_by_text("There are more matches.")).to_be_visible()
    find.fill("nothing like it")
    expect(page.get_by_text("No key contains")).to_be_visible()
    page.goto("/dags/few/runs/r/tasks/t")
    expect(find).to_be_hidden()


def test_large_values_make_no_large_page(served: Served, store: StateStore) -> None:
    """Of fifty values of 64 KB, the page shows the beginnings."""
    keys(store, MANY, 50, {"text": "ü" * 32_000})
    with httpx.Client(base_url=served.url, headers=served.headers("viewer")) as client:
        shown = client.get("/dags/many/runs/r/tasks/t").text
        assert len(shown) < 150_000
        assert "Show all 62.5 KB" in shown
        whole = client.get("/dags/many/runs/r/tasks/t/entries/value?key=key-00007").text
        assert whole.count("ü") == 32_000


def test_two_thousand_runs_are_paged(served: Served, store: StateStore, clock: ManualClock) -> None:
    """The newest first, each page with its part of them."""
    from datetime import timedelta

    for number in range(2000):
        clock.advance(timedelta(seconds=1))
        keys(store, TaskScope("nightly", f"run-{number:04d}", "load"), 1, number)
    with httpx.Client(base_url=served.url, headers=served.headers("viewer"), timeout=10) as client:
        first = client.get("/dags/nightly").text
        assert "1–20 of 2,000 runs" in first
        assert first.index("run-1980") < first.index("run-1999")
        last = client.get("/dags/nightly?page=100").text
        assert "run-0000" in last
        assert 'rel="next"' not in last
        assert ">100+<" in client.get("/dags").text
        for odd in ("0", "-1", "x", "1e9", "999999999999999"):
            assert client.get(f"/dags/nightly?page={odd}").status_code == 200
