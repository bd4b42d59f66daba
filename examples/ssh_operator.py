"""An operator that runs one command over SSH, after Airflow's `SSHOperator`: a base to extend."""

from __future__ import annotations

import base64
from typing import Any

from examples.ssh_hook import SSHHook
from keepstate import BaseOperator


class SSHCommandError(RuntimeError):
    """The command ended with an exit status other than 0."""


class SSHOperator(BaseOperator):
    """Runs `command` on the host of `ssh_conn_id` and returns its standard output, base64-encoded as in Airflow.

    A command that takes longer than `cmd_timeout` seconds (None: no limit) raises `TimeoutError`; one with another exit
    status than 0 raises `SSHCommandError`.
    """

    template_fields = ("command",)

    def __init__(
        self,
        *,
        ssh_conn_id: str = "ssh_default",
        command: str | None = None,
        cmd_timeout: float | None = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.ssh_conn_id = ssh_conn_id
        self.command = command
        self.cmd_timeout = cmd_timeout

    def execute(self, context: Any) -> str:
        """Run the command."""
        if not self.command:
            raise ValueError(
                "no SSH command: pass command=, or set self.command before super().execute(context)"
            )
        hook = SSHHook(ssh_conn_id=self.ssh_conn_id)
        with hook.get_conn() as client:
            status, output, errors = hook.exec_ssh_client_command(client, self.command, self.cmd_timeout)
        for line in (output + errors).decode(errors="replace").splitlines():
            self.log.info("%s", line)
        if status != 0:
            said = errors.decode(errors="replace").strip()
            raise SSHCommandError(f"the SSH command failed with exit status {status}: {said or self.command}")
        return base64.b64encode(output).decode("ascii")
