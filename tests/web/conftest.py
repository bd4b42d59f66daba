"""The pages in a real Chromium, over a store that is served."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import sync_playwright

from keepstate.connect import connect
from keepstate.server.auth import COOKIE
from keepstate.settings import Settings
from keepstate.testing import ManualClock
from tests.support.browser import chromium
from tests.support.served import serving_store
from tests.web.stories import BEGIN, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, ConsoleMessage, Page

    from keepstate.store import StateStore
    from tests.support.served import Served
    from tests.web.stories import Story

# the browser says so of every answer that is no success, expected or not; and htmx too
_ANSWER = re.compile(
    r"Failed to load resource: the server responded with a status of 4\d\d|Response Status Error Code 4\d\d"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for the tests of a file.

    No longer: while it is there, its own event loop is taken for running, and others could run none in this process.
    """
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        opened = playwright.chromium.launch(executable_path=chromium(), args=options)
        yield opened
        opened.close()


@pytest.fixture
def clock() -> ManualClock:
    """The time of the store and its server."""
    return ManualClock(BEGIN)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[StateStore]:
    """An embedded store."""
    with connect(f"sqlite:///{tmp_path / 'keepstate.db'}", settings=Settings(), clock=clock) as opened:
        yield opened


@pytest.fixture
def story(store: StateStore, clock: ManualClock) -> Story:
    """The store, filled."""
    return tell(store, clock)


@pytest.fixture
def served(store: StateStore) -> Iterator[Served]:
    """The store, served."""
    with serving_store(store) as server:
        yield server


@pytest.fixture
def visit(served: Served, browser: Browser) -> Iterator[Callable[..., Page]]:
    """Return a function that opens a page for somebody of a role. No page may complain on its console."""
    contexts = []
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not _ANSWER.match(message.text):
            complaints.append(message.text)

    def open_page(path: str = "/dags", role: str = "editor", dags: str | None = None, **options: Any) -> Page:
        options = {"timezone_id": "Europe/Berlin", "locale": "en-GB", **options}
        context = browser.new_context(base_url=served.url, **options)
        contexts.append(context)
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        context.add_cookies([{"name": COOKIE, "value": session_of(served, role, dags), "url": served.url}])
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def session_of(served: Served, role: str, dags: str | None) -> str:
    """Return the session of a browser that has logged in: what the form does, in less time."""
    caller = served.service.tokens.check(served.token(role, dags))
    assert caller is not None
    session = served.service.tokens.open_session(caller)
    assert session is not None
    return session
