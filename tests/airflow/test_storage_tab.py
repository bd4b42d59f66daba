"""Airflow 3.3's own Storage tab, over keepstate as the backend of its state store, in a real Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.support.airflow import environment
from tests.support.airflow_services import services
from tests.support.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.support.airflow_services import Services

pytestmark = pytest.mark.slow

DAG_FILE = Path(__file__).parent / "dags" / "four_verbs.py"
PATIENCE = 60_000


def test_the_native_storage_tab_shows_and_edits_keepstate_s_entries(tmp_path: Path) -> None:
    """What a task has written is shown; an administrator adds an entry there, which a viewer sees, and clears all."""
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "four_verbs.py").write_text(DAG_FILE.read_text().replace("schedule=None", 'schedule="@once"'))
    backend = {"AIRFLOW__STATE_STORE__BACKEND": "keepstate.integrations.airflow.StoreBackend"}
    with services(environment("3.3.2"), tmp_path, dags, **backend) as airflow:
        assert airflow.wait_until_done("four_verbs")["dies_once"] == "success"
        with sync_playwright() as playwright:
            options = ["--no-sandbox", "--disable-dev-shm-usage"]
            browser = playwright.chromium.launch(executable_path=chromium(), args=options)
            try:
                page = open_tab(browser, airflow, "admin")
                expect(page.get_by_text("page", exact=True).first).to_be_visible(timeout=PATIENCE)
                page.get_by_role("button", name="Add Task State Store").first.click()
                dialog = page.get_by_role("dialog")
                dialog.get_by_role("textbox").first.fill("by hand")
                dialog.locator(".monaco-editor").first.click()
                page.keyboard.type("41")
                dialog.get_by_role("button", name="Save").click()
                expect(page.get_by_text("by hand").first).to_be_visible(timeout=PATIENCE)
                viewer = open_tab(browser, airflow, "viewer")
                expect(viewer.get_by_text("by hand").first).to_be_visible(timeout=PATIENCE)
                page.get_by_role("button", name="Clear All Task State Store").first.click()
                page.get_by_role("dialog").get_by_role("button").last.click()
                expect(page.get_by_text("by hand")).to_have_count(0, timeout=PATIENCE)
            finally:
                page.screenshot(path=str(tmp_path / "tab.png"))
                browser.close()


def open_tab(browser: Browser, airflow: Services, user: str) -> Page:
    """Open the tab of the task that died once, as that user."""
    ((run_id,),) = airflow.query("SELECT run_id FROM dag_run WHERE dag_id = 'four_verbs'")
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.add_cookies([{"name": "_token", "value": airflow.token(user), "url": airflow.url}])
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{airflow.url}/dags/four_verbs/runs/{quote(run_id, safe='')}/tasks/dies_once")
    page.get_by_role("link", name="Storage").first.click()
    return page
