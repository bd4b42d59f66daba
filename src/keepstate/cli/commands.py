"""The commands and where they live. A command's module is imported when it is invoked, and no other."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.cli.declared import Group

HOMES = {
    "get": "entries",
    "set": "entries",
    "delete": "entries",
    "clear": "entries",
    "list": "listings",
    "history": "listings",
    "restore": "listings",
    "tail": "tail",
    "assets": "assets",
    "run": "run",
    "runs": "runs",
    "attempts": "attempts",
    "cleanup": "cleanup",
    "copy": "copies",
    "export": "copies",
    "import": "copies",
    "db": "db",
    "serve": "serve",
    "token": "token",
    "airflow": "airflow",
    "doctor": "doctor",
    "demo": "demo",
}
"""The module of each command, in the order of ``keepstate --help``. It has a function or a `Group` of the command's name
with an underscore behind it: ``get_`` for ``keepstate get``."""

PANELS = {
    "Entries": ("get", "set", "delete", "clear", "list", "history", "restore", "tail", "assets"),
    "Runs": ("run", "runs", "attempts"),
    "The store": ("cleanup", "copy", "export", "import", "db", "airflow", "doctor"),
    "The server": ("serve", "token"),
    "First steps": ("demo",),
}
"""Under which headings the help shows them."""


def find(name: str) -> Callable[..., int | None] | Group | None:
    """Import the command of a name; ``None`` where there is none."""
    home = HOMES.get(name)
    if home is None:
        return None
    module = f"keepstate.cli.{home}"
    __import__(module)
    return cast("Callable[..., int | None] | Group", getattr(sys.modules[module], f"{name}_"))
