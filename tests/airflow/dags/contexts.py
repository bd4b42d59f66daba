"""A DAG that meets the stores in every shape a task has, for `airflow dags test`.

``NOTES`` is the file that what was met is noted in, one JSON list a line: task, try number, where, what.
"""

from __future__ import annotations

import asyncio
import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import DAG, NEVER_EXPIRE, ResumableJobMixin, Variable, get_current_context, task
from airflow.sdk.bases import resumablejobmixin
from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.state import AssetScope, BaseStoreBackend, TaskScope

try:
    from airflow.sdk import Asset

    ORDERS, STOCK = Asset("orders"), Asset("stock", uri="s3://stock/today")
except ImportError:  # on 2.11 there are none
    ORDERS, STOCK = None, None

HELD: list[Any] = []


class MishapError(Exception):
    """An attempt ends here."""


def note(where: str, what: Any, context: Any = None) -> None:
    ti = (context or get_current_context())["ti"]
    name = ti.task_id if ti.map_index is None or ti.map_index < 0 else f"{ti.task_id}[{ti.map_index}]"
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(json.dumps([name, ti.try_number, where, what]) + "\n")


def called_back(context: Any) -> None:
    store = context["task_state_store"]
    store.set("called back", True)
    note("callback", store.get("pages"), context)


def count_pages(store: Any) -> None:
    """Read a page an attempt: the first dies."""
    pages = store.increment("pages")
    note("pages", pages)
    if pages == 1:
        raise MishapError


class Reader(BaseOperator):
    """A custom operator, which also meets the store in its templates."""

    template_fields = ("seen",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seen = "{{ task_state_store.get('pages', 'nothing') }}"

    def execute(self, context: Any) -> None:
        note("template", self.seen)
        count_pages(context["task_state_store"])


class ExtendedPythonOperator(PythonOperator):
    """A provider's operator, extended."""

    def execute(self, context: Any) -> Any:
        count_pages(context["task_state_store"])
        return super().execute(context)


class Deferring(BaseOperator):
    """Leaves its process, and comes back in another."""

    def execute(self, context: Any) -> None:
        context["task_state_store"].set("pages", 7)
        self.defer(trigger=TimeDeltaTrigger(timedelta(0)), method_name="resume")

    def resume(self, context: Any, event: Any) -> None:
        note("resumed", context["task_state_store"].get("pages"))


class Job(ResumableJobMixin, BaseOperator):
    """The mixin, by its name in 3.3."""

    def execute(self, context: Any) -> Any:
        return self.execute_resumable(context)

    def submit_job(self, context: Any) -> str:
        note("submitted", self.external_id_key)
        return "job-1"

    def get_job_status(self, external_id: Any, context: Any) -> str:
        return "RUNNING"

    def is_job_active(self, status: str) -> bool:
        return status == "RUNNING"

    def is_job_succeeded(self, status: str) -> bool:
        return False

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        note("waiting", external_id)
        if context["ti"].try_number == 1:
            raise MishapError

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        return external_id


with DAG(
    dag_id="contexts",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    default_args={
        "retries": 1,
        "retry_delay": timedelta(0),
        "on_success_callback": called_back,
        "on_retry_callback": called_back,
    },
):

    @task
    def without_default(task_state_store):
        count_pages(task_state_store)

    @task
    def with_default(x, task_state_store=None):
        assert x == 1
        count_pages(task_state_store)

    @task
    def from_current_context():
        count_pages(get_current_context()["task_state_store"])

    def as_callable(task_state_store=None, **context):
        assert task_state_store is context["ti"].get_template_context()["task_state_store"]
        count_pages(task_state_store)

    @task
    def by_twins(task_state_store):
        async def pages() -> Any:
            await task_state_store.aset("k", 1)
            return await asyncio.gather(
                *(task_state_store.aincrement("k") for _ in range(4)), task_state_store.aget("absent", "x")
            )

        note("twins", sorted(map(str, asyncio.run(pages()))))

    @task
    async def asynchronous(task_state_store):
        pages = await task_state_store.aincrement("pages")
        note("pages", pages)
        if pages == 1:
            raise MishapError

    @task
    def over_items(item, task_state_store):
        task_state_store.set("item", item)
        count_pages(task_state_store)
        note("item", task_state_store.get("item"))

    @task(inlets=[ORDERS] if ORDERS else [], outlets=[STOCK] if STOCK else [])
    def with_assets(asset_state_store):
        orders, stock = asset_state_store[ORDERS], asset_state_store[STOCK]
        note("orders before", orders.get("mark", 0))
        orders.set("mark", 10)
        stock.set("mark", 20)
        entry = orders.entry("mark")
        note("orders", [entry.value, entry.writer.kind, entry.writer.task_id, entry.writer.try_number])
        try:
            asset_state_store[Asset("another")].get("mark")
        except ValueError as exc:
            note("another", str(exc))

    @task(outlets=[STOCK] if STOCK else [])
    def with_one_asset(asset_state_store=None):
        note("stock", asset_state_store.get("mark"))

    @task
    def without_assets(asset_state_store):
        try:
            asset_state_store.get("mark")
        except ValueError as exc:
            note("no assets", str(exc))

    @task
    def with_all_verbs(task_state_store):
        tss = task_state_store
        tss.set("a", {"text": "ü", "list": [1, 2.5, None, True]}, retention=NEVER_EXPIRE)
        tss.set("b", 2**70, retention=timedelta(days=1))
        note("values", [tss.get("a"), str(tss.get("b")), tss.get("c", "default")])
        note("expiry", [tss.entry("a").expires_at is None, tss.entry("b").expires_at is not None])
        tss.set_many({"x": 1, "y": 2})
        tss.delete("x")
        note("keys", sorted(key for key, _ in tss.items()))
        note("history", [version.action for version in tss.history("x")])
        tss.clear()
        note("cleared", tss.get("y"))
        for _ in tss.checkpoint(["p", "q"], every=100):
            pass

    @task
    def with_throttled_checkpoint(task_state_store):
        seen = []
        # this generator is still alive when the attempt ends, and holds back how far it came
        HELD.append(pages := task_state_store.checkpoint(["p", "q", "r"], every=100))
        for page in pages:
            seen.append(page)
            if page == "r" and len(seen) > 1:
                note("read", seen)
                raise MishapError
        note("read", seen)

    @task
    def by_names_of_3_3():
        note("never", timedelta.max == NEVER_EXPIRE)
        note("mixin", ResumableJobMixin is resumablejobmixin.ResumableJobMixin)
        note("variable", Variable.get("unheard-of", default="other"))
        note("scopes", [TaskScope("d", "r", "t").map_index, AssetScope(name="a").name])
        note("base", sorted(BaseStoreBackend.__abstractmethods__))

    without_default()
    with_default(1)
    from_current_context()
    PythonOperator(task_id="python_operator", python_callable=as_callable)
    ExtendedPythonOperator(task_id="extended_operator", python_callable=lambda: None)
    Reader(task_id="reader")
    Deferring(task_id="deferring")
    Job(task_id="job")
    by_twins()
    asynchronous()
    over_items.expand(item=["p", "q"])
    if ORDERS is not None:
        with_assets() >> with_one_asset()
    without_assets()
    with_all_verbs()
    with_throttled_checkpoint()
    by_names_of_3_3()
