"""Airflow with a few task instances, and people who open keepstate's tab on the page of one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from playwright.sync_api import sync_playwright

from tests.support.airflow import environment
from tests.support.airflow_services import Services, services
from tests.support.browser import chromium

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from playwright.sync_api import Browser, ConsoleMessage, FrameLocator, Page

    Visit = Callable[..., tuple[Page, FrameLocator]]

DAG_FILE = Path(__file__).parent / "dags" / "tab.py"
PATIENCE = 60_000
_NATIVE = {"AIRFLOW__STATE_STORE__BACKEND": "keepstate.integrations.airflow.StoreBackend"}
# what Airflow itself says on the console, and what every browser says of an answer that is no success
_EXPECTED = ("HydrateFallback", "can escape its sandboxing", "Failed to load resource")


@dataclass(frozen=True)
class Inside:
    """A running Airflow, the run of its DAG, and what keepstate's tab is called in it."""

    services: Services
    run_id: str
    tab: str

    def path(self, task: str, index: int | None = None) -> str:
        """Return the path of a task instance: Airflow's pages and ours have the same."""
        mapped = "" if index is None else f"/mapped/{index}"
        return f"/dags/tab/runs/{quote(self.run_id, safe='')}/tasks/{task}{mapped}"

    def store(self, method: str, task: str, key: str = "", body: Any = None) -> Any:
        """Ask for what is stored over REST, as the admin, and return the answer."""
        run = quote(self.run_id, safe="")
        path = f"/api/v2/dags/tab/dagRuns/{run}/taskInstances/{task}/state-store"
        token = self.services.token("admin")
        status, answer = self.services.request(
            method, f"{path}/{key}" if key else path, token=token, body=body
        )
        assert status < 300, answer
        return answer

    def entries(self, task: str) -> dict[str, Any]:
        """Return what is stored."""
        return {entry["key"]: entry["value"] for entry in self.store("GET", task)["task_state_store"]}

    def ask(
        self,
        path: str,
        token: str | None = None,
        fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        url: str | None = None,
    ) -> tuple[int, str, Mapping[str, str]]:
        """Ask for a page as a browser does, with that token in its cookie; return status, text and headers.

        ``headers`` are others than those of a page of this Airflow's; ``url`` is where it is asked for instead.
        """
        sent = {"Sec-Fetch-Site": "same-origin"} if headers is None else dict(headers)
        if token is not None:
            sent["Cookie"] = f"_token={token}"
        data = None if fields is None else urlencode(fields).encode()
        try:
            with urlopen(
                Request(f"{url or self.services.url}/keepstate{path}", data, sent), timeout=60
            ) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except HTTPError as exc:
            return exc.code, exc.read().decode(), exc.headers

    def token_of_nobody(self) -> str:
        """Return a valid token of somebody without a role, who may see no dag."""
        head, body, _ = self.services.token("viewer").split(".")
        claims = {**json.loads(base64.urlsafe_b64decode(body + "==")), "sub": "nobody", "role": None}
        text = f"{head}.{_encoded(json.dumps(claims).encode())}"
        secret = self.services.environ["AIRFLOW__API_AUTH__JWT_SECRET"].encode()
        return f"{text}.{_encoded(hmac.new(secret, text.encode(), hashlib.sha512).digest())}"


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


@contextmanager
def running(version: str, prefix: str, tab: str, home: Path, *, workers: int = 1) -> Iterator[Inside]:
    """Run that Airflow below the path ``prefix``, until the DAG is done and for as long as the block goes on."""
    dags = home / "dags"
    dags.mkdir()
    shutil.copy(DAG_FILE, dags)
    # each of several workers answers some of what a page asks for
    more = {"AIRFLOW__API__WORKERS": str(workers), **({} if tab == "Storage" else _NATIVE)}
    with services(environment(version), home, dags, prefix=prefix, **more) as airflow:
        assert set(airflow.wait_until_done("tab").values()) == {"success"}, airflow.logs()
        ((run_id,),) = airflow.query("SELECT run_id FROM dag_run WHERE dag_id = 'tab'")
        yield Inside(airflow, run_id, tab)


@contextmanager
def browsing() -> Iterator[Browser]:
    """Start a Chromium."""
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=chromium(), args=options)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visiting(inside: Inside, browser: Browser) -> Iterator[Visit]:
    """Hand out a function that opens the tab as somebody, and returns Airflow's page and ours in it.

    No page may complain on its console, nor ask with a dialog of the browser's, which the frame does not allow.
    """
    contexts = []
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not any(one in message.text for one in _EXPECTED):
            complaints.append(message.text)

    def visit(user: str, task: str, index: int | None = None, **options: Any) -> tuple[Page, FrameLocator]:
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        cookie = {"name": "_token", "value": inside.services.token(user), "url": inside.services.url}
        context.add_cookies([cookie])  # type: ignore[list-item]
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(inside.services.url + inside.path(task, index))
        page.get_by_role("link", name=inside.tab, exact=True).click()
        return page, page.frame_locator(f"iframe[title='{inside.tab}']")

    try:
        yield visit
    finally:
        for context in contexts:
            context.close()
    assert complaints == []
