"""Each test has a home of its own and an environment that names no scope."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import keepstate
from keepstate.cli.invocation import execute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TASK = ("--dag-id", "etl", "--run-id", "r1", "--task-id", "load")


@dataclass(frozen=True)
class Result:
    """What an invocation printed, and how it ended."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, in which the embedded store is made."""
    for name in list(os.environ):
        if name.startswith(("KEEPSTATE_", "AIRFLOW__STATE_STORE__")) or name in {"NO_COLOR", "FORCE_COLOR"}:
            monkeypatch.delenv(name)
    # completion scripts go where the home says
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KEEPSTATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def store(home: Path) -> Iterator[keepstate.StateStore]:
    """The embedded store, as a program has it."""
    with keepstate.connect() as opened:
        yield opened


@pytest.fixture
def run(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Result]]:
    """Call the command line within this process."""

    def call(*argv: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        code = execute(argv)
        out, err = capfdbinary.readouterr()
        return Result(code, out.decode(), err.decode())

    yield call
    log = logging.getLogger("keepstate")
    log.handlers.clear()
    log.propagate = True


@pytest.fixture
def process() -> Callable[..., Result]:
    """Call the command line as a process of its own, as a shell does."""

    def call(*argv: str, stdin: bytes = b"", **environment: str) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "keepstate", *argv],
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
            env={**os.environ, **environment},
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


def one_line(err: str) -> str:
    """Return the message of stderr, after making sure that it is exactly one."""
    assert err.startswith("keepstate: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return err.removeprefix("keepstate: ").rstrip("\n")
