"""Database servers of our own: run by a user who may, in a folder of their own, and gone when their owner is."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOST = "127.0.0.1"
MEMORY = Path("/dev/shm")
LARGE = 2 << 30
START_SECONDS = 60.0
STOP_SECONDS = 30.0
# Ends the server and removes its files once its owner is gone, however the owner died.
WATCHDOG = """
cat >/dev/null
kill -"$3" "$1"
for _ in $(seq 100); do kill -0 "$1" 2>/dev/null || break; sleep 0.1; done
rm -rf "$2"
"""


class UnavailableError(Exception):
    """A server could not be started; the message says what was tried and what each said."""


class Daemon:
    """A server's process. ``folder`` goes with an owner that dies."""

    def __init__(self, command: Sequence[str | Path], *, home: Path, folder: Path, ends_by: str) -> None:
        """Start it; ``ends_by`` names the signal on which it ends in good order."""
        self.log = home / "server.log"
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                **ownership(home),
            )
        self._watchdog: subprocess.Popen[bytes] | None = subprocess.Popen(
            ["/bin/sh", "-c", WATCHDOG, "sh", str(self._process.pid), folder, ends_by],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **ownership(home),
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait(self, is_ready: Callable[[], bool]) -> Self:
        """Wait until it answers. Raises ``UnavailableError`` with what it said."""
        deadline = time.monotonic() + START_SECONDS
        while not is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop(signal.SIGKILL)
                said = self.log.read_text(encoding="utf-8", errors="replace")[-3000:]
                raise UnavailableError(f"{self._process.args[0]} did not start:\n{said}")  # type: ignore[index]
            time.sleep(0.01)
        return self

    def stop(self, *signals: signal.Signals) -> None:
        """Send the first signal, and the next when that did not help. Stopping a stopped one is no error."""
        if self._watchdog is not None:
            # First: it must not signal a process id that is no longer ours.
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None
        for number in signals:
            if self._process.poll() is None:
                self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
                break


def working_directory(what: str, *, in_memory: bool = False) -> Path:
    """Make a folder that the server's owner can reach; pytest's own are closed to anybody else.

    ``in_memory``: where there is room for it, in memory.
    """
    parents = [tempfile.gettempdir(), "/tmp", "/var/tmp"]
    if in_memory and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > LARGE:
        parents.insert(0, str(MEMORY))
    for parent in dict.fromkeys(parents):
        directory = Path(tempfile.mkdtemp(prefix=f"keepstate-{what}-", dir=parent))
        give_away(directory)
        with contextlib.suppress(PermissionError):
            run_as_owner(["/bin/sh", "-c", ": >probe && rm probe"], directory)
            return directory
        directory.rmdir()
    raise UnavailableError(f"{what} cannot be started: no temporary folder is open to other users")


def owner() -> pwd.struct_passwd | None:
    """Return the user to run servers as, None for the present one."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def give_away(path: Path) -> None:
    """Make the servers' user the owner of a path."""
    if (user := owner()) is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def open_to_all(folder: Path) -> None:
    """Let anybody read what is in a folder, and run what its owner may run."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o444 | (0o111 if mode & 0o100 else 0))


def ownership(directory: Path) -> dict[str, Any]:
    """Return the arguments of `Popen` that make a process the owner's, free of this one's variables."""
    environment = {
        "PATH": os.defpath,
        "HOME": str(directory),
        "LC_ALL": "C",
        "TZ": os.environ.get("TZ", "UTC"),
    }
    arguments: dict[str, Any] = {"cwd": directory, "env": environment}
    if (user := owner()) is not None:
        arguments |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return arguments


def run_as_owner(command: Sequence[str | Path], directory: Path, *, says: bytes = b"") -> None:
    """Run a command as the servers' user, and raise if it fails."""
    subprocess.run(
        command,
        check=True,
        input=says,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **ownership(directory),
    )


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
