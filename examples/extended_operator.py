"""An operator that exists already, extended: SSHOperator runs a command and waits; this one can lose its worker meanwhile.

keepstate run --retries 10 --retry-delay 1m -- python -m examples.extended_operator
"""

from __future__ import annotations

import base64
import sys

from examples.ssh_operator import SSHOperator
from keepstate import dag_run

SECONDS = sys.argv[1] if sys.argv[1:] else "60"


class DetachedSSHOperator(SSHOperator):
    """Starts its command under a name, in the background, and collects what it printed: once, over all attempts."""

    def execute(self, context):
        store, command = context["task_state_store"], self.command
        unit = store.get("unit")
        if unit is None:
            unit = f"unit_{context['ti'].task_id}_{context['ts_nodash']}"
            script = f"({command}) > out 2>&1; echo $? > code.new; mv code.new code"
            encoded = base64.b64encode(script.encode()).decode()
            # mkdir succeeds once: killed before the name is stored, the next attempt starts nothing, and waits
            start = f"cd {unit}; echo {encoded} | base64 -d > job; setsid sh job >/dev/null 2>&1 &"
            self._over_ssh(context, f"if mkdir {unit} 2>/dev/null; then {start} fi")
            store.set("unit", unit)
        print(f"waiting for {unit}", flush=True)
        wait = f"cd {unit} && until [ -e code ]; do sleep 0.2; done; cat out; exit $(cat code)"
        return self._over_ssh(context, wait)

    def _over_ssh(self, context, command):
        self.command = command
        return base64.b64decode(super().execute(context)).decode().strip()


if __name__ == "__main__":
    # under keepstate run --dag-id example, this is the run that is supervised
    with dag_run("example"):
        retrain = DetachedSSHOperator(
            task_id="retrain",
            command=f"sleep {SECONDS}; echo model of {{{{ ds }}}}",
            cmd_timeout=3600,
            retries=2,
        )
        print(retrain.run())
