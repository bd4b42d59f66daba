"""A DAG whose tasks note who they are, and wait to be killed or stopped. ``NOTES`` and ``GO`` are files."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

try:
    from airflow.sdk import DAG, Asset, task
except ImportError:  # 2.11
    from airflow.datasets import Dataset as Asset
    from airflow.decorators import task
    from airflow.models.dag import DAG

from keepstate import StaleAttemptError

STOCK = Asset("s3://stock")


def note(context: Any, *what: Any) -> None:
    ti = context["ti"]
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(json.dumps([ti.task_id, ti.try_number, *what]) + "\n")


def wait_to_be_killed() -> None:
    while True:
        time.sleep(1)


with DAG(
    dag_id="killed",
    schedule="@once",
    # without one, 3.0 never runs it
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    default_args={"retries": 2, "retry_delay": timedelta(0)},
    max_active_tasks=3,
):

    @task
    def submitting(task_state_store, **context):
        job = task_state_store.get("job")
        if job is None:
            job = f"job of try {context['ti'].try_number}"
            task_state_store.set("job", job)
            note(context, "submitted", job)
            note(context, "waiting", os.getpid(), os.getppid())
            wait_to_be_killed()
        note(context, "reconnected", job)

    @task(outlets=[STOCK])
    def stopped(task_state_store, asset_state_store, **context):
        number = context["ti"].try_number
        task_state_store.set("by", number)
        if number > 1:
            asset_state_store.set("by", number)
            note(context, "began", number)
            while not Path(os.environ["GO"]).exists():
                time.sleep(0.2)
            note(context, "found", task_state_store.get("by"), asset_state_store.get("by"))
            return
        # once both go on, the supervisor learns that it is to end this, and this is to be heard first
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note(context, "waiting", os.getpid(), os.getppid())
        while '["stopped", 2, "began"' not in Path(os.environ["NOTES"]).read_text():
            time.sleep(0.2)
        note(context, "resumed", task_state_store.get("by"))
        for store in (task_state_store, asset_state_store):
            try:
                store.set("by", "a ghost")
            except StaleAttemptError as exc:
                note(context, "refused", str(exc))
        Path(os.environ["GO"]).touch()

    submitting()
    stopped()
