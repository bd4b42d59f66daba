"""The tasks of the demo, as a person would write them. The demo runs this file as a process of its own, and kills it.

``python -m keepstate.demo.workers STORY`` finds the store in ``KEEPSTATE_URL`` and the rest in ``KEEPSTATE_DEMO_*``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepstate import BaseOperator, ResumableJobMixin, dag_run, task
from keepstate.testing.spool import SpoolJobSystem

if TYPE_CHECKING:
    from keepstate import TaskStateStore

RUN_ID = "night"
PAGES = 300
SECONDS_PER_PAGE = 0.012
JOB_SECONDS = 3.5


def folder() -> Path:
    """Return where the demo keeps what is outside the store: ledgers, keys, the spool of the job system."""
    return Path(os.environ["KEEPSTATE_DEMO_FOLDER"])


# ------------------------------------------------------------------------------- 1. a job on another machine


def ssh(command: str) -> str:
    """Run a command on the other machine and return what it printed."""
    import paramiko

    client = paramiko.SSHClient()
    client.load_host_keys(os.environ["KEEPSTATE_DEMO_KNOWN_HOSTS"])
    client.connect(
        os.environ["KEEPSTATE_DEMO_SSH_HOST"],
        int(os.environ["KEEPSTATE_DEMO_SSH_PORT"]),
        username=os.environ["KEEPSTATE_DEMO_SSH_USER"],
        key_filename=os.environ["KEEPSTATE_DEMO_SSH_KEY"],
        allow_agent=False,
        look_for_keys=False,
    )
    with client:
        _, stdout, _ = client.exec_command(command)
        return stdout.read().decode().strip()


@task
def build_report(report: str, task_state_store: TaskStateStore | None = None) -> str:
    """Start the report on the other machine, unless an earlier attempt did; wait for it and return its last line."""
    assert task_state_store is not None  # noqa: S101 - the runtime hands it in
    pid = task_state_store.get("remote_pid")
    if pid is None:
        job = f"sleep {JOB_SECONDS}; echo 1204 rows > {report}"
        pid = ssh(f"nohup sh -c '{job}' >/dev/null 2>&1 & echo $!")
        task_state_store.set("remote_pid", pid)
    return ssh(f"while kill -0 {pid} 2>/dev/null; do sleep 0.1; done; cat {report}")


# ------------------------------------------------------------------------------------- 2. three hundred pages


def read_page(number: int) -> None:
    """Read one page of the source, which keeps a ledger of what it was asked for."""
    with (folder() / "pages.log").open("a", encoding="utf-8") as ledger:
        ledger.write(f"{number}\n")
    time.sleep(SECONDS_PER_PAGE)


@task
def read_pages(task_state_store: TaskStateStore | None = None) -> int:
    """Read all pages that no earlier attempt has finished."""
    assert task_state_store is not None  # noqa: S101 - the runtime hands it in
    for page in task_state_store.checkpoint(range(1, PAGES + 1), key="pages"):
        read_page(page)
    return PAGES


# ------------------------------------------------------------------------------------------ 3. the submit window


class TrainModel(ResumableJobMixin, BaseOperator):
    """Submit a training job under a token by which it can be found again, and wait for it."""

    external_id_key = "job_id"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cluster = SpoolJobSystem(folder() / "cluster")

    def execute(self, context: Any) -> Any:
        return self.execute_resumable(context)

    def submit_job(self, context: Any) -> str:
        job_id = self.cluster.submit(1.5, token=self.submission_token, payload="model-7")
        if not (folder() / "struck").exists():
            # the worst moment: the job runs, and nobody has written down its id yet
            (folder() / "struck").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return job_id

    def find_job(self, token: str, context: Any) -> str | None:
        return self.cluster.find_by_token(token)

    def get_job_status(self, external_id: str, context: Any) -> str:
        return self.cluster.status(external_id)

    def is_job_active(self, status: str) -> bool:
        return status == "RUNNING"

    def is_job_succeeded(self, status: str) -> bool:
        return status == "SUCCEEDED"

    def poll_until_complete(self, external_id: str, context: Any) -> None:
        if self.cluster.wait(external_id, timeout=30) != "SUCCEEDED":
            raise RuntimeError(f"job {external_id} failed")

    def get_job_result(self, external_id: str, context: Any) -> Any:
        return self.cluster.result(external_id)


def main(story: str) -> None:
    """Run the task of one story in its run."""
    with dag_run(story, run_id=RUN_ID):
        if story == "ssh_job":
            build_report(str(folder() / "report.txt"))
        elif story == "pages":
            read_pages()
        else:
            TrainModel(task_id="train_model").run()


if __name__ == "__main__":
    main(sys.argv[1])
