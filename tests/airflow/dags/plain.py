"""Two DAGs: one that uses no store, and one that does."""

from __future__ import annotations

from datetime import datetime, timezone

try:
    from airflow.sdk import DAG, task
except ImportError:  # 2.11
    from airflow.decorators import task
    from airflow.models.dag import DAG

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)

with DAG(dag_id="plain", schedule=None, start_date=BEGIN):

    @task
    def work(ds=None):
        assert ds

    work()

with DAG(dag_id="using", schedule=None, start_date=BEGIN):

    @task
    def using(task_state_store=None):
        task_state_store.set("page", 1)

    using()
