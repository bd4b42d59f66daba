"""A DAG that uses Airflow 3.3's own accessors, whatever keeps their entries, for `airflow dags test`."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, NEVER_EXPIRE, Asset, get_current_context, task

# of its own: one name with two uris, and 3.0 takes one of the two assets for inactive
SHELF = Asset("shelf")


def note(where: str, what: Any) -> None:
    ti = get_current_context()["ti"]
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(json.dumps([ti.task_id, ti.try_number, where, what]) + "\n")


with DAG(dag_id="four_verbs", schedule=None, default_args={"retries": 1, "retry_delay": timedelta(0)}):

    @task
    def dies_once(task_state_store):
        found = task_state_store.get("page", "nothing")
        note("kind", type(task_state_store).__module__)
        note("found", found)
        task_state_store.set("page", 1 if found == "nothing" else 2, retention=NEVER_EXPIRE)
        if found == "nothing":
            raise RuntimeError("the first attempt dies")

    @task
    def all_verbs(task_state_store):
        tss = task_state_store
        tss.set("a", {"text": "ü", "list": [1, 2.5, None, True]})
        tss.set("short", 1, retention=timedelta(microseconds=1))
        note("read", [tss.get("a"), tss.get("short", "expired")])
        tss.set("b", 2)
        tss.delete("a")
        tss.delete("absent")
        note("deleted", [tss.get("a"), tss.get("b")])
        tss.clear()
        note("cleared", tss.get("b"))

    @task(outlets=[SHELF])
    def of_an_asset(asset_state_store):
        note("before", asset_state_store.get("mark"))
        asset_state_store.set("mark", 20)
        note("after", asset_state_store[SHELF].get("mark"))

    dies_once()
    all_verbs()
    of_an_asset()
