"""PythonOperator: an old function becomes a task that finds its remote job again.

    keepstate run --retries 10 --retry-delay 1m -- python -m examples.python_operator

An operator that a program makes runs where it is made: nothing needs to be called.
"""

from __future__ import annotations

import sys

from examples.ssh_hook import SSHHook
from keepstate import PythonOperator

SECONDS = sys.argv[1] if sys.argv[1:] else "60"

DUMP = "mkdir -p dumps; nohup sh -c 'sleep {seconds}; echo 31337 rows >{name}' >/dev/null 2>&1 & echo $!"
# tail ends when the process does, whoever its parent is
WAIT = "tail --pid={pid} -f /dev/null; cat {name}"


def on_the_database_server(command):
    with SSHHook("ssh_default").get_conn() as client:
        _, stdout, _ = client.exec_command(command)
        return stdout.channel.recv_exit_status(), stdout.read().decode().strip()


def dump_table(name, seconds, task_state_store=None, ti=None):
    dump = task_state_store.get("dump")
    if dump is None:
        _, pid = on_the_database_server(DUMP.format(name=name, seconds=seconds))
        dump = {"name": name, "pid": int(pid), "started_by_attempt": ti.try_number}
        task_state_store.set("dump", dump)
    print(f"attempt {ti.try_number} waits for the dump of attempt {dump['started_by_attempt']}", flush=True)
    code, output = on_the_database_server(WAIT.format(**dump))
    if code != 0:
        task_state_store.delete("dump")
        raise RuntimeError(f"there is no {name}: {output}")
    print(output)
    return output


PythonOperator(
    task_id="dump_orders",
    python_callable=dump_table,
    op_kwargs={"name": "dumps/orders_{{ run_id | replace(':', '') }}.sql", "seconds": SECONDS},
    retries=2,
    retry_delay=30,
)
