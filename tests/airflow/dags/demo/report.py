"""A report is built on another machine, over SSH, by a task that waits for it: once, whatever happens to its worker."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

from airflow.providers.ssh.hooks.ssh import SSHHook
from airflow.sdk import DAG, task

START = "nohup sh -c 'sleep {seconds}; echo done > {out}' >/dev/null 2>&1 & echo $!"
WAIT = "while kill -0 {pid} 2>/dev/null; do sleep 0.5; done; cat {out}"
# what waits on the other machine for a worker that was killed goes on there, so it takes nothing away
OUT = Path(os.environ["AIRFLOW_HOME"]) / "report.out"


def over_ssh(command: str) -> str:
    with SSHHook(ssh_conn_id="ssh_default").get_conn() as client:
        _, stdout, _ = client.exec_command(command)
        return stdout.read().decode().strip()


with DAG("report", schedule="@once", start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):

    @task(retries=3, retry_delay=timedelta(seconds=1))
    def build_report(out, task_state_store=None):
        pid = task_state_store.get("remote_pid")
        if pid is None:
            pid = over_ssh(START.format(seconds=20, out=out))
            task_state_store.set("remote_pid", pid)
        result = over_ssh(WAIT.format(pid=pid, out=out))
        task_state_store.set("result", result)
        assert result == "done"

    build_report(str(OUT))
