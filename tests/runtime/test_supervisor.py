"""The supervisor: attempts, exit codes, what a command is handed, signals, time limits, and who may start when."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from keepstate import (
    BackendUnavailableError,
    InvalidIdError,
    InvalidInputError,
    InvalidTypeError,
    StateStore,
    connect,
)
from keepstate.runtime import supervisor
from keepstate.runtime.attempts import begin
from keepstate.runtime.runs import how_to_run_again
from keepstate.runtime.supervisor import Event, supervise
from keepstate.scope import RunScope
from keepstate.settings import Settings
from tests.support.programs import is_alive, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.programs import Programs

RUN = ("--dag-id", "nightly", "--run-id", "1", "--task-id", "load")


def attempts(
    store: StateStore, task_id: str | None = "load", dag_id: str = "nightly"
) -> list[tuple[int, str]]:
    """Return number and state of the attempts, oldest first."""
    found = store.attempts(dag_id, "1", task_id)[::-1]
    return [(attempt.try_number, attempt.state) for attempt in found]


def events(programs: Programs) -> list[dict[str, Any]]:
    """Return what the supervisor told."""
    return [json.loads(line) for line in programs.lines("events")]


def kinds(programs: Programs) -> list[str]:
    """Return what kinds of things the supervisor told."""
    return [event["kind"] for event in events(programs)]


def quick(store: StateStore, command: Sequence[str], **options: Any) -> tuple[int, list[Event]]:
    """Supervise a command in this process, as task `load` of a run."""
    told: list[Event] = []
    ids = {"dag_id": "nightly", "run_id": "1", "task_id": "load", "retry_delay": 0}
    code = supervise(store, command, on_event=told.append, **{**ids, **options})
    return code, told


# ---------------------------------------------------------------------------------------------- exit codes


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ("exit 3", 3, "exit code 3"),
        ("kill -9 $$", 137, "it was ended by SIGKILL"),
        ("kill -TERM $$", 143, "it was ended by SIGTERM"),
        ("exit 255", 255, "exit code 255"),
    ],
)
def test_exit_codes(store: StateStore, script: str, code: int, reason: str) -> None:
    """The code is the command's own, and a signal's as a shell has it; the attempt's record says how it ended."""
    assert quick(store, ["sh", "-c", script])[0] == code
    assert attempts(store) == [(1, "failed")]
    assert store.attempts("nightly", "1", "load")[0].reason == reason


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("/etc/passwd", 126), ("/", 126)])
def test_a_command_that_cannot_be_started(store: StateStore, command: str, code: int) -> None:
    """It is 127 for what is not found and 126 for what can't be executed, as in a shell; it is not tried again."""
    returned, events = quick(store, [command, "x"], retries=3)
    assert returned == code
    assert attempts(store) == [(1, "failed")]
    reason = store.attempts("nightly", "1", "load")[0].reason
    assert reason.startswith(f"exit code {code}, as {command!r} ")
    assert str(events[-1]) == "no retry, as that would end in the same way"


def test_a_script_without_an_interpreter_is_a_shell_script(store: StateStore, tmp_path: Path) -> None:
    """As a shell has it; and a name that says nothing can't be started, with one line."""
    script = tmp_path / "load"
    script.write_text('echo "$1" > "$0.out"; exit 3\n')
    script.chmod(0o755)
    assert quick(store, [str(script), "a b"])[0] == 3
    assert (tmp_path / "load.out").read_text() == "a b\n"


def test_the_command_gets_every_environment_variable(
    store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that no shell can name, too: exported functions, and names with dots or dashes."""
    names = {"BASH_FUNC_helper%%": "() { echo x; }", "spring.profile": "prod", "a-b": "1"}
    names["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    told = tmp_path / "told"
    script = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
    results: list[int] = []
    # a thread may supervise, too
    thread = threading.Thread(
        target=lambda: results.append(quick(store, [sys.executable, "-c", script, str(told)])[0])
    )
    thread.start()
    thread.join()
    assert results == [0]
    got = json.loads(told.read_text())
    assert {name: got.pop(name, None) for name in os.environ} == dict(os.environ)
    assert all(name.startswith("KEEPSTATE_") for name in got)


@pytest.mark.parametrize("path", ["/usr/bin:/bin", None])
def test_the_command_finds_keepstate(
    store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | None
) -> None:
    """In a script that cron starts, too, whose PATH has no virtual environment; another one that is there comes first."""
    own = Path(sys.executable).parent / "keepstate"
    if path is None:
        monkeypatch.delenv("PATH")
    else:
        monkeypatch.setenv("PATH", path)
    found = tmp_path / "found"
    assert quick(store, ["/bin/sh", "-c", f"command -v keepstate > {found}"])[0] == 0
    assert found.read_text() == f"{own}\n"
    other = tmp_path / "bin" / "keepstate"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")
    assert quick(store, ["/bin/sh", "-c", f"echo $PATH > {found}"], run_id="2")[0] == 0
    assert found.read_text() == f"{other.parent}:/usr/bin:/bin\n"


def test_success_and_what_it_prevents(store: StateStore, tmp_path: Path) -> None:
    """A success is recorded, and the same task instance is not run again: 0, and it is told."""
    command = ["sh", "-c", f"echo x >> {tmp_path}/ran"]
    code, told = quick(store, command)
    assert (code, [event.kind for event in told]) == (0, ["began", "succeeded"])
    code, told = quick(store, command)
    assert (code, [str(event) for event in told]) == (
        0,
        [
            "nightly / 1 / load has already succeeded, and is not run again; "
            + how_to_run_again(RunScope("nightly", "1"), "--run-id")
        ],
    )
    assert (tmp_path / "ran").read_text() == "x\n"
    assert attempts(store) == [(1, "success")]


def test_retries(store: StateStore, tmp_path: Path) -> None:
    """A failed command is started again so often, each attempt with a number and a record; events tell of all."""
    count = tmp_path / "count"
    command = ["sh", "-c", f"echo $KEEPSTATE_TRY_NUMBER >> {count}; [ $(wc -l < {count}) -ge 3 ]"]
    code, told = quick(store, command, retries=5)
    assert code == 0
    assert count.read_text().split() == ["1", "2", "3"]
    assert attempts(store) == [(1, "up_for_retry"), (2, "up_for_retry"), (3, "success")]
    failure = ["began", "failed", "waiting"]
    assert [event.kind for event in told] == [*failure, *failure, "began", "succeeded"]
    assert str(told[1]) == "attempt 1 failed: exit code 1"


def test_an_outage_while_ends_are_recorded(
    store: StateStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A store that is away when an end is recorded costs neither the retries nor the success."""
    backend, real = store.backend, store.backend.end
    down = ["success", "up_for_retry"]

    def end(request: Any) -> None:
        if request.state in down:
            if request.state == "success":
                down.remove("success")
            raise BackendUnavailableError("down")
        real(request)

    monkeypatch.setattr(backend, "end", end)
    monkeypatch.setattr("keepstate.runtime.attempts._BETWEEN_TRIES", 0)
    monkeypatch.setitem(supervisor._end.__kwdefaults__, "patience", 0)
    command = ["sh", "-c", f"test -e {tmp_path}/x || {{ touch {tmp_path}/x; exit 3; }}"]
    code, told = quick(store, command, retries=1)
    assert code == 0
    assert [event.text for event in told if event.kind == "lost"] == [
        "attempt 1 of nightly / 1 / load has ended, which could not be stored then"
    ]
    assert attempts(store) == [(1, "lost"), (2, "success")]


def test_try_numbers_go_on_and_retries_count_anew(store: StateStore) -> None:
    """Each invocation has its retries; the numbers of attempts go on; without retries left, the last code comes back."""
    for retries in (1, 0):
        code, told = quick(store, ["sh", "-c", "exit 4"], retries=retries)
        assert (code, told[-1].kind) == (4, "exhausted")
    assert attempts(store) == [(1, "up_for_retry"), (2, "failed"), (3, "failed")]


def test_pauses_between_attempts(store: StateStore) -> None:
    """They are those of the policy: growing if asked for, up to the most."""
    _, told = quick(
        store,
        ["false"],
        retries=3,
        retry_delay=0.02,
        retry_exponential_backoff=True,
        max_retry_delay=0.05,
    )
    assert [event.delay for event in told if event.kind == "waiting"] == [0.02, 0.04, 0.05]


def test_clear_on_success(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the setting on, a command's entries go when it succeeds."""
    monkeypatch.setenv("AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS", "True")
    with connect() as store:
        store.task("nightly", "1", "load").set("k", 1)
        assert quick(store, ["false"])[0] == 1
        assert store.task("nightly", "1", "load").get("k") == 1
        assert quick(store, ["true"])[0] == 0
        assert store.task("nightly", "1", "load").get("k") is None


# --------------------------------------------------------------------------------------- what is handed over

SHOW = """
    import json, os, sys
    from keepstate import task, task_state_store, dag_run, get_current_context

    store = task_state_store()
    assert store is task_state_store()
    print(json.dumps({k: v for k, v in os.environ.items() if k.startswith("KEEPSTATE_")}))
    print(store.increment("count"))

    @task
    def load(ti=None):
        task_state_store().set("mine", ti.try_number)
        return [ti.dag_id, ti.run_id, ti.task_id]

    print(json.dumps([load(), load.override(task_id="other")()]))
    with dag_run(os.environ["KEEPSTATE_DAG_ID"]) as run:
        print(json.dumps([run.run_id, load()]))
    sys.exit(1)
"""


def test_the_scope_is_handed_over(programs: Programs, store: StateStore) -> None:
    """Inside, task_state_store() is the supervised attempt's; @task and a dag_run of that dag use its run, with own ids."""
    done = programs.run(programs.supervised(programs.python(SHOW), *RUN, "--retries", 1))
    assert done.returncode == 1, done.stderr
    first, second = done.stdout.splitlines()[:4], done.stdout.splitlines()[4:]
    handed = json.loads(first[0])
    attempt = store.attempts("nightly", "1", "load")[1]
    assert handed == {
        "KEEPSTATE_DAG_ID": "nightly",
        "KEEPSTATE_RUN_ID": "1",
        "KEEPSTATE_TASK_ID": "load",
        "KEEPSTATE_MAP_INDEX": "-1",
        "KEEPSTATE_TRY_NUMBER": "1",
        "KEEPSTATE_ATTEMPT_ID": attempt.attempt_id,
        "KEEPSTATE_HOME": str(programs.home),
        "KEEPSTATE_HEARTBEAT": "0.2",
    }
    assert [first[1], second[1]] == ["1", "2"]
    # the command itself is `load`
    assert json.loads(first[2]) == [["nightly", "1", "load__1"], ["nightly", "1", "other"]]
    assert json.loads(first[3]) == ["1", ["nightly", "1", "load__2"]]
    assert json.loads(second[2]) == json.loads(first[2])
    assert store.task("nightly", "1", "load__1").get("mine") == 1
    assert store.task("nightly", "1", "load").get("count") == 2


def test_a_map_index_and_a_url(programs: Programs) -> None:
    """Both are handed over; with a URL given, the command uses the store there."""
    url = f"sqlite:///{programs.folder}/other.db"
    code = "from keepstate import task_state_store as s; s().set('k', 5); print(s())"
    command = programs.supervised(programs.python(code), *RUN, "--map-index", 7, "--url", url)
    assert "load [7], attempt 1" in programs.run(command).stdout
    with connect(url) as other:
        assert other.task("nightly", "1", "load", map_index=7).get("k") == 5


def test_a_command_of_a_superseded_attempt_writes_nothing(programs: Programs, store: StateStore) -> None:
    """What it stores is fenced as its attempt."""
    code = """
        import time
        from pathlib import Path
        from keepstate import task_state_store
        task_state_store().set("k", "mine")
        Path("begun").touch()
        while not Path("go").exists():
            time.sleep(0.01)
        task_state_store().set("k", "late")
    """
    with programs.started(
        programs.supervised(programs.python(code), *RUN), KEEPSTATE_HEARTBEAT="600"
    ) as supervisor:
        until(programs.file("begun").exists)
        store.task("nightly", "1", "load", try_number=2).set("k", "later")
        programs.file("go").touch()
        assert "StaleAttemptError" in supervisor.communicate(timeout=30)[1]
    assert store.task("nightly", "1", "load").get("k") == "later"


def test_names_by_default(programs: Programs, store: StateStore) -> None:
    """Dag and task are called as the program; the newest unfinished run goes on, and is recorded as a whole."""
    script = programs.write("#!/bin/sh\nexit ${1-0}\n", "load.sh")
    runs = []
    for code in (1, 1, 0, 0):
        assert programs.run(programs.supervised([str(script), str(code)])).returncode == code
        runs.append([(run.run_id, run.state) for run in store.runs("load.sh")])
    assert [len(found) for found in runs] == [1, 1, 1, 2]
    assert [found[0][1] for found in runs] == ["failed", "failed", "success", "success"]
    assert runs[0][0][0].startswith("manual__")
    (instance,) = store.task_instances("load.sh", runs[0][0][0])
    assert (instance.scope.task_id, instance.try_number, instance.state) == ("load.sh", 3, "success")


def test_a_run_shared_by_several_commands(programs: Programs, store: StateStore) -> None:
    """With run id and task id, commands are tasks of one run, side by side; and a failed one does not hold up the others."""
    wait = "touch begun; while ! [ -e go ]; do sleep 0.01; done; exit 1"
    first = programs.supervised(["sh", "-c", wait], *RUN)
    with programs.started(first) as running:
        until(programs.file("begun").exists)
        other = ("--dag-id", "nightly", "--run-id", "1", "--task-id", "other")
        assert programs.run(programs.supervised(["true"], *other)).returncode == 0
        programs.file("go").touch()
        assert running.wait(30) == 1
    assert attempts(store) == [(1, "failed")]
    assert attempts(store, "other") == [(1, "success")]
    assert attempts(store, None) == []


def test_a_pipeline_in_a_pipeline(programs: Programs, store: StateStore) -> None:
    """Inside a supervised script, a `keepstate run` is a task of the script's run; on a retry, finished steps are skipped."""
    step = programs.supervised(["sh", "-c", "echo $KEEPSTATE_TASK_ID >> steps; exit $0"])
    lines = []
    for name, code in (("extract", "0"), ("transform", "$KEEPSTATE_CODE"), ("load", "0")):
        words = [*step[:-1], *step[-1:], code]
        words[words.index("--") : words.index("--")] = ["--task-id", name]
        lines.append(" ".join(word if word.startswith("$") else f"'{word}'" for word in words))
    script = programs.write("#!/bin/sh\nset -e\n" + "\n".join(lines) + "\n", "flow.sh")
    for code, expected in (("1", 1), ("0", 0)):
        environment = {"KEEPSTATE_CODE": code, "PYTHONPATH": programs.environment["PYTHONPATH"]}
        done = programs.run(programs.supervised([str(script)], "--run-id", "1"), **environment)
        assert done.returncode == expected, done.stderr
    assert programs.lines("steps") == ["extract", "transform", "transform", "load"]
    assert attempts(store, None, "flow.sh") == [(1, "failed"), (2, "success")]
    assert attempts(store, "transform", "flow.sh") == [(1, "failed"), (2, "success")]


def test_a_step_needs_an_id_of_its_own(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command inside a supervised one that would have its id is told to take another."""
    settings = Settings(dag_id="nightly", run_id="1", task_id="true", try_number=1, attempt_id="x")
    with connect(settings=settings) as inner, pytest.raises(InvalidInputError, match="--task-id of its own"):
        supervise(inner, ["true"])


def test_a_finished_step_is_no_reason_to_erase_the_run(home: Path) -> None:
    """A step of a supervised script is met again at each retry: it is skipped, and that is all there is to say."""
    facts = {"dag_id": "nightly", "run_id": "1", "task_id": "flow", "try_number": 1, "attempt_id": "x"}
    with connect(settings=Settings(home=str(home), **facts)) as inner:
        told: list[Event] = []
        for _ in range(2):
            assert supervise(inner, ["true"], on_event=told.append) == 0
    assert str(told[-1]) == "nightly / 1 / true has already succeeded, and is not run again"


@pytest.mark.parametrize("missing", ["try_number", "attempt_id"])
def test_exported_ids_are_no_supervisor(home: Path, store: StateStore, missing: str) -> None:
    """Who exports ids to look around is not inside `keepstate run`: a command is a run of its own name there."""
    facts = {"dag_id": "nightly", "run_id": "1", "task_id": "load", "try_number": 1, "attempt_id": "x"}
    with connect(settings=Settings(home=str(home), **{**facts, missing: None})) as inner:
        assert supervise(inner, ["true"]) == 0
    assert [(run.dag_id, run.state) for run in store.runs()] == [("true", "success")]


def test_what_makes_no_sense_is_refused_before_anything_begins(store: StateStore) -> None:
    """Ids, the command, retries and times are checked first."""
    bad: list[tuple[type[Exception], dict[str, Any]]] = [
        (InvalidIdError, {"dag_id": "a/b"}),
        (InvalidIdError, {"run_id": "."}),
        (InvalidIdError, {"map_index": -2}),
        (InvalidInputError, {"retries": -1}),
        (InvalidInputError, {"timeout": -1}),
        (InvalidTypeError, {"grace": "10"}),
        (InvalidTypeError, {"command": []}),
        (InvalidTypeError, {"command": ["sleep", 3]}),
    ]
    for error, options in bad:
        with pytest.raises(error):
            quick(store, **{"command": ["true"], **options})
    assert store.runs() == []


# ------------------------------------------------------------------------------------- hung, and signalled


def test_a_command_that_takes_too_long(store: StateStore, tmp_path: Path) -> None:
    """It is ended with its whole group, and the next attempt begins; the code is 124."""
    script = f"sleep 300 & echo $! >> {tmp_path}/pids; wait"
    began = time.monotonic()
    code, told = quick(store, ["sh", "-c", script], timeout=0.2, retries=1)
    assert code == 124
    assert time.monotonic() - began < 10
    assert store.attempts("nightly", "1", "load")[0].reason == "it took longer than 0.2 s"
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    until(lambda: not any(map(is_alive, pids)))
    assert [event.returncode for event in told if event.kind == "failed"] == [124, 124]


def test_a_hung_command_that_ignores_sigterm(store: StateStore, tmp_path: Path) -> None:
    """When the grace is over, its group is killed."""
    script = f"trap '' TERM; (trap '' TERM; echo $$ > {tmp_path}/inner; sleep 300) & sleep 300"
    began = time.monotonic()
    assert quick(store, ["sh", "-c", script], timeout=0.2, grace=0.3)[0] == 124
    assert 0.4 < time.monotonic() - began < 10


def test_an_early_end_leaves_no_timer_behind(store: StateStore) -> None:
    """A command that ends in time is not hit by its time limit, nor is the next attempt."""
    code, _ = quick(store, ["sh", "-c", "sleep 0.1; exit 1"], timeout=5, retries=1)
    assert code == 1


def test_what_a_command_leaves_running_on_purpose_lives_on(store: StateStore, tmp_path: Path) -> None:
    """A background process of a command that ends by itself stays; one with nohup or setsid survives its killing too."""
    for number, (launch, end) in enumerate(
        [
            ("sleep 300 & echo $!", "exit 1"),
            ("nohup sleep 300 >/dev/null 2>&1 & echo $!", "kill -9 $$"),
            ("setsid sleep 300 & echo $!", "kill -9 $$"),
        ]
    ):
        file = tmp_path / f"pid{number}"
        # the launcher waits until nohup or setsid has become sleep
        script = f"{{ {launch}; }} > {file}; sleep 0.3; {end}"
        quick(store, ["sh", "-c", script], task_id=f"task{number}")
        pid = int(file.read_text())
        time.sleep(0.1)
        assert is_alive(pid)
        os.kill(pid, signal.SIGKILL)


def test_what_a_killed_command_leaves_in_its_group_is_hung_up_on(store: StateStore, tmp_path: Path) -> None:
    """The rest of a command that was killed does not run beside the next attempt."""
    script = f"sleep 300 & echo $! > {tmp_path}/pid; kill -9 $$"
    assert quick(store, ["sh", "-c", script])[0] == 137
    until(lambda: not is_alive(int((tmp_path / "pid").read_text())))


TRAP = """
    import signal, sys, time
    from pathlib import Path

    def end(number, frame):
        Path("got").write_text(signal.Signals(number).name)
        sys.exit(int(sys.argv[1]))

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    Path("ready").touch()
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("code", [0, 5])
def test_signals_are_passed_on(
    programs: Programs, store: StateStore, number: signal.Signals, code: int
) -> None:
    """The command gets the signal and may end as it likes: 0 is a success, anything else is not retried."""
    command = programs.supervised(programs.python(TRAP, code), *RUN, "--retries", 9)
    with programs.started(command) as supervisor:
        until(programs.file("ready").exists)
        supervisor.send_signal(number)
        assert supervisor.wait(30) == code
    assert programs.file("got").read_text() == number.name
    assert attempts(store) == [(1, "failed" if code else "success")]
    if code:
        assert kinds(programs) == ["began", "failed", "stopped"]
        told = f"exit code 5, after {number.name} was passed on"
        assert store.attempts("nightly", "1", "load")[0].reason == told


def test_a_signal_while_waiting_ends_the_retries(programs: Programs, store: StateStore) -> None:
    """Ctrl-C between attempts ends at once, with the last attempt's code."""
    with programs.started(
        programs.supervised(["sh", "-c", "exit 6"], *RUN, "--retries", 9, "--retry-delay", 600)
    ) as supervisor:
        until(lambda: "waiting" in kinds(programs))
        supervisor.send_signal(signal.SIGINT)
        assert supervisor.wait(30) == 6
    assert kinds(programs)[-1] == "stopped"


def test_an_ignored_hangup_stays_ignored(programs: Programs) -> None:
    """Under nohup, the end of the terminal is no reason to stop."""
    script = "touch ready; while ! [ -e go ]; do sleep 0.01; done"
    ignoring = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *programs.supervised(["sh", "-c", script], *RUN)]
    with programs.started(ignoring) as supervisor:
        until(programs.file("ready").exists)
        supervisor.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        assert supervisor.poll() is None
        programs.file("go").touch()
        assert supervisor.wait(30) == 0


def test_input_and_output_are_the_commands(programs: Programs) -> None:
    """Standard input, output and errors go straight through."""
    command = programs.supervised(["sh", "-c", "cat; echo oops >&2"], *RUN)
    with programs.started(["sh", "-c", 'printf hello | "$@"', "sh", *command]) as process:
        assert process.communicate(timeout=30) == ("hello", "oops\n")


# ------------------------------------------------------------------------------------------ two at once

WAIT = "echo $KEEPSTATE_TRY_NUMBER >> begun; while ! [ -e go ]; do sleep 0.01; done"


@pytest.mark.parametrize("ids", [RUN, RUN[:4], RUN[:2]], ids=["task", "run", "unnamed run"])
def test_two_starts_at_once(programs: Programs, ids: tuple[str, ...]) -> None:
    """The second one is refused while the first lives, however the run was named."""
    command = programs.supervised(["sh", "-c", WAIT], *ids)
    with programs.started(command, KEEPSTATE_HEARTBEAT="600") as first:
        until(lambda: programs.lines("begun"))
        second = programs.run(command)
        assert second.returncode == 75
        assert "AlreadyRunningError: nightly / " in second.stderr
        assert f"process {first.pid} " in second.stderr
        programs.file("go").touch()
        assert first.wait(30) == 0
    assert programs.lines("begun") == ["1"]


@pytest.mark.parametrize("ids", [RUN, RUN[:4], RUN[:2]], ids=["task", "run", "unnamed run"])
def test_taking_over(programs: Programs, store: StateStore, ids: tuple[str, ...]) -> None:
    """Told to, a second start takes over: the first one's command is ended, and only then the second's begins."""
    script = "trap 'echo ended >> begun; exit 9' TERM; " + WAIT
    command = programs.supervised(["sh", "-c", script], *ids, "--retries", 9)
    with programs.started(command, KEEPSTATE_HEARTBEAT="1") as first:
        until(lambda: programs.lines("begun"))
        taking = programs.supervised(["sh", "-c", script], *ids, "--take-over")
        with programs.started(taking, KEEPSTATE_HEARTBEAT="1") as second:
            _, errors = first.communicate(timeout=30)
            assert first.returncode == 75
            assert "StaleAttemptError" in errors
            until(lambda: len(programs.lines("begun")) == 3)
            programs.file("go").touch()
            assert second.wait(30) == 0
    assert programs.lines("begun") == ["1", "ended", "2"]
    (run,) = store.runs("nightly")
    (instance,) = store.task_instances("nightly", run.run_id)
    found = store.attempts("nightly", run.run_id, instance.scope.task_id)
    assert [one.state for one in found] == ["success", "lost"]


def test_losing_the_run_alone(programs: Programs, store: StateStore) -> None:
    """Whoever took the run over may not have come to the task yet: the command is ended, and one line tells why."""
    command = programs.supervised(["sh", "-c", WAIT], *RUN[:4], "--retries", 9)
    with programs.started(command) as first:
        until(lambda: programs.lines("begun"))
        later = begin(store, RunScope("nightly", "1"), take_over=True)
        _, errors = first.communicate(timeout=30)
        later.end("failed")
    assert first.returncode == 75
    (line,) = errors.splitlines()
    assert line.startswith(
        "StaleAttemptError: attempt 1 of nightly / 1 may not go on: attempt 2 has begun since"
    )
    assert kinds(programs) == ["began"]


@pytest.mark.parametrize("code", [0, 3])
def test_losing_the_run_is_learnt_at_the_end(programs: Programs, store: StateStore, code: int) -> None:
    """A command that ended before any heartbeat told of it has not made the run a success: it is the later one's."""
    command = programs.supervised(["sh", "-c", f"{WAIT}; exit {code}"], *RUN[:4])
    with programs.started(command, KEEPSTATE_HEARTBEAT="600") as first:
        until(lambda: programs.lines("begun"))
        later = begin(store, RunScope("nightly", "1"), take_over=True)
        programs.file("go").touch()
        _, errors = first.communicate(timeout=30)
        later.end("failed")
    assert first.returncode == 75
    assert len(errors.splitlines()) == 1
    assert "StaleAttemptError" in errors
    assert attempts(store, None) == [(1, "lost"), (2, "failed")]


def test_the_supervisor_starts_lightly() -> None:
    """It loads neither Jinja2 nor asyncio, nor anything of the tasks and operators."""
    import subprocess

    code = "import sys, keepstate.connect, keepstate.runtime.supervisor; print(*sys.modules)"
    loaded = set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    heavy = {
        "jinja2",
        "asyncio",
        "sqlalchemy",
        "rich",
        "typer",
        "concurrent.futures",
        "keepstate.runtime.tasks",
    }
    assert not heavy & loaded
