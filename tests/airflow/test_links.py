"""From Airflow's pages to those of `keepstate serve`, where Airflow's own have no room for them: 2.11 and 3.0."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from keepstate.connect import connect
from keepstate.integrations.airflow.links import StorageLink
from keepstate.scope import TaskScope
from keepstate.web.addresses import Addresses
from tests.airflow.tabs import DAG_FILE, PATIENCE, browsing
from tests.support.airflow import environment
from tests.support.airflow_services import services
from tests.support.served import serving_store

if TYPE_CHECKING:
    from pathlib import Path

PAGES = "https://state.example.com/keepstate"
# everybody may see everything: who may what is Airflow's affair
OPEN = "AUTH_ROLE_PUBLIC = 'Admin'\nWTF_CSRF_ENABLED = True\n"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["2.11.2", "3.0.6"])
def test_a_task_instance_has_a_link_to_its_page(tmp_path: Path, version: str) -> None:
    """It is there for every operator; the page behind it, on the same database, shows what the task has stored."""
    dags = tmp_path / "dags"
    dags.mkdir()
    shutil.copy(DAG_FILE, dags)
    more = {"KEEPSTATE_PAGES_URL": f"{PAGES}/"}
    is_2 = version.startswith("2.")
    if is_2:
        # the one that it takes over SQLite
        more["AIRFLOW__CORE__EXECUTOR"] = "SequentialExecutor"
        (tmp_path / "webserver_config.py").write_text(OPEN)
    components = ("webserver",) if is_2 else ()
    with (
        services(environment(version), tmp_path, dags, components=components, **more) as airflow,
        browsing() as browser,
    ):
        assert set(airflow.wait_until_done("tab").values()) == {"success"}, airflow.logs()
        ((run_id,),) = airflow.query("SELECT run_id FROM dag_run WHERE dag_id = 'tab'")
        scope = TaskScope("tab", run_id, "shard", 1)
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        if is_2:
            airflow.wait_for("an answer of the webserver", lambda: airflow.answers("/health"))
            page.goto(
                f"{airflow.url}/dags/tab/grid?dag_run_id={run_id.replace('+', '%2B')}&task_id=shard&map_index=1"
            )
        else:
            context.add_cookies([{"name": "_token", "value": airflow.token("admin"), "url": airflow.url}])
            page.goto(f"{airflow.url}{Addresses().task_instance(scope)}/details")
        link = page.get_by_role("link", name="Storage", exact=True)
        try:
            expect(link).to_have_attribute("href", Addresses(PAGES).task_instance(scope), timeout=PATIENCE)
        finally:
            page.screenshot(path=tmp_path / "page.png")
    with (
        connect(f"sqlite:///{tmp_path / 'airflow.db'}") as store,
        serving_store(store) as served,
        browsing() as browser,
    ):
        context = browser.new_context(extra_http_headers=served.headers("viewer"))
        page = context.new_page()
        page.goto(served.url + Addresses().task_instance(scope))
        expect(page.get_by_role("row", name="shard")).to_contain_text("20")


@pytest.mark.parametrize("index", [-1, 3])
def test_the_link_is_where_the_page_is(index: int) -> None:
    """Whatever the ids are: it is put together apart from the pages, which Airflow 2 can't load."""
    key = SimpleNamespace(
        dag_id="a b", run_id="scheduled__2025-01-01T00:00:00+00:00", task_id="ü.%", map_index=index
    )
    scope = TaskScope(key.dag_id, key.run_id, key.task_id, index)
    assert StorageLink(PAGES).get_link(None, ti_key=key) == Addresses(PAGES).task_instance(scope)
