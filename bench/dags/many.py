"""A DAG of task instances that are there to have entries; none ever runs."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from bench.wrk import DAG_ID, TASKS

with DAG(DAG_ID, schedule=None):
    for task_id in TASKS:
        EmptyOperator(task_id=task_id)
