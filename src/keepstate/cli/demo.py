"""`keepstate demo`."""

from __future__ import annotations

import gc
from typing import Annotated

from keepstate.cli.declared import Option


def demo_(
    svg: Annotated[
        str | None, Option("--svg", metavar="FILE", help="Save the picture of it, too, as an SVG file.")
    ] = None,
    serve: Annotated[
        bool, Option("--serve", help="Then show on the web pages what they left behind, until Ctrl-C.")
    ] = False,
) -> int:
    """Watch three tasks get killed and carry on, in under a minute.

    An external job over SSH, which is not started twice; 300 pages, which are not read twice; and a submission that is killed
    before the job's id comes back. Everything happens in a folder of its own, which is left to look around in.

    Examples:
      keepstate demo
      keepstate demo --serve
    """
    gc.enable()
    from pathlib import Path

    from keepstate.demo import main

    return main(svg=Path(svg) if svg else None, serve=serve)
