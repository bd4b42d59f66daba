"""What the database keeps of numbered requests, so that one whose answer was lost on the way applies once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.backends.answers import Applied
from keepstate.backends.refusals import out_of_order
from keepstate.backends.sql import statements as sql

if TYPE_CHECKING:
    from keepstate.backends.requests import Session
    from keepstate.backends.sql.database import Transaction


def find_repeated(tx: Transaction, session: Session | None, address: str) -> Applied | None:
    """Return the answer given before, where this request was applied before. The scope's row is locked."""
    if session is None:
        return None
    found = tx.one(sql.FIND_SESSION, {"session": session.id})
    if found is None or found[0] < session.number:
        return None
    if found[0] > session.number:
        raise out_of_order(session, found[0], address)
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
