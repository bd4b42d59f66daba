"""How runs and tasks are called where nobody named them."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from keepstate.clock import to_datetime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keepstate.clock import Clock

_LONGEST = 250
_REFUSED = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\udfff]")

# What runs a program that is named further on: `python nightly.py` is nightly.py.
_INTERPRETER = re.compile(r"(python|pypy|bash|dash|ksh|zsh|sh|perl|ruby|node|Rscript)[\d.]*(\.exe)?\Z")
_MODULE = re.compile(r"[A-Za-z_][\w.]*\Z")
_SHELL = re.compile(r"\w*sh")
_TAKES_A_WORD = {"-X", "-W", "-o"}


def safe_id(text: str) -> str:
    """Return ``text`` as an id: what the id rules refuse becomes an underscore."""
    name = _REFUSED.sub("_", text)[:_LONGEST].strip() or "_"
    return "_" if name in {".", ".."} else name


def program_name(command: Sequence[str]) -> str:
    """Return the name of the program that a command runs, as an id: ``python -u etl/load.py`` is ``load.py``."""
    name = os.path.basename(command[0].rstrip("/"))  # noqa: PTH119 - pathlib costs more than the rest of this module
    if not _INTERPRETER.match(name):
        return safe_id(name)
    rest = list(command[1:])
    # what these are followed by is the program itself
    code = {"-c", "-"} if _SHELL.match(name) else {"-c", "-e", "-E", "-m", "-"}
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "-m" and rest and _MODULE.match(rest[0]):
            return safe_id(rest[0])
        if option in code:
            return safe_id(name)
        if option in _TAKES_A_WORD:
            del rest[:1]
    return safe_id(os.path.basename(rest[0].rstrip("/")) if rest else name)  # noqa: PTH119 - as above


def own_name() -> str:
    """Return the name of this process's program, as an id."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return safe_id(os.path.basename(file)) if file else "python"  # noqa: PTH119 - as above


def new_run_id(kind: str, clock: Clock) -> str:
    """Return a run id that tells when the run began: ``manual__2026-11-29T08:00:00.123456+00:00``."""
    return f"{kind}__{to_datetime(clock()).isoformat(timespec='microseconds')}"
