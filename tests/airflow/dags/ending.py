"""A DAG whose tasks leave state behind, and end well or badly."""

from __future__ import annotations

from datetime import datetime, timezone

try:
    from airflow.sdk import DAG, task
except ImportError:  # 2.11
    from airflow.decorators import task
    from airflow.models.dag import DAG

with DAG(dag_id="ending", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):

    @task
    def succeeds(task_state_store):
        task_state_store.set("left", 1)

    @task
    def fails(task_state_store):
        task_state_store.increment("left")
        raise RuntimeError("as it should")

    succeeds()
    fails()
