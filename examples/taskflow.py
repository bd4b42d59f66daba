"""TaskFlow: a report is built on another machine, once, however often the worker that waits for it is killed.

    export AIRFLOW_CONN_SSH_DEFAULT='ssh://me@reports.example.org/?key_file=/home/me/.ssh/id_ed25519'
    keepstate run --retries 10 --retry-delay 1m -- python -m examples.taskflow

The report goes on when this program is killed; the next attempt finds its folder in the task state store and waits there.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from examples.ssh_hook import SSHHook
from keepstate import task

SECONDS = sys.argv[1] if sys.argv[1:] else "60"

# Starts the work in a folder of its own, and prints the folder. The number of the exit code is the last thing it writes.
START = "cd $(mktemp -d) && pwd && { nohup sh -c '(%s) >report 2>&1; echo $? >code.new; mv code.new code' >/dev/null 2>&1 & }"
WAIT = "cd %s && until [ -e code ]; do sleep 0.2; done; cat report; exit $(cat code)"


def on_the_report_server(command):
    with SSHHook("ssh_default").get_conn() as client:
        _, stdout, _ = client.exec_command(command)
        output = stdout.read().decode().strip()
        if stdout.channel.recv_exit_status() != 0:
            raise RuntimeError(f"{command!r} failed: {output}")
        return output


@task(retries=2, retry_delay=timedelta(seconds=30))
def build_report(month, task_state_store=None):
    folder = task_state_store.get("folder")
    if folder is None:
        folder = on_the_report_server(START % f"sleep {SECONDS}; echo report for {month}")
        task_state_store.set("folder", folder, retention=timedelta(days=7))
        print(f"started a report in {folder}", flush=True)
    else:
        print(f"a report is under way in {folder} already", flush=True)
    return on_the_report_server(WAIT % folder)


if __name__ == "__main__":
    print(build_report("{{ logical_date.strftime('%B') }}"))
