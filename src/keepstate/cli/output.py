"""What is printed: data on stdout, one-line messages and questions on stderr. No stored text steers the terminal."""

from __future__ import annotations

import contextlib
import logging
import re
import sys

from keepstate.cli.exit_codes import ExitCode, Stop
from keepstate.cli.json_values import to_json

# control characters, what breaks lines, what turns the direction of writing round, halves of characters
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_BUT_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Return ``text`` with whatever could steer a terminal written out, as ``\x1b`` is."""
    return _UNSAFE.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    # as Python writes it in a literal
    return repr(found[0])[1:-1]


def is_watched() -> bool:
    """Whether stderr is a terminal, so that a person sees at once what is said there."""
    return sys.stderr is not None and sys.stderr.isatty()


def say(message: str) -> None:
    """Print one line on stderr, if anybody listens."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"keepstate: {visible(message)}\n")
            sys.stderr.flush()


def note(message: str) -> None:
    """Print a dim line on stderr for a person at a terminal; nobody else gets it."""
    if not is_watched():
        return
    from rich.console import Console

    shown = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if shown.no_color:
        # rich would leave it dim
        shown = Console(stderr=True, highlight=False, markup=False, emoji=False, color_system=None)
    with contextlib.suppress(OSError):
        shown.print(visible(message), style="dim", soft_wrap=True)


class Lines(logging.Handler):
    """Prints what the library warns of as the command line's own one-line messages."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        say(record.getMessage())


def put(text: str) -> None:
    """Print a line of data on stdout, in UTF-8 whatever the locale says."""
    if sys.stdout is None:
        raise Stop("stdout is closed, so nothing can be printed", ExitCode.IO)
    sys.stdout.flush()
    sys.stdout.buffer.write(f"{text}\n".encode("utf-8", "surrogateescape"))


def put_json(value: object) -> None:
    """Print data as one line of JSON."""
    put(to_json(value))


def put_raw(text: str) -> None:
    """Print a string as it is; on a terminal, with what could steer it written out."""
    put(_UNSAFE_BUT_LINES.sub(_written_out, text) if sys.stdout is not None and sys.stdout.isatty() else text)


def flush() -> None:
    """Hand over what was printed, so that trouble with it shows while there is still an exit code to give."""
    if sys.stdout is not None:
        sys.stdout.flush()


def ask(question: str, *, may_go_unasked: bool) -> None:
    """Ask on the terminal, and raise ``Stop`` unless the answer is yes.

    Where nobody can be asked, it returns if that ``may_go_unasked``, and raises ``Stop`` telling of ``--yes`` if not.
    """
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        if may_go_unasked:
            return
        raise Stop(
            "this can't be undone, and there is no terminal on which to ask for confirmation: give --yes",
            ExitCode.USAGE,
        )
    sys.stderr.write(f"{visible(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise Stop("nothing was changed")
