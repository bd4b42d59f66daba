"""A DAG whose tasks end in ways that leave state behind. ``NOTES`` is a file."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task


def note(*what: Any) -> None:
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(json.dumps(what) + "\n")


def die(context: Any) -> None:
    # Airflow knows of the success by now, and keepstate doesn't
    note("crashing", context["task_state_store"].get("left"))
    os.kill(os.getpid(), signal.SIGKILL)


with DAG("endings", schedule="@once", start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):

    @task
    def marked(task_state_store):
        task_state_store.set("left", 1)
        note("marked", "waits")
        while True:
            time.sleep(1)

    @task(on_success_callback=die)
    def crashing(task_state_store):
        task_state_store.set("left", 1)

    @task
    def failing(task_state_store):
        task_state_store.set("short", 1, retention=timedelta(seconds=1))
        task_state_store.set("long", 1)
        raise RuntimeError("as it should")

    @task
    def lasting(task_state_store):
        # longer than the token lasts that it began with
        for number in range(45):
            task_state_store.set("number", number)
            time.sleep(1)
        note("lasting", task_state_store.get("number"))

    marked()
    crashing()
    failing()
    lasting()
