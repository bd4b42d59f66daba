"""A DAG whose task is mapped over a list that changes between two attempts. ``ITEMS`` is the file with the list."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

try:
    from airflow.sdk import DAG, task
except ImportError:  # 2.11
    from airflow.decorators import task
    from airflow.models.dag import DAG


def items() -> list[str]:
    return json.loads(Path(os.environ["ITEMS"]).read_text())


def note(context: Any, *what: Any) -> None:
    ti = context["ti"]
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(json.dumps([f"{ti.task_id}[{ti.map_index}]", ti.try_number, *what]) + "\n")


with DAG(
    dag_id="listed",
    schedule="@once",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    default_args={"retries": 1, "retry_delay": timedelta(0)},
):

    @task
    def work(item, task_state_store, **context):
        note(context, "found", item, task_state_store.get("item"))
        task_state_store.set("item", item)
        if context["ti"].try_number == 1:
            while items() == ["a", "b", "c"]:
                time.sleep(0.2)
            raise RuntimeError("the list has changed")

    work.expand(item=items())
