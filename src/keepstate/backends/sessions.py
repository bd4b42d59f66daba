"""Numbering requests, so that one whose answer was lost on the way applies once (Raft's client sessions)."""

from __future__ import annotations

import uuid

from keepstate.backends.requests import Session
from keepstate.clock import DAY

SESSION_LASTS = DAY
"""How long the answer to a session's last request is kept: no client tries one again for this long."""


class Sessions:
    """Lends sessions to requests: one at a time each, as the requests of a session come one after another.

    There are as many as there were requests at once. One per thread would be simpler, but leaves a row in the database
    for every thread that ever was, and a request made within another (by a finaliser) would come out of order.
    """

    def __init__(self) -> None:
        self._idle: list[Session] = []

    def ids(self) -> set[str]:
        """Return the ids of the sessions that wait for their next request."""
        return {session.id for session in list(self._idle)}

    def lend(self) -> Session:
        """Return the next number of a session that nobody else uses; it counts as used, whatever becomes of it."""
        try:
            last = self._idle.pop()
        except IndexError:
            last = Session(str(uuid.uuid4()), 0)
        return Session(last.id, last.number + 1)

    def take_back(self, session: Session) -> None:
        """Have the session serve the next request."""
        self._idle.append(session)
