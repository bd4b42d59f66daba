"""The spool job system: jobs that outlive their submitter, counted exactly."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from keepstate.testing import spool_cli
from keepstate.testing.spool import SpoolError, SpoolJobSystem, StatusQueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = Path(__file__).parents[2] / "src"
LONG = 300.0


@pytest.fixture
def system(tmp_path: Path) -> Iterator[SpoolJobSystem]:
    """A job system of the test's own, with nothing left running afterwards."""
    with SpoolJobSystem(tmp_path / "spool") as spool:
        yield spool


def until(condition: Callable[[], object], timeout: float = 20) -> None:
    """Wait until a condition holds; fail when it does not come to."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run code as a process in a session, hence a process group, of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        start_new_session=True,
    )


def test_a_job_ends_by_itself_as_it_was_told(system: SpoolJobSystem) -> None:
    """A job runs for its time, then has its outcome, and a successful one its payload as result."""
    good = system.submit(0.2, payload={"rows": [1, None]})
    bad = system.submit(0, outcome="failed", payload=7)
    assert system.status(good) == "RUNNING"
    assert system.wait(good, timeout=20) == "SUCCEEDED"
    assert system.status(good) == "SUCCEEDED"
    assert system.result(good) == {"rows": [1, None]}
    assert system.wait(bad, timeout=20) == "FAILED"
    with pytest.raises(SpoolError, match="no result"):
        system.result(bad)


def test_release_ends_a_job_early_with_an_outcome_of_choice(system: SpoolJobSystem) -> None:
    """Release ends a job before its time, as submitted or otherwise."""
    first, second = system.submit(LONG), system.submit(LONG)
    system.release(first)
    system.release(second, outcome="failed")
    assert system.wait(first, timeout=20) == "SUCCEEDED"
    assert system.wait(second, timeout=20) == "FAILED"


def test_waiting_too_long_is_a_timeout(system: SpoolJobSystem) -> None:
    """Waiting stops at its timeout, and the job goes on."""
    job = system.submit(LONG)
    with pytest.raises(TimeoutError, match=job):
        system.wait(job, timeout=0.05)
    assert system.status(job) == "RUNNING"


def test_a_job_is_found_by_its_token(system: SpoolJobSystem) -> None:
    """The newest job with the token is found; forgotten ones are not."""
    first = system.submit(0, token="t")
    second = system.submit(0, token="t")
    system.submit(0, token="other")
    system.submit(0)
    assert system.find_by_token("t") == second
    system.forget(second)
    assert system.find_by_token("t") == first
    assert system.find_by_token("never") is None


def test_the_ledger_records_every_submission(system: SpoolJobSystem) -> None:
    """A line says who submitted what and when."""
    before = time.time()
    job = system.submit(0, token="t", payload="p")
    system.wait(job, timeout=20)
    (entry,) = system.submissions()
    assert (entry.id, entry.token, entry.pid, entry.payload) == (job, "t", os.getpid(), "p")
    assert before <= entry.time <= time.time()


def test_a_dead_job_is_failed_and_an_unknown_one_is_gone(system: SpoolJobSystem) -> None:
    """A process that died without a final state counts as failed; ids that are not there are gone."""
    job = system.submit(LONG)
    until(lambda: system.pid(job))
    pid = system.pid(job)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert system.wait(job, timeout=20) == "FAILED"
    assert system.pid(job) is None
    assert system.status("job-000000000000") == "GONE"
    assert system.status("../submissions") == "GONE"
    system.forget(job)
    assert system.status(job) == "GONE"
    assert len(system.submissions()) == 1


def test_a_test_may_put_words_into_the_status_query(system: SpoolJobSystem) -> None:
    """Forced and broken status queries hold for every process until restored; the job itself goes on."""
    job = system.submit(LONG)
    system.force_status(job, "UNKNOWN")
    other = SpoolJobSystem(system.directory)
    assert other.status(job) == "UNKNOWN"
    other.break_status(job, "maintenance")
    with pytest.raises(StatusQueryError, match="maintenance"):
        system.status(job)
    system.release(job)
    assert system.wait(job, timeout=20) == "SUCCEEDED"
    system.restore_status(job)
    assert system.status(job) == "SUCCEEDED"


def test_cancel_and_terminate_all_leave_nothing_running(system: SpoolJobSystem) -> None:
    """Cancel kills one job at once, even one just submitted; terminate_all kills the rest and spares the ended."""
    ended = system.submit(0)
    system.wait(ended, timeout=20)
    jobs = [system.submit(LONG) for _ in range(4)]
    system.cancel(jobs[0])
    assert [system.status(job) for job in jobs] == ["FAILED", "RUNNING", "RUNNING", "RUNNING"]
    system.terminate_all()
    assert {system.status(job) for job in jobs} == {"FAILED"}
    assert system.status(ended) == "SUCCEEDED"


def test_what_cannot_be_submitted_leaves_no_trace(system: SpoolJobSystem) -> None:
    """A bad outcome or payload is refused before anything is recorded."""
    with pytest.raises(ValueError, match="outcome"):
        system.submit(0, outcome="lost")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        system.submit(0, payload=object())
    assert system.submissions() == []


def test_a_job_survives_the_kill_of_its_submitters_process_group(system: SpoolJobSystem) -> None:
    """SIGKILL to the submitter's whole group leaves the job running, to be finished and found later."""
    code = (
        "import sys, time; from keepstate.testing.spool import SpoolJobSystem\n"
        "print(SpoolJobSystem(sys.argv[1]).submit(300, token='t'), flush=True); time.sleep(300)"
    )
    with python(code, system.directory) as submitter:
        assert submitter.stdout is not None
        job = submitter.stdout.readline().strip()
        os.killpg(submitter.pid, signal.SIGKILL)
    assert system.status(job) == "RUNNING"
    assert system.find_by_token("t") == job
    until(lambda: system.pid(job))
    pid = system.pid(job)
    assert pid is not None
    assert os.getsid(pid) not in {os.getsid(0), submitter.pid}
    system.release(job)
    assert system.wait(job, timeout=20) == "SUCCEEDED"


def test_a_submitter_killed_at_any_moment_leaves_a_whole_job_or_none(system: SpoolJobSystem) -> None:
    """However submit is cut short, every line of the ledger has its running job, and there is no other job."""
    code = (
        "import sys; from keepstate.testing.spool import SpoolJobSystem\n"
        "s = SpoolJobSystem(sys.argv[1]); print('ready', flush=True)\n"
        "while True: s.submit(300)"
    )
    for round_ in range(12):
        with python(code, system.directory) as submitter:
            assert submitter.stdout is not None
            submitter.stdout.readline()
            # A different moment each time, within the few milliseconds that a submission takes.
            time.sleep(0.0007 * round_)
            os.killpg(submitter.pid, signal.SIGKILL)
    recorded = {entry.id for entry in system.submissions()}
    assert recorded
    assert {system.status(job) for job in recorded} == {"RUNNING"}

    def begun() -> set[str]:
        return {
            path.stem for path in (system.directory / "jobs").glob("*.lock") if system._is_locked(path.stem)
        }

    # Processes that were waiting for a line that never came go away by themselves.
    until(lambda: begun() == recorded)


def test_a_line_cut_short_is_no_submission_and_harms_no_later_one(system: SpoolJobSystem) -> None:
    """What a submitter killed while writing leaves behind is not counted and is cut off by the next submission."""
    first = system.submit(0)
    ledger = system.directory / "submissions.jsonl"
    with ledger.open("a") as file:
        file.write('{"id": "job-1234')
    assert [entry.id for entry in system.submissions()] == [first]
    second = system.submit(0)
    assert [json.loads(line)["id"] for line in ledger.read_text().splitlines()] == [first, second]


def test_submissions_from_many_threads_are_all_counted(system: SpoolJobSystem) -> None:
    """Threads that submit at once get jobs of their own, each with a whole line."""
    jobs: list[str] = []
    threads = [
        threading.Thread(target=lambda: jobs.extend(system.submit(0) for _ in range(3))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(jobs) == sorted(entry.id for entry in system.submissions())
    assert len(set(jobs)) == 24
    assert {system.wait(job, timeout=30) for job in jobs} == {"SUCCEEDED"}


def test_the_system_may_be_pickled(system: SpoolJobSystem) -> None:
    """A copy in another process is the same system."""
    copy = pickle.loads(pickle.dumps(system))
    assert system.wait(copy.submit(0), timeout=20) == "SUCCEEDED"


def test_the_command_line_does_what_the_class_does(
    system: SpoolJobSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell can submit, ask, wait and count; the exit code says how a job ended."""

    def run(*arguments: str) -> tuple[int, str]:
        code = spool_cli.main([str(system.directory), *arguments])
        return code, capsys.readouterr().out.strip()

    code, job = run("submit", "--seconds", "300", "--token", "t", "--payload", '{"a": 1}')
    assert code == 0
    assert run("status", job) == (0, "RUNNING")
    assert run("find", "t") == (0, job)
    assert run("find", "u") == (1, "")
    assert run("wait", job, "--timeout", "0.05") == (75, "")
    assert run("release", job) == (0, "")
    assert run("wait", job) == (0, "SUCCEEDED")
    assert run("result", job) == (0, '{"a": 1}')
    _, failing = run("submit", "--seconds", "0", "--outcome", "failed")
    assert run("wait", failing) == (1, "FAILED")
    assert run("result", failing) == (1, "")
    _, killed = run("submit")
    assert run("cancel", killed) == (0, "")
    assert run("status", killed) == (0, "FAILED")
    code, lines = run("submissions")
    assert [json.loads(line)["id"] for line in lines.splitlines()] == [job, failing, killed]


def test_the_module_runs_from_a_shell(system: SpoolJobSystem) -> None:
    """`python -m keepstate.testing.spool` is the command line."""
    submit = subprocess.run(
        [sys.executable, "-m", "keepstate.testing.spool", system.directory, "submit", "--seconds", "0"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert system.wait(submit.stdout.strip(), timeout=20) == "SUCCEEDED"
