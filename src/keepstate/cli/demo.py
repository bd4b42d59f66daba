"""`keepstate demo`."""

from __future__ import annotations

import gc
from typing import Annotated

from keepstate.cli.declared import Option


def demo_(
    svg: Annotated[
        str | None, Option("--svg", metavar="FILE", help="Also save a picture of the demo, as an SVG file.")
    ] = None,
    serve: Annotated[
        bool, Option("--serve", help="Then open the web pages on the demo's store, until Ctrl-C.")
    ] = False,
) -> int:
    """Watch three tasks get killed and carry on, in under a minute.

    One waits for an external job over SSH, which is not started twice; one reads 300 pages and resumes where it was;
    and one is killed after submitting a job, before the job's id comes back. Everything happens in a separate folder,
    which is kept for you to inspect.

    It starts an SSH server of its own, for which it needs two more packages: pip install "keepstate[ssh]" asyncssh.

    Examples:
      keepstate demo
      keepstate demo --serve
    """
    gc.enable()
    from pathlib import Path

    from keepstate.demo import main

    return main(svg=Path(svg) if svg else None, serve=serve)
