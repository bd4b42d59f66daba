"""A DAG whose task dies once, and finds what it stored."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG, task

with DAG(dag_id="quick", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):

    @task(retries=1, retry_delay=timedelta(0))
    def dies_once(task_state_store=None):
        if task_state_store.increment("tries") == 1:
            raise RuntimeError("the first attempt dies")

    dies_once()
