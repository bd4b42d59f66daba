"""Beginning, beating and ending attempts, inside a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.backends.answers import Begun
from keepstate.backends.fencing import Verdict
from keepstate.backends.refusals import ended, held, stale
from keepstate.backends.requests import Begin, End, Fence, HeldScope, Holder
from keepstate.backends.sql import statements as sql
from keepstate.backends.sql.scopes import ScopeRow, admit, bury_all, open_scope, verdict_on
from keepstate.clock import optional_datetime, to_datetime
from keepstate.scope import Attempt, check_attempt

if TYPE_CHECKING:
    from keepstate.backends.sql.database import Row, Transaction
    from keepstate.backends.sql.dialects import Dialect


def begin(tx: Transaction, dialect: Dialect, request: Begin) -> Begun:
    """Begin an attempt, or raise ``AlreadyRunningError`` while another one lives."""
    row = open_scope(tx, dialect, request.scope, request.now)
    _refuse_latecomer(tx, row, request)
    if row.deleted:
        admit(tx, dialect, request.scope, row, None, now=request.now, history=request.history)
    if row.try_number is None:
        # whatever ran before its run was deleted, this one is new
        row.attempt_id = None
    elif row.attempt_id == request.attempt_id:
        # the answer to this very request was lost on the way
        return Begun(row.try_number, row.incarnation)
    if row.try_number is not None and not request.take_over:
        _refuse_while_held(tx, row, request)
    lost = tuple(found[0] for found in tx.all(sql.RUNNING_ATTEMPTS, {"id": row.id}))
    number = request.try_number if request.try_number is not None else (row.try_number or 0) + 1
    check_attempt(number)
    fence = Fence(number, request.attempt_id, request.item)
    admit(
        tx,
        dialect,
        request.scope,
        row,
        fence,
        now=request.now,
        history=request.history,
        holder=request.holder,
    )
    return Begun(number, row.incarnation, lost, reset=row.reset)


def _refuse_latecomer(tx: Transaction, row: ScopeRow, request: Begin) -> None:
    """Refuse a request that was sent twice, and arrives again after another attempt began: an id is of one attempt.

    One that asks for the next number would get one, and nobody would know of the attempt that began.
    """
    if request.attempt_id == row.attempt_id and not row.deleted:
        return
    known = tx.one(sql.KNOWN_AS, {"id": row.id, "attempt_id": request.attempt_id})
    if known is not None:
        raise stale(request.scope, Fence(known[0], request.attempt_id), row.standing)


def _refuse_while_held(tx: Transaction, row: ScopeRow, request: Begin) -> None:
    found = tx.one(sql.FIND_ATTEMPT, _key(row))
    if found is None:
        return
    state, host, pid, started, beat_at = found
    dead = request.dead
    known_dead = dead is not None and (dead.try_number, dead.attempt_id) == (row.try_number, row.attempt_id)
    # one that is not held may give signs of life too, but no process need end before another attempt begins
    if (
        host is None
        or state != "running"
        or beat_at is None
        or known_dead
        or request.now - beat_at > request.lease
    ):
        return
    raise held(request, row.standing, Holder(host, pid, started))


def beat(tx: Transaction, dialect: Dialect, scope: HeldScope, fence: Fence, now: int) -> None:
    """Note a sign of life of the current attempt."""
    row = _current_row(tx, dialect, scope, fence, now)
    tx.run(sql.BEAT, {**_key(row), "now": now})


def end(tx: Transaction, dialect: Dialect, request: End) -> None:
    """Record the end of the current attempt."""
    row = _current_row(tx, dialect, request.scope, request.fence, request.now)
    found = tx.one(sql.FIND_ATTEMPT, _key(row))
    if found is not None and found[0] != "running":
        if found[0] != request.state:
            raise ended(request.scope, request.fence, found[0], row.standing)
        # sent again; what was stored since must not be cleared
        return
    tx.run(
        sql.END_ATTEMPT,
        {
            **_key(row),
            "state": request.state,
            "now": request.now,
            "reason": request.reason,
            "result": request.result,
            "arguments": request.arguments,
        },
    )
    tx.run(sql.SET_STATE, {"id": row.id, "state": request.state, "now": request.now})
    if request.clear:
        bury_all(tx, row, action="clear", now=request.now, writer=None, history=request.history)


def _current_row(tx: Transaction, dialect: Dialect, scope: HeldScope, fence: Fence, now: int) -> ScopeRow:
    row = open_scope(tx, dialect, scope, now)
    if verdict_on(tx, row, fence, now) is not Verdict.CURRENT:
        raise stale(scope, fence, row.standing)
    return row


def _key(row: ScopeRow) -> dict[str, object]:
    """Name the attempt that the scope stands at; a fence may leave out its id."""
    return {
        "id": row.id,
        "incarnation": row.incarnation,
        "try_number": row.try_number,
        "attempt_id": row.attempt_id or "",
    }


def attempt_of(row: Row) -> Attempt:
    """Read a row of ``ATTEMPTS``."""
    try_number, attempt_id, incarnation, state, host, pid, started_at, beat_at, ended_at, reason, born = row
    return Attempt(
        try_number=try_number,
        attempt_id=attempt_id or None,
        incarnation=incarnation,
        state=state,
        host=host,
        pid=pid,
        started_at=to_datetime(started_at),
        beat_at=optional_datetime(beat_at),
        ended_at=optional_datetime(ended_at),
        reason=reason,
        process_started=born,
    )
