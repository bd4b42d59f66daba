"""What each client session asked last, and the answer to it: a request that comes again is not applied again."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from keepstate.backends.refusals import out_of_order
from keepstate.backends.sessions import SESSION_LASTS
from keepstate.scope import CleanupReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keepstate.backends.answers import Applied
    from keepstate.backends.requests import Session


class Answered:
    """The last answer to each session. Not locked: the backend's lock is held around each use."""

    def __init__(self, last: dict[str, tuple[int, Applied, int]] | None = None) -> None:
        """Begin with what was answered."""
        self._last = last or {}

    def copy(self) -> Answered:
        """Return one of its own that stands as this one does."""
        return Answered(dict(self._last))

    def before(self, session: Session | None) -> Applied | None:
        """Return the answer given before, where this request was applied before."""
        if session is None or session.id not in self._last:
            return None
        number, answer, _ = self._last[session.id]
        if number > session.number:
            raise out_of_order(session, number, "memory:")
        return replace(answer, repeated=True) if number == session.number else None

    def note(self, session: Session | None, answer: Applied, now: int) -> None:
        """Keep an answer, in case that its request comes again."""
        if session is not None:
            self._last[session.id] = (session.number, answer, now)

    def sweep(self, now: int, limit: int, kept: Sequence[str]) -> CleanupReport | None:
        """Forget so many sessions that are old and none of ``kept``, or return ``None`` where there are none."""
        before = now - SESSION_LASTS
        old = (key for key, (_, _, used_at) in self._last.items() if used_at <= before and key not in kept)
        gone = list(itertools.islice(old, limit))
        for key in gone:
            del self._last[key]
        return CleanupReport(sessions=len(gone)) if gone else None
