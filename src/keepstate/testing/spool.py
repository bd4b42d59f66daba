"""A small real job system whose jobs are detached processes: the outside world for tests and the demo.

A job belongs to nobody: it has a session of its own and goes on when its submitter, or the submitter's
whole process group, is killed by SIGKILL. A job is in the ledger (``submissions.jsonl``) before it begins,
and it begins if and only if it is there, whatever moment the submitter is killed at; so counting the ledger
counts the jobs, exactly.

What is known of a job lies in files, so any process may ask::

    submissions.jsonl       one line per submission, appended and flushed to disk
    jobs/ID.lock            locked by the job's process for as long as it lives
    jobs/ID.pid             its process id
    jobs/ID.state           its final state, written whole before the process ends
    jobs/ID.release         ends it early
    jobs/ID.override        what a test wants status queries to say
    jobs/ID.gone            the system has forgotten it

The standard library only, POSIX only. On the command line:
``python -m keepstate.testing.spool DIR submit|status|wait|…``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

__all__ = ["JobStatus", "Outcome", "SpoolError", "SpoolJobSystem", "StatusQueryError", "Submission"]

JobStatus = Literal["RUNNING", "SUCCEEDED", "FAILED", "UNKNOWN", "GONE"]
Outcome = Literal["succeeded", "failed"]

_POLL_SECONDS = 0.01
_JOB_ID = re.compile(r"job-[0-9a-f]{12}\Z")


class SpoolError(Exception):
    """The job system could not do what it was asked."""


class StatusQueryError(SpoolError):
    """A status query failed, because a test asked for that with `SpoolJobSystem.break_status`."""


@dataclass(frozen=True)
class Submission:
    """One line of the ledger. `pid` is the submitter's process id, `time` seconds since the epoch."""

    id: str
    token: str | None
    time: float
    pid: int
    seconds: float
    outcome: Outcome
    payload: Any


class SpoolJobSystem:
    """A job system in `directory`, which is made if need be. It holds nothing open: share, fork, pickle it.

    As a context manager it kills on leaving whatever still runs in the directory.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Open the job system in `directory`."""
        self.directory = Path(directory).absolute()
        self._jobs = self.directory / "jobs"
        self._ledger = self.directory / "submissions.jsonl"
        self._jobs.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> SpoolJobSystem:  # noqa: PYI034 - `Self` needs Python 3.11
        """Return the job system itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill what still runs."""
        self.terminate_all()

    def submit(
        self,
        seconds: float,
        *,
        token: str | None = None,
        outcome: Outcome = "succeeded",
        payload: object = None,
    ) -> str:
        """Start a job that works for `seconds`, or until `release`, then ends with `outcome`; return its id.

        `token` is a tag to find the job by. `payload` (JSON) is what `result` gives back. Tokens are not
        compared: two submissions are two jobs. When this is killed midway, the job is in the ledger and
        runs, or neither.
        """
        if outcome not in {"succeeded", "failed"}:
            message = f"outcome must be 'succeeded' or 'failed', not {outcome!r}"
            raise ValueError(message)
        job_id = f"job-{uuid.uuid4().hex[:12]}"
        submission = Submission(job_id, token, time.time(), os.getpid(), float(seconds), outcome, payload)
        line = json.dumps(vars(submission)).encode() + b"\n"
        # The lock is taken before anybody can know the id and is inherited by the job, so there is no moment
        # at which a recorded job looks dead because it has not started yet.
        lock = os.open(self._file(job_id, "lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        receiver, sender = os.pipe()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _spawn_waiting_job(self.directory, job_id, go=receiver, lock=lock)
            self._record(line)
            os.write(sender, b"g")
        finally:
            for descriptor in (sender, receiver, lock):
                os.close(descriptor)
        return job_id

    def status(self, job_id: str) -> JobStatus:
        """Return the state of a job, or what `force_status` wants said of it.

        A job whose process died without a final state is ``FAILED``; an id that was never submitted, or was
        forgotten, is ``GONE``. Raises `StatusQueryError` while `break_status` is in force.
        """
        override = _read_json(self._file(job_id, "override"))
        if override is None:
            return self._true_status(job_id)
        if "error" in override:
            raise StatusQueryError(override["error"])
        return cast("JobStatus", override["status"])

    def wait(self, job_id: str, timeout: float | None = None) -> JobStatus:
        """Block until a job has ended and return how: ``SUCCEEDED``, ``FAILED`` or ``GONE``.

        Sees the true state, not the one that `force_status` or `break_status` puts on. Raises `TimeoutError`
        when the job still runs after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self._true_status(job_id)) == "RUNNING":
            if deadline is not None and time.monotonic() >= deadline:
                message = f"job {job_id} still runs after {timeout} s"
                raise TimeoutError(message)
            time.sleep(_POLL_SECONDS)
        return status

    def result(self, job_id: str) -> Any:
        """Return the payload of a job that succeeded; raise `SpoolError` for any other."""
        status = self._true_status(job_id)
        if status != "SUCCEEDED":
            message = f"job {job_id} has no result: it is {status}"
            raise SpoolError(message)
        return self._submission(job_id).payload

    def find_by_token(self, token: str) -> str | None:
        """Return the id of the newest job submitted with `token` that was not forgotten, or None."""
        for submission in reversed(self.submissions()):
            if submission.token == token and not self._file(submission.id, "gone").exists():
                return submission.id
        return None

    def submissions(self) -> list[Submission]:
        """Return every submission there ever was, oldest first, forgotten ones included."""
        return list(_read_ledger(self._ledger))

    def pid(self, job_id: str) -> int | None:
        """Return the process id of a job that runs, or None when it does not (or has not come that far)."""
        text = _read(self._file(job_id, "pid"))
        return int(text) if text and self._is_locked(job_id) else None

    def release(self, job_id: str, *, outcome: Outcome | None = None) -> None:
        """Let a job end now, with `outcome` instead of the submitted one if given. Does not wait for it."""
        _write(self._file(job_id, "release"), json.dumps(outcome))

    def cancel(self, job_id: str) -> None:
        """Kill a job's process with SIGKILL and wait until it is dead; it leaves no final state.

        Does nothing to a job that has ended. The process id is taken from a file, so the kill goes through a
        process descriptor where the system has them: no process is signalled but the one that holds the
        job's lock.
        """
        while self._is_locked(job_id):
            pid = self.pid(job_id)
            if pid is not None:
                self._kill(job_id, pid)
            time.sleep(_POLL_SECONDS)

    def terminate_all(self) -> None:
        """Cancel every job of the directory that still runs, whichever process submitted it."""
        for submission in self.submissions():
            self.cancel(submission.id)

    def forget(self, job_id: str) -> None:
        """Make the system know a job no more: ``GONE``, not found by token. The ledger still counts it."""
        _write(self._file(job_id, "gone"), "")

    def force_status(self, job_id: str, status: JobStatus) -> None:
        """Make `status` say `status` of a job, in every process, until `restore_status`. The job goes on."""
        _write(self._file(job_id, "override"), json.dumps({"status": status}))

    def break_status(self, job_id: str, message: str = "the job system cannot be reached") -> None:
        """Make `status` raise `StatusQueryError` for a job, in every process, until `restore_status`."""
        _write(self._file(job_id, "override"), json.dumps({"error": message}))

    def restore_status(self, job_id: str) -> None:
        """End `force_status` and `break_status`."""
        self._file(job_id, "override").unlink(missing_ok=True)

    def _file(self, job_id: str, kind: str) -> Path:
        if not _JOB_ID.match(job_id):
            # An id that cannot be ours is an id that is not there; it must not become a path.
            job_id = "none"
        return self._jobs / f"{job_id}.{kind}"

    def _record(self, line: bytes) -> None:
        """Append one whole line and flush it to disk, cutting off what a killed submitter left unfinished."""
        ledger = os.open(self._ledger, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(ledger, fcntl.LOCK_EX)
            size = os.fstat(ledger).st_size
            if size and os.pread(ledger, 1, size - 1) != b"\n":
                os.ftruncate(ledger, os.pread(ledger, size, 0).rfind(b"\n") + 1)
            if os.write(ledger, line) != len(line):
                message = f"{self._ledger}: the line was not written whole"
                raise SpoolError(message)
            os.fsync(ledger)
        finally:
            os.close(ledger)

    def _submission(self, job_id: str) -> Submission:
        for submission in self.submissions():
            if submission.id == job_id:
                return submission
        message = f"no job {job_id}"
        raise SpoolError(message)

    def _true_status(self, job_id: str) -> JobStatus:
        if not self._file(job_id, "lock").exists() or self._file(job_id, "gone").exists():
            return "GONE"
        alive = self._is_locked(job_id)
        # Read after the lock was seen free, hence after the process died, hence after it wrote its last.
        final = _read(self._file(job_id, "state"))
        if final:
            return cast("JobStatus", final)
        if alive:
            return "RUNNING"
        # A submitter killed before the line was complete leaves a lock file, and no job.
        return "FAILED" if any(s.id == job_id for s in self.submissions()) else "GONE"

    def _is_locked(self, job_id: str) -> bool:
        try:
            lock = os.open(self._file(job_id, "lock"), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EACCES}:
                raise
            return True
        finally:
            os.close(lock)
        return False

    def _kill(self, job_id: str, pid: int) -> None:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        except (AttributeError, OSError):  # no such call on this system
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return
        try:
            # Still locked after the descriptor was opened: it is the job's, not a reused number's.
            if self._is_locked(job_id):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _read_json(path: Path) -> dict[str, str] | None:
    text = _read(path)
    return None if text is None else cast("dict[str, str]", json.loads(text))


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    scratch = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def _read_ledger(path: Path) -> Iterator[Submission]:
    for line in (_read(path) or "").splitlines(keepends=True):
        if line.endswith("\n"):  # an unfinished line is no submission
            yield Submission(**json.loads(line))


def _spawn_waiting_job(directory: Path, job_id: str, *, go: int, lock: int) -> None:
    """Start the job's process, detached. It does nothing before it reads `go`."""
    script = str(Path(__file__).resolve())
    job = [sys.executable, "-I", "-S", script, str(directory), "_job", job_id, str(go), str(lock)]
    # The shell is the second fork: it ends at once and leaves the job to init; nobody has to wait for it.
    subprocess.run(  # noqa: S603 - our own interpreter and file
        ["/bin/sh", "-c", '"$@" &', "sh", *job],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(go, lock),
        start_new_session=True,
        cwd="/",
    )


def _run_job(system: SpoolJobSystem, job_id: str, go: int) -> None:
    """Be the job: wait until it is recorded, work, write the final state, end."""
    _write(system._file(job_id, "pid"), str(os.getpid()))  # noqa: SLF001 - the other half of the class
    os.read(go, 1)  # the word to go, or the end of the submitter
    submission = next((s for s in system.submissions() if s.id == job_id), None)
    if submission is None:
        return
    deadline = time.monotonic() + submission.seconds
    release = system._file(job_id, "release")  # noqa: SLF001
    outcome: str = submission.outcome
    while (left := deadline - time.monotonic()) > 0:
        if (word := _read(release)) is not None:
            outcome = json.loads(word) or outcome
            break
        time.sleep(min(left, _POLL_SECONDS))
    _write(system._file(job_id, "state"), outcome.upper())  # noqa: SLF001


if __name__ == "__main__":
    if len(sys.argv) == 6 and sys.argv[2] == "_job":
        _run_job(SpoolJobSystem(sys.argv[1]), sys.argv[3], int(sys.argv[4]))
    else:
        from keepstate.testing.spool_cli import main  # the class does not need its command line

        sys.exit(main())
