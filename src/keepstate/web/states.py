"""What each state is called and looks like: never by its colour alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """How a state is shown: its ``name`` in styles, its ``label`` in words, and the ``icon`` that stands for it."""

    name: str
    label: str
    icon: str


LOOKS: dict[str | None, Look] = {
    "failed": Look("failed", "Failed", "cross"),
    "lost": Look("lost", "Lost", "question"),
    "up_for_retry": Look("retry", "Up for retry", "again"),
    "running": Look("running", "Running", "play"),
    "superseded": Look("superseded", "Superseded", "skip"),
    None: Look("none", "No state", "dot"),
    "success": Look("success", "Success", "check"),
}
"""By state."""


def look_of(state: str | None) -> Look:
    """Return how a state is shown; one that is not known here is shown by its own name."""
    found = LOOKS.get(state)
    return found if found is not None else Look("none", str(state).replace("_", " ").capitalize(), "dot")
