"""What the tab of a task instance shows: a task that dies once, one that is mapped, and one that stores nothing."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG, task

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)

with DAG("tab", schedule="@once", start_date=BEGIN, default_args={"retries": 1, "retry_delay": timedelta(0)}):

    @task
    def load(task_state_store):
        page = task_state_store.get("page", 0)
        task_state_store.set("page", page + 40)
        task_state_store.set("submitted", {"job": "8912", "shards": [1, 2, 3]})
        if not page:
            raise RuntimeError("the first attempt dies")

    @task
    def shard(number, task_state_store):
        task_state_store.set("shard", number)

    @task
    def plain():
        pass

    load()
    shard.expand(number=[10, 20])
    plain()
