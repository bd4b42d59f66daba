"""A custom operator: files are compressed on another machine, and a list of them is worked through with a checkpoint.

    keepstate run --retries 10 --retry-delay 1m -- python -m examples.custom_operator

Two kinds of memory in one task: the pid of the command that runs, and the file that was finished last.
"""

from __future__ import annotations

import sys

from examples.ssh_hook import SSHHook
from keepstate import BaseOperator

SECONDS = float(sys.argv[1]) if sys.argv[1:] else 60.0
MONTHS = ["2026-09", "2026-10", "2026-11"]


class CompressOperator(BaseOperator):
    template_fields = ("files", "target")

    def __init__(self, *, files, target, **kwargs):
        super().__init__(**kwargs)
        self.files = files
        self.target = target
        self.hook = SSHHook("ssh_default")

    def execute(self, context):
        store = context["task_state_store"]
        self._run(f"mkdir -p {self.target}")
        for file in store.checkpoint(self.files, key="files"):
            pid = store.get("pid")
            if pid is None:
                pid = self._run(self._compress(file))
                store.set("pid", pid)
            else:
                self.log.info("%s is being compressed already, by process %s", file, pid)
            print(f"waiting for {file}", flush=True)
            self._run(f"while kill -0 {pid} 2>/dev/null; do sleep 0.1; done; test -e {self.target}/{file}.gz")
            store.delete("pid")
        return self._run(f"ls {self.target}").split()

    def _compress(self, file):
        """Return a command that starts the work, prints its pid, and ends at once."""
        work = f"sleep {SECONDS / len(self.files)}; echo {file} | gzip > {self.target}/{file}.gz"
        return f"nohup sh -c '{work}' >/dev/null 2>&1 & echo $!"

    def _run(self, command):
        with self.hook.get_conn() as client:
            status, output, errors = self.hook.exec_ssh_client_command(client, command)
        if status != 0:
            raise RuntimeError(f"{command!r} failed with {status}: {errors.decode().strip()}")
        return output.decode().strip()


if __name__ == "__main__":
    compress = CompressOperator(
        task_id="compress_logs", files=MONTHS, target="archive_{{ ts_nodash }}", retries=2
    )
    print(*compress.run())
