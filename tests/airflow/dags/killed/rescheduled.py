"""A DAG with a sensor that counts how often it looked, and leaves its slot in between."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.providers.standard.sensors.python import PythonSensor

try:
    from airflow.sdk import DAG
except ImportError:  # 2.11
    from airflow.models.dag import DAG


def look(**context: Any) -> bool:
    ti = context["ti"]
    looks = context["task_state_store"].increment("looks")
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(json.dumps([ti.task_id, ti.try_number, "looks", looks]) + "\n")
    if looks == 4:
        raise RuntimeError("the next try goes on from here")
    return looks > 5


with DAG(
    dag_id="rescheduled",
    schedule="@once",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    # a task that is queued again before the scheduler has heard of its last process's end counts as killed, with Airflow
    default_args={"retries": 20, "retry_delay": timedelta(0)},
):
    PythonSensor(task_id="looks", python_callable=look, mode="reschedule", poke_interval=1)
