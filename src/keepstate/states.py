"""The states that attempts end in, and task instances and runs with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

BY_SERIOUSNESS = ("failed", "lost", "up_for_retry", "running", "superseded", "success")
"""The most serious first."""


def most_serious(states: Iterable[str | None]) -> str | None:
    """Return the state that stands for several, as of a run for its tasks'; ``None`` where none of them has any.

    A state that is not known here, of a newer keepstate's, is the least serious.
    """
    return min((state for state in states if state is not None), key=_place, default=None)


def _place(state: str) -> int:
    return BY_SERIOUSNESS.index(state) if state in BY_SERIOUSNESS else len(BY_SERIOUSNESS)
