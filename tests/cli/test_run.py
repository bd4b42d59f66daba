"""`keepstate run`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KEEPSTATE = f"{sys.executable} -m keepstate"
TASK = ("--dag-id", "etl", "--run-id", "r1", "--task-id", "load")


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Write a shell script in which `keepstate` is this one."""

    def write(text: str, name: str = "load.sh") -> str:
        file = tmp_path / name
        file.write_text(f'#!/bin/sh\nkeepstate() {{ {KEEPSTATE} "$@"; }}\n{text}\n')
        file.chmod(0o755)
        return str(file)

    return write


@contextlib.contextmanager
def start(*argv: str) -> Iterator[subprocess.Popen[str]]:
    """Start `keepstate run` in a session of its own; whatever is left of it at the end is killed."""
    with subprocess.Popen(
        [sys.executable, "-m", "keepstate", "run", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
        start_new_session=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def test_a_script_remembers_from_attempt_to_attempt(process, script) -> None:
    """Each attempt finds what the last one set, without options, and there is a line for each on stderr."""
    path = script(
        'n=$(keepstate get n --default 0); echo "n is $n"; keepstate set n $((n + 1)); [ "$n" -ge 2 ]'
    )
    done = process("run", "--run-id", "r1", "--retries", "5", "--retry-delay", "0", "--", path)
    assert (done.code, done.out) == (0, "n is 0\nn is 1\nn is 2\n")
    assert done.err.splitlines() == [
        "keepstate: attempt 1 of load.sh / r1 / load.sh",
        "keepstate: attempt 1 failed: exit code 1; next attempt in 0 s (retry 1 of 5)",
        "keepstate: attempt 2 of load.sh / r1 / load.sh",
        "keepstate: attempt 2 failed: exit code 1; next attempt in 0 s (retry 2 of 5)",
        "keepstate: attempt 3 of load.sh / r1 / load.sh",
    ]
    entry = json.loads(
        process("get", "n", "--json", "--dag-id", "load.sh", "--run-id", "r1", "--task-id", "load.sh").out
    )
    assert entry["value"] == 3
    assert entry["writer"]["try_number"] == 3


@pytest.mark.parametrize("code", [1, 2, 3, 75, 127, 255])
def test_the_commands_own_code_is_passed_through(process, script, code: int) -> None:
    """Whatever it is, it is that of the last attempt."""
    done = process("run", "--", script(f"exit {code}"))
    assert done.code == code
    assert done.err.endswith(f"keepstate: attempt 1 failed: exit code {code}\n")


def test_a_command_that_a_signal_ended_is_128_and_more(process, script) -> None:
    """As a shell has it."""
    done = process("run", "--", script("kill -9 $$"))
    assert done.code == 137
    assert "SIGKILL" in done.err


def test_a_command_that_is_not_there_is_127(process) -> None:
    """As a shell has it, too. It is said at once, however many retries there are."""
    done = process("run", "--retries", "5", "--retry-delay", "1h", "--", "no-such-program-anywhere")
    assert done.code == 127
    assert (
        "attempt 1 failed: exit code 127, as 'no-such-program-anywhere' was not found; no retry" in done.err
    )


def test_another_command_in_the_place_of_a_succeeded_one_is_refused(process, script) -> None:
    """It would be skipped in silence: exit code 2, and how to go on."""
    path = script('echo "loads $1"')
    options = ("run", "--quiet", "--run-id", "r1")
    assert process(*options, "--", path, "eu").out == "loads eu\n"
    again = process(*options, "--", path, "eu")
    assert (again.code, again.out) == (0, "")
    other = process(*options, "--", path, "us")
    assert (other.code, other.out) == (2, "")
    assert "another command has succeeded as load.sh / r1 / load.sh" in other.err
    assert "--run-id" in other.err
    assert process(*options, "--task-id", "us", "--", path, "us").out == "loads us\n"


@pytest.mark.parametrize("way", ["--url", "KEEPSTATE_URL", "KEEPSTATE_HOME"])
def test_a_command_that_changes_its_folder_keeps_its_store(
    process, script, tmp_path, monkeypatch, way: str
) -> None:
    """A relative place is the supervisor's: it is handed on as an absolute one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    path = script(f"cd work; {sys.executable} -m keepstate set k 1")
    options = ["--url", "sqlite:///state.db"] if way == "--url" else []
    environment = {} if options else {way: "sqlite:///state.db" if way == "KEEPSTATE_URL" else "place"}
    assert process("run", *options, "--run-id", "r1", "--", path, **environment).code == 0
    ids = ("--dag-id", "load.sh", "--run-id", "r1", "--task-id", "load.sh")
    assert process("get", "k", *options, *ids, **environment).out == "1\n"
    assert not list((tmp_path / "work").iterdir())


@pytest.mark.parametrize(("name", "code"), [("USR1", 0), ("USR2", 0), ("QUIT", 0)])
def test_every_signal_a_command_may_want_is_passed_on(process, script, name: str, code: int) -> None:
    """Each that a command may want to hear; the supervisor is not ended by them."""
    path = script(
        f"trap 'echo heard; exit 0' {name}; kill -{name} $PPID; for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2; done; exit 9"
    )
    done = process("run", "--quiet", "--", path)
    assert (done.code, done.out) == (code, "heard\n")


def test_a_command_that_takes_too_long_is_124(process, script) -> None:
    """It is ended, and has failed."""
    path = script("sleep 300")
    done = process("run", "--timeout", "0.2s", "--grace", "5s", "--", path)
    assert done.code == 124
    assert "it took longer than 0.2 s" in done.err


def test_quiet_leaves_stderr_to_the_command(process, script) -> None:
    """Cron mails what a command prints, so it need not print."""
    done = process("run", "--quiet", "--", script("echo mine >&2; exit 4"))
    assert (done.code, done.err) == (4, "mine\n")


def test_options_after_the_command_are_the_commands(process, script) -> None:
    """With and without --, only what comes before it is keepstate's."""
    path = script('echo "$@"')
    assert process("run", "--quiet", path, "--retries", "-1", "--help").out == "--retries -1 --help\n"
    assert process("run", "--run-id", "other", "--quiet", "--", path, "--", "-x").out == "-- -x\n"


def test_a_run_that_succeeded_is_not_run_again(process, script) -> None:
    """The same run id again does nothing, and says so."""
    path = script("echo worked")
    assert process("run", "--run-id", "r1", "--", path).out == "worked\n"
    again = process("run", "--run-id", "r1", "--", path)
    assert (again.code, again.out) == (0, "")
    assert "already succeeded" in one_line(again.err)
    assert again.err.endswith("keepstate runs delete --dag-id load.sh --run-id r1\n")


def test_without_a_run_id_the_unfinished_run_goes_on(process, script, tmp_path) -> None:
    """Started again by hand, it continues with the next try number."""
    path = script(f"keepstate set seen 1; test -e {tmp_path}/go")
    assert process("run", "--", path).code == 1
    (tmp_path / "go").touch()
    assert "attempt 2 of load.sh / manual__" in process("run", "--", path).err
    assert "attempt 1 of load.sh / manual__" in process("run", "--", path).err
    runs = json.loads(process("runs", "--json").out)
    assert [found["state"] for found in runs] == ["success", "success"]


def test_a_second_start_is_refused_with_75(process, script, tmp_path, monkeypatch) -> None:
    """While the first one runs. With --take-over the first one is ended, and does not count as done."""
    monkeypatch.setenv("KEEPSTATE_HEARTBEAT", "0.1")
    path = script(f"echo began; while ! test -e {tmp_path}/go; do sleep 0.05; done")
    with start("--run-id", "r1", "--", path) as first:
        assert first.stdout.readline() == "began\n"
        second = process("run", "--run-id", "r1", "--", path)
        assert second.code == 75
        one_line(second.err)
        with start("--run-id", "r1", "--take-over", "--", path) as third:
            assert third.stdout.readline() == "began\n"
            _, err = first.communicate(timeout=60)
            assert first.returncode == 76
            began, told = err.splitlines()
            assert began == "keepstate: attempt 1 of load.sh / r1 / load.sh"
            assert told.startswith("keepstate: attempt 1 of load.sh / r1")
            assert told.endswith(" may not go on: attempt 2 has begun since; let this process end")
            (tmp_path / "go").touch()
            _, err = third.communicate(timeout=60)
            assert third.returncode == 0, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_are_passed_on(script, number: int, code: int) -> None:
    """The command gets them, and no further attempt begins."""
    path = script("echo began; exec sleep 300")
    with start("--retries", "5", "--retry-delay", "0", "--", path) as child:
        assert child.stdout.readline() == "began\n"
        child.send_signal(number)
        _, err = child.communicate(timeout=60)
        assert child.returncode == code
        assert "Traceback" not in err
        assert err.count(": attempt ") == 2


def test_a_killed_supervisor_is_taken_for_lost(process, script, tmp_path) -> None:
    """Kill -9 of `keepstate run` ends its command, and the next start goes on at once with the next attempt."""
    path = script(
        f"keepstate set page 7; echo began; test -e {tmp_path}/go || exec sleep 300; keepstate get page"
    )
    with start("--run-id", "r1", "--", path) as child:
        assert child.stdout.readline() == "began\n"
        child.kill()
        child.wait(timeout=60)
    (tmp_path / "go").touch()
    begun = time.monotonic()
    done = process("run", "--run-id", "r1", "--", path)
    assert (done.code, done.out) == (0, "began\n7\n")
    assert time.monotonic() - begun < 25
    assert done.err.splitlines() == [
        "keepstate: load.sh / r1: attempt 1 was lost: its process is gone",
        "keepstate: load.sh / r1 / load.sh: attempt 1 was lost: its process is gone",
        "keepstate: attempt 2 of load.sh / r1 / load.sh",
    ]


def test_the_store_of_url_is_the_commands_too(process, script, tmp_path) -> None:
    """What --url names, the command finds in its environment."""
    url = f"sqlite:///{tmp_path}/elsewhere.db"
    path = script("keepstate set page 7")
    assert process("run", "--run-id", "r1", "--url", url, "--", path).code == 0
    scope = ("--dag-id", "load.sh", "--run-id", "r1", "--task-id", "load.sh")
    assert process("get", "page", *scope, "--url", url).out == "7\n"
    assert process("get", "page", *scope).code == 1


def test_names_can_be_given(process, script) -> None:
    """Dag, run, task and map index are what the command finds."""
    path = script("echo $KEEPSTATE_DAG_ID $KEEPSTATE_RUN_ID $KEEPSTATE_TASK_ID $KEEPSTATE_MAP_INDEX")
    done = process("run", "--quiet", *TASK, "--map-index", "3", "--", path)
    assert done.out == "etl r1 load 3\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["run"], "missing argument"),
        (["run", "--"], "missing argument"),
        (["run", "--retries", "-1", "--", "true"], "--retries"),
        (["run", "--retry-delay", "soon", "--", "true"], "--retry-delay takes a duration"),
        (["run", "--timeout", "10", "--", "true"], "--timeout takes a duration"),
        (["run", "--timeout", "0", "--", "true"], "--timeout must be longer than zero"),
        (["run", "--nope", "--", "true"], "no such option"),
        (["run", "--dag-id", "a/b", "--", "true"], "dag_id"),
    ],
)
def test_a_wrong_command_line_runs_nothing(process, argv: list[str], message: str) -> None:
    """It is exit code 2 and one line."""
    done = process(*argv)
    assert done.code == 2
    assert message in one_line(done.err)


def test_a_custom_backend_can_supervise(process, tmp_path) -> None:
    """Runs and attempts are in the embedded store then; what the class can't promise is warned of."""
    (tmp_path / "own.py").write_text(
        "import keepstate\n"
        "class Own(keepstate.BaseStoreBackend):\n"
        "    def get(self, scope, key, *, session=None): ...\n"
        "    def set(self, scope, key, value, *, expires_at=None, session=None): ...\n"
        "    def delete(self, scope, key, *, session=None): ...\n"
        "    def clear(self, scope, *, all_map_indices=False, session=None): ...\n"
        "    async def aget(self, scope, key, *, session=None): ...\n"
        "    async def aset(self, scope, key, value, *, expires_at=None, session=None): ...\n"
        "    async def adelete(self, scope, key, *, session=None): ...\n"
        "    async def aclear(self, scope, *, all_map_indices=False, session=None): ...\n"
    )
    done = process("run", "--", "true", AIRFLOW__STATE_STORE__BACKEND="own.Own", PYTHONPATH=str(tmp_path))
    assert done.code == 0
    warned, began = done.err.splitlines()
    assert "no fencing" in warned
    assert began.startswith("keepstate: attempt 1 of true / ")
