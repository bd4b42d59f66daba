"""A small SSH hook over paramiko, with the calls of Airflow's `SSHHook` that the examples use.

The connection comes from `AIRFLOW_CONN_<CONN_ID>`, as in Airflow, in either of its forms:

    AIRFLOW_CONN_SSH_DEFAULT='ssh://user:password@host:22/?key_file=/home/me/.ssh/id_ed25519'
    AIRFLOW_CONN_SSH_DEFAULT='{"conn_type": "ssh", "host": "host", "login": "user", "extra": {"key_file": "…"}}'

Extras: `key_file` and `private_key_passphrase`; `conn_timeout` in seconds; `host_key` ("ssh-ed25519 AAAA…"), the only
key the host may then show. Without it the host must be in ~/.ssh/known_hosts; `no_host_key_check=true` takes any key.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import select
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import paramiko

log = logging.getLogger(__name__)


class SSHConnectionError(Exception):
    """A connection is not defined, or its definition makes no sense."""


@dataclass(frozen=True)
class SSHConnection:
    """Where to connect, and as whom."""

    host: str
    port: int = 22
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_environment(cls, conn_id: str) -> SSHConnection:
        """Read `AIRFLOW_CONN_<CONN_ID>`. Messages name the variable and never its content, which may be secret."""
        name = f"AIRFLOW_CONN_{conn_id.upper()}"
        text = os.environ.get(name, "")
        try:
            connection = cls._from_json(text) if text.lstrip().startswith("{") else cls._from_uri(text)
        except ValueError:
            connection = None
        if connection is None or not connection.host:
            raise SSHConnectionError(
                f"connection {conn_id!r}: set {name} to ssh://user@host:port/?key_file=… or its JSON form"
            )
        return connection

    @classmethod
    def _from_uri(cls, text: str) -> SSHConnection:
        url = urlsplit(text)
        extra: dict[str, Any] = dict(parse_qsl(url.query))
        if "__extra__" in extra:  # how Airflow writes extras that are not flat
            extra = json.loads(extra["__extra__"])
        return cls(
            host=unquote(url.hostname or "") if url.scheme == "ssh" else "",
            port=url.port or 22,
            login=unquote(url.username) if url.username else None,
            password=unquote(url.password) if url.password else None,
            extra=extra,
        )

    @classmethod
    def _from_json(cls, text: str) -> SSHConnection:
        fields = json.loads(text)
        extra = fields.get("extra") or {}
        return cls(
            host=fields.get("host") or "",
            port=int(fields.get("port") or 22),
            login=fields.get("login"),
            password=fields.get("password"),
            extra=json.loads(extra) if isinstance(extra, str) else extra,
        )


class SSHHook:
    """Opens SSH connections. `with hook.get_conn() as client:` gives a `paramiko.SSHClient`."""

    def __init__(self, ssh_conn_id: str = "ssh_default") -> None:
        self.ssh_conn_id = ssh_conn_id

    def get_conn(self) -> paramiko.SSHClient:
        """Connect. The client closes itself when it is used as a context manager."""
        connection = SSHConnection.from_environment(self.ssh_conn_id)
        extra = connection.extra
        client = paramiko.SSHClient()
        try:
            _check_host_keys(client, connection)
            client.connect(
                connection.host,
                connection.port,
                username=connection.login,
                password=connection.password,
                pkey=_private_key(extra),
                timeout=float(extra.get("conn_timeout", 10)),
                # A connection that names its key or password means that one, not whatever else lies around.
                look_for_keys="key_file" not in extra and connection.password is None,
                allow_agent="key_file" not in extra and connection.password is None,
            )
            if (transport := client.get_transport()) is not None:
                transport.set_keepalive(30)  # else a host that vanished is waited for without end
        except BaseException:
            client.close()
            raise
        return client

    def exec_ssh_client_command(
        self, ssh_client: paramiko.SSHClient, command: str, timeout: float | None = None
    ) -> tuple[int, bytes, bytes]:
        """Run a command to its end and return exit status, stdout and stderr.

        Raises `TimeoutError` when it takes longer than `timeout` seconds; the command itself is not stopped. The exit
        status is -1 when the connection was lost or a signal ended the command.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        _, stdout, _ = ssh_client.exec_command(command)
        channel = stdout.channel
        channel.shutdown_write()
        output, errors = bytearray(), bytearray()
        ended = False
        while not ended:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                channel.close()
                raise TimeoutError(f"the SSH command took longer than {timeout} s: {command}")
            # Asked before reading: what arrived before the end is then read below, on both streams.
            ended = channel.closed or (bool(channel.eof_received) and channel.exit_status_ready())
            if not ended:
                select.select([channel], [], [], 0.1 if left is None else min(left, 0.1))
            while channel.recv_ready():
                output += channel.recv(65536)
            while channel.recv_stderr_ready():
                errors += channel.recv_stderr(65536)
        return channel.recv_exit_status(), bytes(output), bytes(errors)


def _private_key(extra: dict[str, Any]) -> paramiko.PKey | None:
    """Load the key here: paramiko, given a file, tries every kind of key and reports the last failure."""
    if "key_file" not in extra:
        return None
    passphrase = extra.get("private_key_passphrase")
    return paramiko.PKey.from_path(extra["key_file"], passphrase.encode() if passphrase else None)


def _check_host_keys(client: paramiko.SSHClient, connection: SSHConnection) -> None:
    """Say which host keys the client accepts."""
    extra = connection.extra
    if str(extra.get("no_host_key_check", False)).lower() == "true":
        log.warning("no host key check: whoever answers for %s is believed", connection.host)
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        return
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    if "host_key" not in extra:
        client.load_system_host_keys()
        return
    kind, _, data = extra["host_key"].strip().partition(" ")
    key = paramiko.PKey.from_type_string(kind, base64.b64decode(data))
    name = (
        connection.host
        if connection.port == paramiko.config.SSH_PORT
        else f"[{connection.host}]:{connection.port}"
    )
    client.get_host_keys().add(name, kind, key)
