"""`make demo-airflow`: Airflow 3.1 from nothing, a task that waits for a job over SSH, and a worker that is killed."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from keepstate.testing.ssh_server import running_ssh_server
from tests.support.airflow import environment
from tests.support.airflow_services import Services, services

VERSION = "3.1.8"
DAGS = Path(__file__).parent / "dags" / "demo"


def say(text: str) -> None:
    """Print a line with the seconds since the beginning."""
    sys.stdout.write(f"{time.monotonic() - BEGAN:5.0f} s  {text}\n")
    sys.stdout.flush()


BEGAN = time.monotonic()


def main() -> None:
    """Show it, and fail if it does not go as it should."""
    say(f"making an environment with Airflow {VERSION}, its SSH provider, and keepstate")
    airflow = environment(VERSION, "apache-airflow-providers-ssh")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "ssh").mkdir()
        say("starting an SSH server, and Airflow: API server, scheduler, DAG processor")
        with (
            running_ssh_server(home / "ssh") as server,
            services(airflow, home, DAGS, **server.environment()) as running,
        ):
            show(running)


def show(running: Services) -> None:
    """Kill the task's process while it waits, and watch its retry."""
    token = running.token("admin")
    (run_id,) = running.wait_for(
        "the run of the DAG", lambda: running.query("SELECT run_id FROM dag_run WHERE dag_id = 'report'")
    )[0]
    path = f"/api/v2/dags/report/dagRuns/{quote(run_id, safe='')}/taskInstances/build_report/state-store"

    def entries() -> dict[str, Any]:
        status, answer = running.request("GET", path, token=token)
        assert status == 200, answer
        return {entry["key"]: entry["value"] for entry in answer["task_state_store"]}

    pid = running.wait_for("the remote process", lambda: entries().get("remote_pid"))
    say(f"try 1 has started process {pid} on the other machine, and stored its id")
    ((worker,),) = running.query("SELECT pid FROM task_instance WHERE dag_id = 'report'")
    os.kill(worker, signal.SIGKILL)
    say(f"killed the task's process {worker} with kill -9; the remote one goes on")
    states = running.wait_until_done("report")
    ((tries,),) = running.query("SELECT try_number FROM task_instance WHERE dag_id = 'report'")
    say(f"try {tries} has found process {pid}, waited for it, and ended: {states['build_report']}")
    say(f"GET {path}")
    for key, value in entries().items():
        say(f"    {key} = {value!r}")
    assert (states, tries, entries()) == (
        {"build_report": "success"},
        2,
        {"remote_pid": pid, "result": "done"},
    )


if __name__ == "__main__":
    main()
