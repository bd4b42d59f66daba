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
    from keepstate.cli.invocation import execute

    code = execute(sys.argv[1:])
    # the store is closed and the output flushed; what is left to tear down is memory
    os._exit(code)
