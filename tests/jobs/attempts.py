"""Attempts in processes of their own, which a test can have killed by SIGKILL at a given moment.

``python -m tests.jobs.attempts`` is a clean process that has imported everything and forks for each attempt that is
asked of it: an attempt costs a fork, and really dies. `Attempts` starts it and talks to it.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import keepstate
import keepstate.backends.sql.sqlite
from keepstate.backends.sql.backend import SqlBackend  # noqa: F401 - loaded before the fork, like the line before
from keepstate.connect import connect
from keepstate.jobs import ResumableJobMixin
from keepstate.settings import Settings
from keepstate.testing.spool import Outcome, SpoolJobSystem

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

ROOT = Path(__file__).parents[2]
LONG = 300.0

SCOPE = ("dag", "run", "task")
KEY = "remote_job_id"
SUBMISSION = f"{KEY}.submission"

Find = Literal["finds", "finds nothing", "absent"]
Stop = Literal[
    "found",  # find_job has found a job
    "found id stored",
    "status known",
    "before intent",
    "after intent",
    "after submit",  # the job exists, its id is not stored
    "id stored",
    "waiting",
    "completed",  # the job has ended, and nobody knows yet
    "result known",
]


Status = Literal["active", "succeeded", "failed", "unknown", "query raises", "no job"]
"""What the job system says of the job in question if there is one."""


@dataclass(frozen=True)
class Attempt:
    """What one attempt is to do. ``die_at`` names the moment at which it is killed.

    ``find_job``: ``finds`` is a search that works, ``finds nothing`` one that is blind. ``outcome`` is how the job that
    it waits for ends. ``die_at_line``: killed before the n-th line that it executes of ``lines_of`` (below the package;
    0 counts the lines and kills nobody). ``four_verbs``: its store has the guide's four verbs only, as Airflow's has.
    """

    folder: str
    try_number: int
    find_job: Find = "finds"
    knows_failure: bool = True
    outcome: Outcome = "succeeded"
    die_at: Stop | None = None
    die_at_line: int | None = None
    lines_of: str = "jobs.py"
    four_verbs: bool = False


@dataclass(frozen=True)
class Ran:
    """How an attempt ended, and the calls that its operator saw, in order."""

    signal: int | None
    calls: tuple[tuple[str, Any], ...]
    result: Any = None
    error: str | None = None
    warnings: tuple[str, ...] = ()
    lines: int = 0

    def seen(self, call: str) -> list[Any]:
        """Return what that call was made with, or gave, each time."""
        return [value for name, value in self.calls if name == call]


# --------------------------------------------------------------------------------------------------- the test's side


class Attempts:
    """The process that makes attempts. A context manager; one serves a whole module of tests."""

    def __init__(self) -> None:
        self._helper = subprocess.Popen(
            [sys.executable, "-m", "tests.jobs.attempts"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._helper.communicate(timeout=30)

    def run(self, attempt: Attempt) -> Ran:
        """Make one attempt in a new process, and wait until that process is gone."""
        assert self._helper.stdin
        assert self._helper.stdout
        self._helper.stdin.write(json.dumps(asdict(attempt)) + "\n")
        self._helper.stdin.flush()
        answer = self._helper.stdout.readline()
        assert answer, "the process that makes attempts has died"
        status = json.loads(answer)
        code = os.waitstatus_to_exitcode(status)
        assert code <= 0, f"the attempt broke, see its traceback: exit code {code}"
        return _read_trace(attempt, -code or None)


def _read_trace(attempt: Attempt, died_by: int | None) -> Ran:
    path = _trace_file(attempt)
    events = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    facts: dict[str, Any] = {name: value for name, value in events if name in {"result", "error", "lines"}}
    return Ran(
        signal=died_by,
        calls=tuple((name, value) for name, value in events if name not in {*facts, "warning"}),
        warnings=tuple(value for name, value in events if name == "warning"),
        **facts,
    )


def _trace_file(attempt: Attempt) -> Path:
    return Path(attempt.folder, f"try-{attempt.try_number}.jsonl")


def database_url(folder: Path) -> str:
    """Return where the attempts of a folder keep their state."""
    return f"sqlite:///{folder / 'state.db'}"


def spool_of(folder: Path) -> SpoolJobSystem:
    """Return the job system that the attempts of a folder use."""
    return SpoolJobSystem(folder / "spool")


class World:
    """The store, the job system, and the attempts made on them one after another."""

    def __init__(self, folder: Path, attempts: Attempts, **always: Any) -> None:
        self.folder = folder
        self.attempts = attempts
        self.spool: SpoolJobSystem = spool_of(folder)
        self.always = always
        self.tries = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.spool.terminate_all()

    def attempt(self, **what: Any) -> Ran:
        """Make the next attempt, in a process of its own."""
        self.tries += 1
        return self.attempts.run(Attempt(str(self.folder), self.tries, **{**self.always, **what}))

    def killed(self, at: Stop, **what: Any) -> None:
        """Make the next attempt, and have it killed."""
        ran = self.attempt(die_at=at, **what)
        assert (ran.signal, ran.error) == (9, None), f"it should have been killed at {at!r}: {ran}"

    def stored(self) -> dict[str, Any]:
        """Return all that the store holds of the task."""
        with connect(database_url(self.folder), settings=Settings()) as store:
            return dict(store.task(*SCOPE).items())

    def say(self, job: str, status: Status) -> None:
        """Have the job system say that of a job: truly where a job can be so, else by a disturbance."""
        if status in {"succeeded", "failed"}:
            self.spool.release(job, outcome=status)  # type: ignore[arg-type]
            assert self.spool.wait(job, timeout=30) == status.upper()
        elif status == "unknown":
            self.spool.force_status(job, "UNKNOWN")
        elif status == "query raises":
            self.spool.break_status(job)


# ------------------------------------------------------------------------------------------------ the attempt's side


class Operator(ResumableJobMixin):
    """Runs a job of the spool. It notes each call in a file at once, so that a kill loses none."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__()
        self.attempt = attempt
        self.spool = spool_of(Path(attempt.folder))
        self.submitted = False
        self.trace = os.open(_trace_file(attempt), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def note(self, call: str, value: object) -> None:
        os.write(self.trace, json.dumps([call, value]).encode() + b"\n")

    def stop(self, moment: Stop) -> None:
        if self.attempt.die_at == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def prepare_submission(self, context):
        self.stop("before intent")
        token = super().prepare_submission(context)
        self.stop("after intent")
        return token

    def submit_job(self, context):
        self.note("submit", self.submission_token)
        payload = f"result of try {self.attempt.try_number}"
        job = self.spool.submit(LONG, token=self.submission_token, payload=payload)
        self.submitted = True
        self.stop("after submit")
        return job

    def record_submission(self, context, external_id):
        super().record_submission(context, external_id)
        self.stop("id stored" if self.submitted else "found id stored")

    def get_job_status(self, external_id, context):
        self.note("status", external_id)
        status = self.spool.status(external_id)
        self.stop("status known")
        return status

    def is_job_active(self, status):
        return status == "RUNNING"

    def is_job_succeeded(self, status):
        return status == "SUCCEEDED"

    def poll_until_complete(self, external_id, context):
        self.note("wait", external_id)
        self.note("token", self.submission_token)
        self.stop("waiting")
        self.spool.release(external_id, outcome=self.attempt.outcome)
        ended = self.spool.wait(external_id, timeout=30)
        self.stop("completed")
        if ended != "SUCCEEDED":
            raise RuntimeError(f"job {external_id} ended as {ended}")

    def get_job_result(self, external_id, context):
        result = self.spool.result(external_id)
        self.note("fetch", external_id)
        self.stop("result known")
        return result


class Finding:
    """Looks for a job by its token, as an ordinary method of a class does."""

    attempt: Attempt
    spool: SpoolJobSystem
    note: Any
    stop: Any

    def find_job(self, token, context):
        self.note("find", token)
        found = self.spool.find_by_token(token) if self.attempt.find_job == "finds" else None
        if found is not None:
            self.stop("found")
        return found


class KnowingFailure:
    """Knows failure when it sees it."""

    def is_job_failed(self, status):
        return status == "FAILED"


class FourVerbs:
    """A store as Airflow 3.3 gives it to a task."""

    def __init__(self, store: Any) -> None:
        self.get, self.set, self.delete, self.clear = store.get, store.set, store.delete, store.clear


class _Noting(logging.Handler):
    def __init__(self, operator: Operator) -> None:
        super().__init__(logging.WARNING)
        self.operator = operator

    def emit(self, record: logging.LogRecord) -> None:
        self.operator.note("warning", record.getMessage())


def operator_for(attempt: Attempt) -> Operator:
    """Return the operator that an attempt asks for."""
    optional = [Finding] * (attempt.find_job != "absent") + [KnowingFailure] * attempt.knows_failure
    return type("Operator", (*optional, Operator), {})(attempt)


def _carry_out(attempt: Attempt) -> None:
    operator = operator_for(attempt)
    logging.getLogger("keepstate").addHandler(_Noting(operator))
    with connect(database_url(Path(attempt.folder)), settings=Settings()) as store:
        accessor: Any = store.task(*SCOPE, try_number=attempt.try_number)
        context = {"task_state_store": FourVerbs(accessor) if attempt.four_verbs else accessor}
        lines = _count_lines(attempt)
        try:
            operator.note("result", operator.execute_resumable(context))
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is how the attempt ended
            operator.note("error", type(exc).__name__)
        finally:
            sys.settrace(None)
    operator.note("lines", lines())


def _count_lines(attempt: Attempt) -> Callable[[], int]:
    """Count the lines executed of keepstate's files, and die before the one that the attempt is to die before."""
    package = Path(keepstate.__file__).parent
    files = {str(file) for file in package.glob(attempt.lines_of) if "testing" not in file.parts}
    count = 0

    def on_line(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == attempt.die_at_line:
                os.kill(os.getpid(), signal.SIGKILL)
        return on_line

    def on_call(frame: Any, event: str, argument: Any) -> Any:
        return on_line if frame.f_code.co_filename in files else None

    if attempt.die_at_line is not None:
        sys.settrace(on_call)
    return lambda: count


def _serve() -> None:
    """Fork for each attempt asked for on stdin, and answer with how the child's process ended."""
    for line in sys.stdin:
        attempt = Attempt(**json.loads(line))
        child = os.fork()
        if child == 0:
            code = 1
            with suppress(BaseException):
                try:
                    _carry_out(attempt)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                    raise
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
