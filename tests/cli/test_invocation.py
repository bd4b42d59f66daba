"""What holds for every command: exit codes, one line of trouble, light imports, completion."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import keepstate
from keepstate import errors
from keepstate.cli import exit_codes
from keepstate.cli.exit_codes import MEANINGS, ExitCode, exit_code_of
from keepstate.runtime.attempts import begin
from keepstate.scope import RunScope
from tests.cli.conftest import TASK, one_line


def every_error() -> list[type[errors.KeepstateError]]:
    """Return the whole tree."""
    found = [errors.KeepstateError]
    for kind in found:
        found += kind.__subclasses__()
    return found


EXPECTED = {
    "KeepstateError": 1,
    "ConfigurationError": 78,
    "InvalidInputError": 2,
    "InvalidKeyError": 2,
    "InvalidIdError": 2,
    "InvalidValueError": 2,
    "ValueTooLargeError": 2,
    "InvalidRetentionError": 2,
    "InvalidTypeError": 2,
    "VersionConflictError": 3,
    "VersionNotFoundError": 1,
    "ScopeNotFoundError": 1,
    "StaleAttemptError": 76,
    "AlreadyRunningError": 75,
    "CheckpointMismatchError": 1,
    "UnknownJobStatusError": 1,
    "TaskFailedError": 1,
    "TaskArgumentsChangedError": 2,
    "UnsupportedError": 78,
    "BackendError": 74,
    "BackendUnavailableError": 69,
    "AccessDeniedError": 77,
    "StoreReadOnlyError": 77,
    "StoreFullError": 73,
    "StoreCorruptedError": 74,
    "StoreVersionError": 78,
}


def test_every_error_of_the_tree_has_its_code() -> None:
    """A new error needs a decision here."""
    found = {
        kind.__name__: int(exit_code_of(kind("x")))
        for kind in every_error()
        if kind.__module__ == "keepstate.errors"
    }
    assert found == EXPECTED


def test_every_code_has_a_meaning() -> None:
    """The table is complete."""
    assert set(MEANINGS) == set(ExitCode)
    assert "the same table" in (exit_codes.__doc__ or "")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["gett"], "no such command 'gett'"),
        (["get"], "missing argument 'KEY'"),
        (["get", "k", "--nope"], "no such option: --nope"),
        (["get", "k", "extra"], "extra argument"),
        (["set", "k", "1", "--if-version", "-1"], "--if-version"),
        (["set", "k", "1", "--if-version", "one"], "--if-version"),
        (["get", "k", "--map-index", "x"], "--map-index"),
        (["--nope"], "no such option: --nope"),
        (["db", "nope"], "no such command 'nope'"),
        (["runs", "nope"], "no such command 'nope'"),
        (["restore", "k", "0"], "VERSION"),
        (["get", "k", "--dag-id"], "--dag-id"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(process, argv: list[str], message: str) -> None:
    """It says what is wrong and where the help is."""
    done = process(*argv)
    assert (done.code, done.out) == (2, "")
    assert message in one_line(done.err)
    assert re.search(r"see `keepstate( \w+)* --help`$", done.err.strip())


def test_a_full_disk_under_stdout_is_trouble(home) -> None:
    """Output that can't be written is exit code 74, not silence."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "keepstate", "list", "--json", *TASK],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 74
    assert one_line(done.stderr) == "No space left on device"


def test_a_broken_pipe_is_quiet(process) -> None:
    """A reader that goes away gets no message after it."""
    process("set", "big", "-", "--raw", *TASK, stdin=b"x" * 1_000_000)
    reader, writer = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "keepstate", "get", "big", *TASK], stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    os.close(reader)
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (141, b"")


def test_nobody_listening_on_stderr_changes_no_code(home) -> None:
    """A message that can't be delivered is no trouble of its own."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "keepstate", "get", "nothing", *TASK], stderr=full, check=False
        )
    assert done.returncode == 1


@pytest.mark.parametrize("closed", ["0", "2"])
def test_a_closed_stream_is_no_trouble(process, closed: str) -> None:
    """Daemons start programs without standard streams; only what is to be printed needs one."""
    process("set", "k", "1", *TASK)
    script = f"exec {closed}>&-; exec {sys.executable} -m keepstate get k {' '.join(TASK)}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["cleanup", "doctor", "list", "runs", "export", "run -- true"])
def test_every_command_does_without_stderr(process, command: str) -> None:
    """What it would say there is lost, and nothing else."""
    process("set", "k", "1", *TASK)
    ids = " ".join(TASK) if command == "list" else ""
    script = f"exec 2>&-; exec {sys.executable} -m keepstate {command} {ids}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0


def test_get_and_set_load_nothing_heavy(home) -> None:
    """A shell calls them in loops: no tables, no templates, no other databases, no other commands."""
    code = (
        "import json, sys; from keepstate.cli.invocation import execute; "
        f"codes = [execute(['set', 'k', '1', *{TASK!r}]), execute(['get', 'k', *{TASK!r}])]; "
        "print(json.dumps([codes, sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    value, facts = done.stdout.splitlines()
    codes, modules = json.loads(facts)
    assert (value, codes) == ("1", [0, 0])
    heavy = {
        "typer",
        "click",
        "rich",
        "jinja2",
        "sqlalchemy",
        "asyncio",
        "platformdirs",
        "importlib.metadata",
        "subprocess",
        "keepstate.runtime",
    }
    assert not heavy & set(modules)
    loaded = {name for name in modules if name.startswith("keepstate.cli.")}
    assert loaded == {
        f"keepstate.cli.{name}"
        for name in (
            "commands",
            "declared",
            "entries",
            "exit_codes",
            "invocation",
            "json_values",
            "options",
            "output",
            "quick",
            "scopes",
            "stores",
        )
    }


def test_the_console_script_is_main() -> None:
    """`keepstate` and `python -m keepstate` are the same."""
    (script,) = entry_points(group="console_scripts", name="keepstate")
    assert script.value == "keepstate.cli:main"


def test_version(process) -> None:
    """It is that of the installed package."""
    done = process("--version")
    assert done.code == 0
    assert re.fullmatch(r"keepstate \d+\.\d+\.\d+\S*\n", done.out)


def test_interrupted_is_130(home) -> None:
    """Ctrl-C while stdin is read ends without a traceback."""
    child = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "keepstate", "set", "k", "-", *TASK],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    # what is imported last before it reads
    while "keepstate.connect" not in child.stderr.readline():
        pass
    import signal

    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("shell", "words", "found"),
    [
        ("bash", "keepstate res", "restore"),
        ("bash", "keepstate db up", "upgrade"),
        ("bash", "keepstate runs sh", "show"),
        ("bash", "keepstate get --asset-u", "--asset-uri"),
        ("zsh", "keepstate hist", "history"),
        ("fish", "keepstate clean", "cleanup"),
    ],
)
def test_completion_knows_commands_and_options(process, shell: str, words: str, found: str) -> None:
    """A shell asks by environment, as its script does."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    if shell != "bash":
        asked = {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = process(**asked, _KEEPSTATE_COMPLETE=f"complete_{shell}")
    assert found in done.out
    assert done.err == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown_and_installed(process, tmp_path, shell: str) -> None:
    """The script names the program and its variable."""
    shown = process("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert shown.code == 0
    assert "_KEEPSTATE_COMPLETE" in shown.out
    done = process("--install-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.code == 0
    installed = [
        path for path in tmp_path.rglob("*") if path.is_file() and "_KEEPSTATE_COMPLETE" in path.read_text()
    ]
    assert installed


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["runs", "--limit", "9" * 20], "--limit is beyond all bounds"),
        (["history", "k", *TASK, "--limit", "9" * 20], "--limit is beyond all bounds"),
        (["tail", *TASK, "--interval", "nan"], "--interval is beyond all bounds"),
        (["tail", *TASK, "--interval", "1e300"], "--interval is beyond all bounds"),
        (["run", "--retry-delay", "400000d", "--", "true"], "--retry-delay can't be longer than 10000 days"),
        (["run", "--timeout", "200000d", "--", "true"], "--timeout can't be longer than 10000 days"),
        (["db", "downgrade", "-1"], "-1"),
    ],
)
def test_numbers_beyond_all_bounds(run, argv: list[str], words: str) -> None:
    """They are refused with one line, which names what is meant as it was written."""
    done = run(*argv)
    assert done.code == 2
    assert words in done.err
    assert "x00" not in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((f"KEEPSTATE_{name}_ID", "\udcff") for name in ("DAG", "RUN", "TASK", "ATTEMPT")),
        ("KEEPSTATE_HOME", "~no-such-user/x"),
    ],
)
def test_variables_that_cannot_be_used(run, monkeypatch, name: str, value: str) -> None:
    """One line that names the variable or its value, and the code of a wrong setting."""
    monkeypatch.setenv(name, value)
    done = run("set", "k", "1", *TASK)
    assert done.code == 78
    assert name in done.err or value in done.err
    assert len(done.err.splitlines()) == 1


def test_closed_streams(process) -> None:
    """What can't be read or printed is told in one line: `keepstate set k - <&-`, `keepstate get k >&-`."""

    def shell(line: str) -> tuple[int, list[str]]:
        words = f"{sys.executable} -m keepstate {line}"
        done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr.splitlines()

    ids = " ".join(TASK)
    assert shell(f"set k - {ids} <&-") == (2, ["keepstate: there is no stdin to read the value from"])
    assert process("set", "k", "1", *TASK).code == 0
    assert shell(f"get k {ids} >&-") == (74, ["keepstate: stdout is closed, so nothing can be printed"])
    assert shell(f"set k 2 {ids} >&- <&-") == (0, [])


def test_a_user_without_a_home(run, monkeypatch) -> None:
    """There is no place for the embedded store, and the message says what to set."""
    import platformdirs

    def nowhere(*args: object, **options: object) -> None:
        raise RuntimeError

    monkeypatch.delenv("KEEPSTATE_HOME")
    monkeypatch.setattr(platformdirs, "user_data_path", nowhere)
    done = run("get", "k", *TASK)
    assert (done.code, len(done.err.splitlines())) == (78, 1)
    assert "set KEEPSTATE_HOME" in done.err


def test_a_run_without_tasks_is_deleted(run, home) -> None:
    """It was there, so that is a success; and then it is not."""
    with keepstate.connect() as store:
        begin(store, RunScope("empty", "r")).end("success")
    erase = ("runs", "delete", "--dag-id", "empty", "--run-id", "r", "--yes")
    assert run(*erase).code == 0
    assert run(*erase).code == 1


@pytest.mark.parametrize(
    "argv",
    [
        ("runs",),
        ("runs", "delete", "--yes", "--dag-id", "etl", "--run-id", "r1"),
        ("list", *TASK),
        ("get", "page", *TASK),
        ("history", "page", *TASK),
        ("delete", "page", *TASK),
        ("assets",),
        ("attempts", *TASK),
        ("cleanup",),
        ("token", "list"),
    ],
    ids=" ".join,
)
def test_a_mistyped_file_is_not_made(run, tmp_path, argv) -> None:
    """Nothing would be found in it, which looks like an answer."""
    file = tmp_path / "typo.db"
    done = run(*argv, "--url", f"sqlite:///{file}")
    assert done.code == 2
    assert one_line(done.err) == f"there is no store at {file}"
    assert not file.exists()


@pytest.mark.parametrize(
    "argv",
    [
        ("runs",),
        ("set", "k", "1", *TASK),
        ("export",),
        ("cleanup",),
        ("db", "upgrade"),
        ("doctor",),
        ("run", "--", "true"),
    ],
    ids=" ".join,
)
def test_an_empty_url_is_refused(process, home, argv) -> None:
    """`--url "$STORE"` where the variable is not set means another store than the one in force."""
    place = 2 if argv[0] == "db" else 1
    done = process(*argv[:place], "--url", "", *argv[place:])
    assert done.code == 2
    assert "--url is empty: name the store" in done.out + done.err
    assert not (home / "keepstate.db").exists()


def test_an_id_that_is_no_text_is_refused(run) -> None:
    """As the shell hands over what is not UTF-8, on one line; so is one with a slash, which no dag can have."""
    for command in (
        ("runs",),
        ("runs", "show", "--run-id", "r"),
        ("attempts", "--run-id", "r"),
        ("tail", "--run-id", "r"),
    ):
        for dag_id in (b"\xff".decode(errors="surrogateescape"), "a/b", "a\n"):
            done = run(*command, "--dag-id", dag_id)
            assert done.code == 2
            assert "dag_id must not" in one_line(done.err)
