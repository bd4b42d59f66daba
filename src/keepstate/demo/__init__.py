"""`keepstate demo`: three short stories of tasks that are killed and carry on, told with real processes.

``stories`` tells them, ``workers`` is the code that is killed (what a person would write), ``screen`` shows what happens,
``pages`` serves what they left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def main(*, svg: Path | None = None, serve: bool = False) -> int:
    """Tell all stories; return 0 if every promise held.

    ``svg`` also saves the picture of it to a file. ``serve`` then shows what they left behind on the web pages, until Ctrl-C.
    """
    from keepstate.demo.stories import tell

    return tell(svg=svg, serve=serve)
