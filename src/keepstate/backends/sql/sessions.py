"""Numbering requests, so that one whose answer was lost on the way applies once (Raft's client sessions)."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from keepstate.backends.base import Applied, Session
from keepstate.backends.sql import statements as sql
from keepstate.errors import BackendError

if TYPE_CHECKING:
    from keepstate.backends.sql.database import Transaction


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


def find_repeated(tx: Transaction, session: Session | None, address: str) -> Applied | None:
    """Return the answer given before, where this request was applied before. The scope's row is locked."""
    if session is None:
        return None
    found = tx.one(sql.FIND_SESSION, {"session": session.id})
    if found is None or found[0] < session.number:
        return None
    if found[0] > session.number:
        raise BackendError(
            f"request {session.number} came after request {found[0]} of the same client session, and was not applied "
            "(again); a session's requests must come one after another",
            address=address,
        )
    return Applied(found[1], found[2], repeated=True)


def note(tx: Transaction, session: Session | None, done: Applied, now: int) -> None:
    """Keep the number of a request and its result, in the transaction that it changes."""
    if session is not None:
        tx.run(
            sql.NOTE_SESSION,
            {
                "session": session.id,
                "number": session.number,
                "version": done.version,
                "incarnation": done.incarnation,
                "now": now,
            },
        )
