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

from keepstate import errors
from keepstate.cli import exit_codes
from keepstate.cli.exit_codes import MEANINGS, ExitCode, exit_code_of
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
    "StaleAttemptError": 76,
    "AlreadyRunningError": 75,
    "CheckpointMismatchError": 1,
    "UnknownJobStatusError": 1,
    "TaskFailedError": 1,
    "TaskArgumentsChangedError": 1,
    "UnsupportedError": 78,
    "BackendError": 74,
    "BackendUnavailableError": 69,
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


@pytest.mark.parametrize("closed", ["0", "1", "2"])
def test_a_closed_stream_is_no_trouble(process, closed: str) -> None:
    """Daemons start programs without standard streams."""
    process("set", "k", "1", *TASK)
    script = f"exec {closed}>&-; exec {sys.executable} -m keepstate get k {' '.join(TASK)}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0
    assert done.stderr == ""


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
