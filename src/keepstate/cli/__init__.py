"""The command line. `main` is the process; `invocation.execute` is one invocation, and returns its exit code."""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process, and leave."""
    # A shell calls keepstate in loops, so a command is over in the time that collecting the garbage of imports and
    # tearing down the interpreter would take: a sixth of it. What runs for long switches collection on again.
    gc.disable()
    code = 130
    try:
        from keepstate.cli.invocation import execute

        if sys.stdout is not None:
            # a terminal that can't show a character gets it written out; what programs read is UTF-8 in any case
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        code = execute(sys.argv[1:])
    except KeyboardInterrupt:
        pass
    # the store is closed and the output flushed; what is left to tear down is memory
    os._exit(code)
