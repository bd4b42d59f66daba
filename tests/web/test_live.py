"""Changes appear without a reload, and go on appearing after the server was away."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import httpx
from playwright.sync_api import expect

from keepstate.scope import TaskScope
from keepstate.server import serving
from keepstate.server.app import create_app, create_service
from keepstate.server.roles import Role
from tests.web.stories import LOAD, LOAD_PATH

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from playwright.sync_api import Browser, Page

    from keepstate.store import StateStore
    from tests.support.served import Served
    from tests.web.stories import Story


def connected(page: Page) -> None:
    """Wait until the page follows what happens."""
    expect(page.locator("body")).to_have_attribute("data-live", "on")


def test_an_entry_appears_changes_and_goes(visit: Callable[..., Page], story: Story) -> None:
    """As a task writes it; the focus stays where it was."""
    state = story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id)
    page = visit(LOAD_PATH)
    connected(page)
    attempts = page.get_by_role("link", name="Attempts", exact=True)
    attempts.focus()
    state.set("fresh", 1)
    expect(page.get_by_role("row", name="fresh")).to_contain_text("1")
    expect(attempts).to_be_focused()
    edit = page.get_by_role("button", name="Edit fresh")
    edit.focus()
    state.set("fresh", 2)
    expect(page.get_by_role("row", name="fresh")).to_contain_text("2")
    expect(edit).to_be_focused()
    state.delete("fresh")
    expect(page.get_by_role("row", name="fresh")).to_be_hidden()


def test_the_retry_is_seen_to_go_on(visit: Callable[..., Page], story: Story) -> None:
    """A square changes its state in the grid, and an attempt joins the time line."""
    report = TaskScope(LOAD.dag_id, "scheduled__2025-12-12T03:00:00+00:00", "report")
    grid, instance = visit("/dags/etl_orders"), visit(f"/dags/etl_orders/runs/{report.run_id}/tasks/report")
    connected(grid)
    connected(instance)
    expect(grid.get_by_role("link", name=f"report, run {report.run_id}: Failed")).to_be_visible()
    story.begin(report)
    expect(grid.get_by_role("link", name=f"report, run {report.run_id}: Running")).to_be_visible()
    expect(instance.get_by_role("region", name="Attempts on a time line")).to_contain_text("Attempt 2")


def test_what_is_typed_outlives_a_change_beside_it(visit: Callable[..., Page], story: Story) -> None:
    """The dialog stays as it is while the page behind it goes on."""
    page = visit(LOAD_PATH)
    connected(page)
    page.get_by_role("button", name="Edit job_id").click()
    page.get_by_label("Value").fill('"typed')
    story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id).set("beside", 1)
    expect(page.locator("th", has_text="beside")).to_be_attached()
    expect(page.get_by_label("Value")).to_have_value('"typed')
    expect(page.get_by_label("Value")).to_be_focused()


def test_lists_are_live(visit: Callable[..., Page], story: Story) -> None:
    """Dags, a run's task instances, and assets."""
    dags, run, assets = visit("/dags"), visit("/dags/fine_tune/runs/run-1"), visit("/assets")
    for page in (dags, run, assets):
        connected(page)
    story.store.task("new_dag", "r", "t").set("k", 1)
    expect(dags.get_by_role("link", name="new_dag")).to_be_visible()
    story.store.task("fine_tune", "run-1", "evaluate").set("k", 1)
    expect(run.get_by_role("link", name="evaluate")).to_be_visible()
    story.store.asset("new_asset").set("k", 1)
    expect(assets.get_by_role("link", name="new_asset")).to_be_visible()


def test_a_list_of_found_dags_is_live(visit: Callable[..., Page], story: Story) -> None:
    """However many dags there are before those that are shown."""
    for number in range(60):
        story.store.task(f"fill_{number:02d}", "r", "t").set("k", 1)
    scope = TaskScope("zz_last", "r", "t")
    story.store.task(scope.dag_id, scope.run_id, scope.task_id).set("k", 1)
    last, tenths = visit("/dags?q=ZZ_LAST"), visit("/dags?q=0")
    for page in (last, tenths):
        connected(page)
    with story.attempt(scope, "failed"):
        expect(last.get_by_role("row", name="zz_last")).to_contain_text("Running")
    expect(last.get_by_role("row", name="zz_last")).to_contain_text("Failed")
    expect(tenths.get_by_role("link", name="fill_")).to_have_count(15)
    story.store.task("fill_00", "again", "t").set("k", 1)
    expect(tenths.get_by_role("row", name="fill_00")).to_contain_text("again")


def test_it_goes_on_after_a_restart(browser: Browser, store: StateStore, story: Story) -> None:
    """The page says that it is not connected, and shows what happened meanwhile as soon as it is."""
    first = Restartable(store)
    token = first.service.tokens.create("ada", Role.VIEWER)
    context = browser.new_context(base_url=first.url)
    page = context.new_page()
    page.goto("/login")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/dags")
    page.goto(LOAD_PATH)
    connected(page)
    began = time.monotonic()
    first.end()
    assert time.monotonic() - began < 10, "an open page must not keep the server from ending"
    expect(page.locator("body")).to_have_attribute("data-live", "off")
    story.store.task(LOAD.dag_id, LOAD.run_id, LOAD.task_id).set("meanwhile", 1)
    second = Restartable(store, first.port)
    expect(page.get_by_role("row", name="meanwhile")).to_be_visible(timeout=20_000)
    connected(page)
    context.close()
    second.end()


def test_events_are_for_those_who_may_see_the_page(served: Served, story: Story) -> None:
    """Like the page itself; they end with the login."""
    path = f"/events{LOAD_PATH}"
    with httpx.Client(base_url=served.url, timeout=20) as client:
        assert client.get(path).status_code == 401
        assert client.get(path, headers=served.headers("viewer", dags="fine_*")).status_code == 404
        assert client.get("/events/dags/nope", headers=served.headers("viewer")).status_code == 404
        headers = served.headers("viewer")
        with client.stream("GET", path, headers=headers) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            assert any(line.startswith("data: ") for line in lines)
            for token in served.service.tokens.living():
                served.service.tokens.revoke(token.id)
            # it ends by itself
            assert not any(line.startswith("data: ") for line in lines)
    assert story


class Restartable:
    """A server over a store, at a port that another one can take over."""

    def __init__(self, store: StateStore, port: int = 0) -> None:
        self.service = create_service(store)
        self._socket: socket.socket = serving.listen("127.0.0.1", port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        ready = threading.Event()
        self._server = serving.make_server(create_app(self.service), on_ready=ready.set)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()
        assert ready.wait(20)

    def end(self) -> None:
        """End in good order."""
        self._server.should_exit = True
        self._thread.join(40)
        self._socket.close()
        assert not self._thread.is_alive()
