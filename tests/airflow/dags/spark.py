"""Spark's own operator, as people have it in their DAGs."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

with DAG(dag_id="spark", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
    SparkSubmitOperator(
        task_id="standalone",
        application="job.py",
        conn_id="spark_standalone",
        status_poll_interval=1,
        retries=1,
        retry_delay=timedelta(0),
    )
    SparkSubmitOperator(task_id="on_yarn", application="job.py", conn_id="spark_yarn")
