"""The store that a command opens."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from keepstate.cli.output import Lines
from keepstate.connect import connect

if TYPE_CHECKING:
    from keepstate.settings import Settings
    from keepstate.store import StateStore

_log = logging.getLogger("keepstate")


def opened(url: str | None, settings: Settings, *, purge: bool = False) -> StateStore:
    """Open the store at ``url``, or the one in force. What the library warns of goes to stderr, a line each.

    Without ``purge`` nothing expired is removed on the way: a command in a shell's loop should not wait for that.
    """
    if not _log.handlers:
        _log.addHandler(Lines())
        _log.propagate = False
    return connect(url, settings=settings, purge_on_open=purge)
