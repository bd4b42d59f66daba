"""One invocation: from arguments to an exit code. Trouble is one line on stderr, never a traceback."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from keepstate.cli import commands, declared, output, quick
from keepstate.cli.exit_codes import ExitCode, Stop, exit_code_of
from keepstate.errors import KeepstateError

if TYPE_CHECKING:
    from collections.abc import Sequence


def execute(argv: Sequence[str]) -> int:
    """Run the command that ``argv`` (without the program's name) says, and return its exit code."""
    try:
        code = _dispatch(list(argv))
        output.flush()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return ExitCode.BROKEN_PIPE
    except Stop as stop:
        output.say(str(stop))
        return _flushed(stop.code)
    except KeepstateError as exc:
        output.say(str(exc))
        return _flushed(exit_code_of(exc))
    except OSError as exc:
        output.say(exc.strerror or str(exc))
        _drop_output()
        return ExitCode.IO
    return code


def _dispatch(argv: list[str]) -> int:
    found = commands.find(argv[0]) if argv else None
    plain = None if found is None else quick.read(found, argv[1:])
    if plain is not None:
        function, parameters = plain
        return declared.call(function, parameters) or ExitCode.OK
    from keepstate.cli import typer_app

    return typer_app.invoke(argv)


def _flushed(code: ExitCode) -> ExitCode:
    try:
        output.flush()
    except OSError:
        _drop_output()
    return code


def _drop_output() -> None:
    """Leave what can't be written, so that nobody tries again when the process ends."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
