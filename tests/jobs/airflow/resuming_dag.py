"""A DAG whose tasks lose their first attempt, for `airflow dags test`: each by another mishap.

``SPOOL`` is the folder of the job system, ``NOTES`` the file that calls are noted in. Where Airflow has no task state store
(below 3.3), keepstate puts its own into the context.
"""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator

from keepstate import ResumableJobMixin
from keepstate.testing.spool import SpoolJobSystem


class MishapError(Exception):
    """The first attempt ends here."""


class SpoolOperator(ResumableJobMixin, BaseOperator):
    """Runs a job of the spool. ``mishap`` names where the first attempt ends."""

    template_fields = ("mishap",)

    def __init__(self, *, mishap: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mishap = mishap

    @property
    def spool(self) -> SpoolJobSystem:
        return SpoolJobSystem(os.environ["SPOOL"])

    def execute(self, context):
        theirs = type(context["task_state_store"]).__module__.startswith("airflow.")
        self.note(context, "store", "Airflow's" if theirs else "keepstate's")
        return self.execute_resumable(context)

    def note(self, context: Any, call: str, value: Any) -> None:
        ti = context["ti"]
        task = ti.task_id if ti.map_index < 0 else f"{ti.task_id}[{ti.map_index}]"
        with Path(os.environ["NOTES"]).open("a") as notes:
            notes.write(json.dumps([task, ti.try_number, call, value]) + "\n")

    def meet(self, context: Any, mishap: str) -> None:
        if self.mishap == mishap and context["ti"].try_number == 1:
            raise MishapError(mishap)

    def submit_job(self, context):
        self.note(context, "submit", self.submission_token)
        job = self.spool.submit(120, token=self.submission_token, payload=f"result of {self.mishap}")
        self.meet(context, "submit window")
        return job

    def find_job(self, token, context):
        self.note(context, "find", token)
        return self.spool.find_by_token(token)

    def get_job_status(self, external_id, context):
        self.note(context, "status", external_id)
        return self.spool.status(external_id)

    def is_job_active(self, status):
        return status == "RUNNING"

    def is_job_succeeded(self, status):
        return status == "SUCCEEDED"

    def is_job_failed(self, status):
        return status == "FAILED"

    def poll_until_complete(self, external_id, context):
        self.note(context, "wait", external_id)
        self.meet(context, "lost while waiting")
        failing = self.mishap == "failed job" and context["ti"].try_number == 1
        self.spool.release(external_id, outcome="failed" if failing else "succeeded")
        if (ended := self.spool.wait(external_id, timeout=60)) != "SUCCEEDED":
            raise MishapError(ended)
        self.meet(context, "lost when done")

    def get_job_result(self, external_id, context):
        self.note(context, "result", external_id)
        return self.spool.result(external_id)


with DAG(
    dag_id="resuming",
    schedule=None,
    default_args={"retries": 1, "retry_delay": timedelta(0)},
):
    for mishap in ("submit window", "lost while waiting", "failed job", "lost when done"):
        SpoolOperator(task_id=mishap.replace(" ", "_"), mishap=mishap)
    SpoolOperator(task_id="not_durable", mishap="lost while waiting", durable=False)
    SpoolOperator.partial(task_id="mapped").expand(mishap=["lost while waiting", "submit window"])
