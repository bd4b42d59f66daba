"""A real SSH server on loopback, in a process of its own, for tests and the demo.

It listens on a free port of 127.0.0.1 and lets in whoever holds the key it generates. Every command runs through
``/bin/sh -c`` in a session of its own, so what a command leaves behind (``nohup … & echo $!``) outlives its channel, the
connection and the client. Nothing outlives the server: at its end it kills whatever its commands started.

    with running_ssh_server(directory) as server:
        os.environ.update(server.environment())     # AIRFLOW_CONN_SSH_DEFAULT=ssh://…

``python -m keepstate.testing.ssh_server --dir DIR`` runs one until SIGTERM; ``DIR/ready.json`` says how to reach it.
Needs `asyncssh`, and POSIX.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    import asyncssh

__all__ = ["SSHServer", "SSHServerError", "running_ssh_server"]

_HOST = "127.0.0.1"
_USER = "keepstate"
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_PR_SET_CHILD_SUBREAPER = 36


class SSHServerError(Exception):
    """The SSH server could not be started; the message holds what it said."""


@dataclass(frozen=True)
class SSHServer:
    """How to reach a running server. `host_key` is its public key, `client_key` the file with the private key to use."""

    directory: str
    host: str
    port: int
    user: str
    pid: int
    client_key: str
    host_key: str

    @property
    def uri(self) -> str:
        """The server as a connection URI of Airflow's, which admits this server's host key alone."""
        extra = urlencode({"key_file": self.client_key, "host_key": self.host_key})
        return f"ssh://{quote(self.user)}@{self.host}:{self.port}/?{extra}"

    def environment(self, conn_id: str = "ssh_default") -> dict[str, str]:
        """Return the environment variable that makes `conn_id` this server, for Airflow's hook and the examples'."""
        return {f"AIRFLOW_CONN_{conn_id.upper()}": self.uri}

    def commands(self) -> list[str]:
        """Return every command the server was asked to run, oldest first; each is recorded before it starts."""
        try:
            text = (Path(self.directory) / "commands.jsonl").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line)["command"] for line in text.splitlines()]


@contextlib.contextmanager
def running_ssh_server(directory: str | os.PathLike[str]) -> Iterator[SSHServer]:
    """Run a server that keeps its files in `directory`; stop it, and what it started, on leaving.

    The server is a process of its own session: it survives its clients, but not the process that entered this, not
    even when that one is killed. Raises `SSHServerError` when the server does not come up.
    """
    home = Path(directory).absolute()
    home.mkdir(parents=True, exist_ok=True)
    ready = home / "ready.json"
    ready.unlink(missing_ok=True)
    _asyncssh()
    source = Path(__file__).resolve().parents[2]
    path = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "keepstate.testing.ssh_server", "--dir", str(home), "--stop-with-stdin"]
    with (
        (home / "server.log").open("wb") as log,
        subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        ) as process,
    ):
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    said = (home / "server.log").read_text(encoding="utf-8", errors="replace")
                    raise SSHServerError(
                        f"the SSH server did not start (exit code {process.returncode}): {said}"
                    )
                time.sleep(0.01)
            yield SSHServer(**json.loads(ready.read_text(encoding="utf-8")))
        finally:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _asyncssh() -> ModuleType:
    try:
        import asyncssh
    except ImportError as error:
        raise SSHServerError("the SSH server needs asyncssh: pip install asyncssh") from error
    return asyncssh


class _CommandRunner:
    """Runs commands and reaps everything that they start."""

    def __init__(self, directory: Path) -> None:
        self._home = directory / "home"
        self._home.mkdir(exist_ok=True)
        self._record = directory / "commands.jsonl"
        self._running: dict[int, tuple[subprocess.Popen[bytes], asyncio.Future[int]]] = {}

    async def handle(self, channel: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run the command of one channel; the channel ends when the command has ended and its pipes are closed."""
        command = channel.command
        if command is None:
            channel.stderr.write(b"this server runs commands only\n")
            channel.exit(1)
            return
        with self._record.open("a", encoding="utf-8") as record:
            record.write(json.dumps({"time": time.time(), "command": command}) + "\n")
        process, ended = self._start(command)
        # A client that went away closes the command's pipes and no more; the command itself is not touched.
        with contextlib.suppress(OSError, _asyncssh().Error):
            # An EOF holds for the whole channel, so the end of one stream must not send it: it would cut the other.
            await channel.redirect(process.stdin, process.stdout, process.stderr, send_eof=False)
            code = await ended
            await channel.stdout.drain()
            await channel.stderr.drain()
            if code < 0:
                channel.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
            else:
                channel.exit(code)

    def _start(self, command: str) -> tuple[subprocess.Popen[bytes], asyncio.Future[int]]:
        process = subprocess.Popen(  # noqa: S603 - running the client's command is what the server is for
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd=self._home,
            env={
                "HOME": str(self._home),
                "USER": _USER,
                "SHELL": "/bin/sh",
                "PATH": os.environ.get("PATH", os.defpath),
                "LANG": "C.UTF-8",
            },
        )
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._running[process.pid] = process, ended
        return process, ended

    def reap(self) -> None:
        """Collect every dead child, adopted ones too: a job under `kill -0` must not live on as a zombie."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._running:
                process, ended = self._running.pop(pid)
                process.returncode = os.waitstatus_to_exitcode(status)
                if not ended.done():
                    ended.set_result(process.returncode)

    def kill_everything(self) -> None:
        """Kill all children until there are none; the children of the killed become ours, so they are next."""
        while children := _children() | set(self._running):
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.reap()
            time.sleep(0.005)


def _adopt_orphans() -> None:
    """Become the parent of what our commands leave behind, where the system can do that (Linux).

    Then the server can reap and, in the end, kill it, and nothing depends on what process 1 does in a container.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children() -> set[int]:
    pids: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            pids.update(map(int, file.read_text(encoding="ascii").split()))
    return pids


async def _serve(directory: Path, *, stop_with_stdin: bool) -> None:
    asyncssh = _asyncssh()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    runner = _CommandRunner(directory)
    loop.add_signal_handler(signal.SIGCHLD, runner.reap)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if stop_with_stdin:
        loop.add_reader(0, stop.set)
    client_key, host_key = directory / "client_key", asyncssh.generate_private_key("ssh-ed25519")
    key = asyncssh.generate_private_key("ssh-ed25519")
    client_key.unlink(missing_ok=True)
    with os.fdopen(os.open(client_key, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(key.export_private_key())
    listener = await asyncssh.listen(
        _HOST,
        0,
        server_host_keys=[host_key],
        authorized_client_keys=asyncssh.import_authorized_keys(key.export_public_key().decode()),
        process_factory=runner.handle,
        encoding=None,
    )
    public = " ".join(host_key.export_public_key().decode().split()[:2])
    server = SSHServer(
        str(directory), _HOST, listener.get_port(), _USER, os.getpid(), str(client_key), public
    )
    scratch = directory / "ready.json.new"
    scratch.write_text(json.dumps(asdict(server)), encoding="utf-8")
    scratch.replace(directory / "ready.json")
    await stop.wait()
    listener.close()
    runner.kill_everything()


def main(argv: list[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, or with ``--stop-with-stdin`` until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m keepstate.testing.ssh_server", description=__doc__)
    parser.add_argument("--dir", required=True, type=Path, help="where the keys, records and ready.json go")
    parser.add_argument("--stop-with-stdin", action="store_true", help="end when standard input does")
    arguments = parser.parse_args(argv)
    directory = arguments.dir.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    _adopt_orphans()
    asyncio.run(_serve(directory, stop_with_stdin=arguments.stop_with_stdin))


if __name__ == "__main__":
    main()
