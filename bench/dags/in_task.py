"""A DAG with one task that does what the benchmark asks for, with Airflow's own task state store."""

from __future__ import annotations

from typing import Any

from airflow.sdk import dag, task

from bench.in_task import answer


@dag(schedule=None)
def in_task() -> None:
    """Run the task."""

    @task
    def measured(task_state_store: Any = None) -> None:
        answer(task_state_store)

    measured()


in_task()
