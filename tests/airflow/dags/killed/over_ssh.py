"""A job on another machine, over SSH, in each of the shapes that a task may have.

``NOTES`` is a file, and ``SSH_GO`` the one that the jobs wait for. The imports are those of Airflow 3.3.
"""

from __future__ import annotations

import base64
import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.providers.ssh.hooks.ssh import SSHHook
from airflow.providers.ssh.operators.ssh import SSHOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, ResumableJobMixin, get_current_context, task
from airflow.sdk.bases.operator import BaseOperator

GO = os.environ["SSH_GO"]
START = f"nohup sh -c 'until [ -e {GO} ]; do sleep 0.2; done' >/dev/null 2>&1 & echo $!"
WAIT = "while kill -0 {pid} 2>/dev/null; do sleep 0.2; done; echo waited for {pid}"
ASK = "kill -0 {pid} 2>/dev/null && echo RUNNING || echo SUCCEEDED"


def over_ssh(command: str) -> str:
    with SSHHook(ssh_conn_id="ssh_default").get_conn() as client:
        _, stdout, _ = client.exec_command(command)
        return stdout.read().decode().strip()


def note(pid: Any) -> None:
    ti = get_current_context()["ti"]
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(json.dumps([ti.task_id, ti.try_number, pid, os.getpid(), os.getppid()]) + "\n")


def started_once(store: Any) -> str:
    pid = store.get("pid")
    if pid is None:
        pid = over_ssh(START)
        store.set("pid", pid)
    note(pid)
    return pid


def wait_in_function(task_state_store=None):
    assert over_ssh(WAIT.format(pid=started_once(task_state_store)))


class Custom(BaseOperator):
    """An operator of one's own, with a template."""

    template_fields = ("wait",)

    def __init__(self, *, wait: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.wait = wait

    def execute(self, context: Any) -> str:
        return over_ssh(self.wait.replace("{pid}", started_once(context["task_state_store"])))


class Extended(SSHOperator):
    """A provider's operator, whose own execute does the work."""

    def execute(self, context: Any) -> Any:
        store = context["task_state_store"]
        pid = store.get("pid")
        if pid is None:
            self.command = START
            pid = base64.b64decode(super().execute(context)).decode().strip()
            store.set("pid", pid)
        note(pid)
        self.command = WAIT.format(pid=pid)
        return super().execute(context)


class Job(ResumableJobMixin, BaseOperator):
    """The mixin."""

    def execute(self, context: Any) -> Any:
        return self.execute_resumable(context)

    def submit_job(self, context: Any) -> str:
        return over_ssh(START)

    def get_job_status(self, external_id: Any, context: Any) -> str:
        return over_ssh(ASK.format(pid=external_id))

    def is_job_active(self, status: str) -> bool:
        return status == "RUNNING"

    def is_job_succeeded(self, status: str) -> bool:
        return status == "SUCCEEDED"

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        note(external_id)
        over_ssh(WAIT.format(pid=external_id))

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        return external_id


with DAG(
    dag_id="over_ssh",
    schedule="@once",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    default_args={"retries": 4, "retry_delay": timedelta(0)},
):
    task(task_id="taskflow")(wait_in_function)()
    PythonOperator(task_id="python_operator", python_callable=wait_in_function)
    Custom(task_id="custom", wait="echo in {{ run_id }}; " + WAIT)
    Extended(task_id="extended", ssh_conn_id="ssh_default", cmd_timeout=240, command="unused")
    Job(task_id="mixin")
