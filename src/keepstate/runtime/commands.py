"""A command as a child process that ends with whoever supervises it, and the guard that sees to that.

The command gets a session and process group of its own. When its supervisor dies, even by SIGKILL, the guard (a small
shell, waiting for the end of a pipe) kills the command and hangs up on the rest of its group, as a closing terminal would:
what was started with ``nohup`` or ``setsid`` lives on.

There is no moment at which a command could be left behind: the child itself tells the guard its pid before it becomes the
command, and until then holds the guard's pipe open. An attempt counts as held until the guard is done (see `liveness`), so
no other one begins beside the remains.

PR_SET_PDEATHSIG was rejected: it is Linux's alone, reaches no grandchildren, and depends on the thread that forked.
A shell that waits for a word and then becomes the command was given up: it loses the environment variables that it can't
name, like a shell's exported functions.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

log = logging.getLogger("keepstate.runtime")

_SHELL = "/bin/sh"

# Reads the pid of the command, or an empty line when there is none. The pipe's end is the supervisor's: whatever command
# is left is killed, and waited for. Nobody may ever collect it (process 1 of a container often does not), so a zombie is
# gone too.
_GUARD = """
trap '' HUP INT TERM
child=
while read -r line; do child=$line; done
[ -n "$child" ] || exit 0
kill -KILL "$child"
kill -HUP "-$child"
gone() {
  kill -0 "$child" || return 0
  read -r stat <"/proc/$child/stat" || stat=$(ps -o stat= -p "$child")
  case ${stat##*) } in [ZX]*) return 0 ;; esac
  return 1
}
turns=0
until gone || [ $turns -ge 200 ]; do sleep 0.05; turns=$((turns + 1)); done
"""

# the others pass: a machine without memory, a file that is being written
_FOR_GOOD = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EACCES,
        errno.EPERM,
        errno.ENOEXEC,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.E2BIG,
    }
)

NOT_FOUND = 127
"""The exit code of a command that is not there, as a shell has it."""

NOT_STARTED = 126
"""The exit code of a command that is there and can't be started, as a shell has it."""

TIMED_OUT = 124
"""The exit code of a command that took too long, as ``timeout(1)`` has it."""


class Guard:
    """A process that outlives this one just long enough to end the command that runs; use it as a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [_SHELL, "-c", _GUARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    @property
    def pid(self) -> int:
        """The guard's own process id."""
        return self._process.pid

    def watch(self, child: int | None) -> None:
        """Name the command that is to end with this process, or none."""
        assert self._process.stdin is not None  # noqa: S101 - it was asked for above
        try:
            self._process.stdin.write(f"{child or ''}\n".encode())
            self._process.stdin.flush()
        except OSError:
            log.warning("The guard was killed: if this process is killed too, its command will run on")

    def watch_me(self) -> None:
        """Name the process that calls this: a child just forked, which then becomes the command."""
        assert self._process.stdin is not None  # noqa: S101 - it was asked for above
        before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        # that the guard is gone is told by the parent
        with contextlib.suppress(OSError):
            os.write(self._process.stdin.fileno(), f"{os.getpid()}\n".encode())
        signal.signal(signal.SIGPIPE, before)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        # with nothing to watch, or whatever it watches when an exception came in between
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None  # noqa: S101 - as above
            self._process.stdin.close()
        self._process.wait()


class Child:
    """A command that runs. `wait` returns its exit code; the other methods may be called from other threads meanwhile."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], guard: Guard, *, grace: float
    ) -> None:
        """Start the command, watched by ``guard``. ``grace`` is how many seconds it has to end when told to."""
        self._guard = guard
        self._grace = grace
        # a signal handler may come in while this thread holds it
        self._lock = threading.RLock()
        self._over = False
        self._killer: threading.Timer | None = None
        self._timed_out = False
        self._process, self._startable = _started(list(command), environment, guard)
        # it is known by now; but a guard that was killed is to be told of
        guard.watch(self._process.pid)

    def send(self, number: int) -> None:
        """Pass a signal on to the command's process group; does nothing once it has ended."""
        with self._lock:
            if not self._over:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, number)

    def stop(self) -> None:
        """End the group: SIGTERM now, SIGKILL when the grace is over. Returns at once."""
        self.send(signal.SIGTERM)
        with self._lock:
            if not self._over and self._killer is None:
                self._killer = _timer(self._grace, lambda: self.send(signal.SIGKILL))

    def wait(self, timeout: float | None = None, idle: Callable[[float | None], None] | None = None) -> int:
        """Wait for the command's end and return its exit code, as a shell has it: 128 + n for signal n.

        After ``timeout`` seconds it is stopped, and the code is `TIMED_OUT`. ``idle`` waits for a signal, or the end of a child.
        """
        clock = None if timeout is None else _timer(timeout, self._time_out)
        try:
            killed = self._await_end(idle)
        finally:
            if clock is not None:
                clock.cancel()
        with self._lock:
            self._over = True
            if self._killer is not None:
                self._killer.cancel()
        self._guard.watch(None)
        if killed or self._timed_out:
            # what a command that ends by itself leaves running, it leaves on purpose
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL if self._timed_out else signal.SIGHUP)
        code = self._process.wait()
        if self._timed_out:
            return TIMED_OUT
        return code if code >= 0 else 128 - code

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because it took too long."""
        return self._timed_out

    @property
    def startable(self) -> bool:
        """Whether there is a program to start: where there is none, trying again finds none either."""
        return self._startable

    def _time_out(self) -> None:
        self._timed_out = True
        self.stop()

    def _await_end(self, idle: Callable[[float | None], None] | None) -> bool:
        """Wait until the command has ended, and return whether a signal ended it."""
        if not hasattr(os, "waitid"):
            while idle is not None and self._process.poll() is None:
                idle(None)
            return self._process.wait() < 0
        # it is not collected yet: its pid stays taken, and a signal to it can't hit a stranger
        options = os.WEXITED | os.WNOWAIT | (os.WNOHANG if idle is not None else 0)
        while (status := os.waitid(os.P_PID, self._process.pid, options)) is None:
            assert idle is not None  # noqa: S101 - without it, the call above waits
            idle(None)
        return status.si_code != os.CLD_EXITED


def _started(
    command: list[str], environment: Mapping[str, str], guard: Guard
) -> tuple[subprocess.Popen[bytes], bool]:
    """Start the command as a shell would: a file without an interpreter's name is a shell script.

    Returns a child that only says what is the matter, and ``False``, where there is nothing that could be started.
    """
    try:
        return _forked(command, environment, guard), True
    except (OSError, ValueError) as exc:
        trouble = exc
    if isinstance(trouble, OSError) and trouble.errno == errno.ENOEXEC:
        file = shutil.which(command[0], path=environment.get("PATH"))
        if file is not None and not _is_binary(file):
            return _forked([_SHELL, file, *command[1:]], environment, guard), True
    # a child that ends with the code, and says on stderr what a shell would
    missing = isinstance(trouble, FileNotFoundError | NotADirectoryError)
    why = "not found" if missing else getattr(trouble, "strerror", None) or str(trouble)
    name = command[0].replace("\0", "?")
    script = f'printf "keepstate: %s: %s\\n" "$1" "$2" >&2; exit {NOT_FOUND if missing else NOT_STARTED}'
    told = _forked([_SHELL, "-c", script, "keepstate", name, why], environment, guard)
    return told, isinstance(trouble, OSError) and trouble.errno not in _FOR_GOOD


def _forked(command: list[str], environment: Mapping[str, str], guard: Guard) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=environment,
        start_new_session=True,
        preexec_fn=guard.watch_me,  # noqa: PLW1509 - it takes no lock, and forks are prepared for: see `forking`
    )


def _is_binary(file: str) -> bool:
    try:
        with open(file, "rb") as stream:  # noqa: PTH123 - see names.py
            return b"\0" in stream.read(256)
    except OSError:
        return True


def _timer(seconds: float, function: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), function)
    timer.daemon = True
    timer.start()
    return timer
