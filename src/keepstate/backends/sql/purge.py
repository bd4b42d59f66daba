"""Cleanup, one bounded transaction at a time: entries with their log, idle scopes, and old sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from keepstate.backends.sql import statements as sql
from keepstate.backends.sql.database import Params, Row, Transaction
from keepstate.backends.sql.lists import erase_contents
from keepstate.clock import DAY
from keepstate.scope import CleanupReport, RunScope

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

# no client tries a request again for this long
_SESSION_LASTS = DAY
# how soon a scope that may not go yet is looked at again, where no idle time is set
_LOOK_AGAIN = 30 * DAY


Query = Callable[[str, Params], list[Row]]
Write = Callable[[Callable[[Transaction], CleanupReport]], CleanupReport]


# Each step looks for what is due by a mere read: where nothing is, no writer has to wait, and a store that can't be
# written just now is no trouble.


def sweep_entries(query: Query, write: Write, *, now: int, limit: int) -> CleanupReport | None:
    """Remove entries and versions whose time has come; ``None`` when nothing was due."""
    due = query(sql.DUE_ENTRIES, {"now": now, "limit": limit})
    return write(lambda tx: _erase_entries(tx, due, now)) if due else None


def _erase_entries(tx: Transaction, due: list[Row], now: int) -> CleanupReport:
    entries = history = 0
    emptied: dict[int, None] = {}
    for scope_id, key, log_limit in due:
        params = {"scope_id": scope_id, "key": key, "now": now, "keep": log_limit}
        if tx.run(sql.ERASE_EXPIRED_ENTRY, params):
            entries += 1
            history += tx.run(sql.ERASE_LOG_OF_KEY, params)
            emptied[scope_id] = None
        else:
            # first what a write would have trimmed by now: it must not come back when newer rows are gone
            erased = tx.run(sql.TRIM_LOG, params) + tx.run(sql.ERASE_EXPIRED_LOG, params)
            tx.run(sql.RESCHEDULE_SWEEP, {**params, "erased": erased})
            history += erased
    for scope_id in emptied:
        tx.run(sql.SWEEP_EMPTIED_SCOPE, {"scope_id": scope_id, "now": now})
    return CleanupReport(entries=entries, history=history)


def sweep_scopes(
    query: Query, write: Write, *, now: int, limit: int, idle: int | None
) -> CleanupReport | None:
    """Remove scopes that hold nothing and have idled, and those of deleted runs; ``None`` when nothing was due.

    A run outlasts its task instances by one cleanup, however the batches fall.
    """
    due = query(sql.DUE_SCOPES, {"now": now, "limit": limit})
    return write(lambda tx: _erase_scopes(tx, due, now, idle)) if due else None


def _erase_scopes(tx: Transaction, due: list[Row], now: int, idle: int | None) -> CleanupReport:
    scopes = attempts = 0
    left: dict[RunScope, None] = {}
    for scope_id, kind, deleted, updated_at, state, dag_id, run_id, holds_entries, run_has_tasks in due:
        stays = holds_entries or (kind == "run" and run_has_tasks)
        again = None if deleted else _stays_until(tx, scope_id, updated_at, state, now, idle, stays=stays)
        if again is None and tx.run(sql.ERASE_IDLE_SCOPE, {"id": scope_id, "updated_at": updated_at}):
            scopes += 1
            attempts += erase_contents(tx, scope_id)
            if kind == "task":
                left[RunScope(dag_id, run_id)] = None
        else:
            tx.run(sql.POSTPONE_SCOPE, {"id": scope_id, "sweep_at": again or now + _LOOK_AGAIN})
    for run in left:
        tx.run(sql.SWEEP_RUN, {"digest": run.digest, "sweep_at": now + 1})
    return CleanupReport(scopes=scopes, attempts=attempts)


def _stays_until(
    tx: Transaction,
    scope_id: int,
    updated_at: int,
    state: str | None,
    now: int,
    idle: int | None,
    *,
    stays: bool,
) -> int | None:
    """Return when to look at a scope again, or ``None`` when it may go now."""
    if idle is None or stays:
        return now + (idle or _LOOK_AGAIN)
    if updated_at + idle > now:
        return updated_at + idle
    if state == "running":
        beat = tx.one(sql.LAST_BEAT, {"id": scope_id})
        if beat and beat[0] is not None and beat[0] + idle > now:
            return int(beat[0] + idle)
    return None


def sweep_sessions(
    query: Query, write: Write, *, now: int, limit: int, own: AbstractSet[str]
) -> CleanupReport | None:
    """Remove sessions whose client is long gone, which those of this process are not; ``None`` when nothing was due."""
    before = now - _SESSION_LASTS
    old = query(sql.OLD_SESSIONS, {"before": before, "limit": limit + len(own)})
    due = [row[0] for row in old if row[0] not in own][:limit]
    return write(lambda tx: _erase_sessions(tx, due, before)) if due else None


def _erase_sessions(tx: Transaction, due: list[str], before: int) -> CleanupReport:
    return CleanupReport(
        sessions=sum(tx.run(sql.ERASE_OLD_SESSION, {"id": one, "before": before}) for one in due)
    )


def count(query: Query, *, now: int, idle: int | None, own: AbstractSet[str]) -> CleanupReport:
    """Count what a cleanup would remove."""
    entries = query(sql.COUNT_EXPIRED_ENTRIES, {"now": now})[0][0]
    history = query(sql.COUNT_DUE_LOG, {"now": now})[0][0]
    before = now - idle if idle is not None else -1
    scopes, attempts = query(sql.COUNT_IDLE_SCOPES, {"now": now, "before": before})[0]
    old = query(sql.OLD_SESSIONS, {"before": now - _SESSION_LASTS, "limit": 2**31 - 1})
    sessions = sum(row[0] not in own for row in old)
    return CleanupReport(entries, history, scopes, attempts, sessions, dry_run=True)
