"""Cleanup, one bounded transaction at a time: entries with their log, idle scopes, and old sessions."""

from __future__ import annotations

from collections.abc import Callable

from keepstate.backends.sql import statements as sql
from keepstate.backends.sql.database import Params, Row, Transaction
from keepstate.backends.sql.lists import erase_contents
from keepstate.clock import DAY
from keepstate.scope import CleanupReport

# no client tries a request again for this long
_SESSION_LASTS = DAY
# how soon a scope that may not go yet is looked at again, where no idle time is set
_LOOK_AGAIN = 30 * DAY


def sweep_entries(tx: Transaction, *, now: int, idle: int | None, limit: int) -> CleanupReport | None:
    """Remove entries and versions whose time has come; ``None`` when nothing was due."""
    del idle
    due = tx.all(sql.DUE_ENTRIES, {"now": now, "limit": limit})
    if not due:
        return None
    entries = history = 0
    for scope_id, key, _ in due:
        params = {"scope_id": scope_id, "key": key, "now": now}
        if tx.run(sql.ERASE_EXPIRED_ENTRY, params):
            entries += 1
            history += tx.run(sql.ERASE_LOG_OF_KEY, {"scope_id": scope_id, "key": key})
        else:
            history += tx.run(sql.ERASE_EXPIRED_LOG, params)
            tx.run(sql.RESCHEDULE_SWEEP, {"scope_id": scope_id, "key": key})
    return CleanupReport(entries=entries, history=history)


def sweep_scopes(tx: Transaction, *, now: int, idle: int | None, limit: int) -> CleanupReport | None:
    """Remove scopes that hold nothing and have idled, and those of deleted runs; ``None`` when nothing was due."""
    due = tx.all(sql.DUE_SCOPES, {"now": now, "limit": limit})
    if not due:
        return None
    scopes = attempts = 0
    for row in due:
        scope_id, updated_at = row[0], row[3]
        again = _stays_until(tx, row, now, idle)
        if again is None and tx.run(sql.ERASE_IDLE_SCOPE, {"id": scope_id, "updated_at": updated_at}):
            scopes += 1
            attempts += erase_contents(tx, scope_id)
        else:
            tx.run(sql.POSTPONE_SCOPE, {"id": scope_id, "sweep_at": again or now + _LOOK_AGAIN})
    return CleanupReport(scopes=scopes, attempts=attempts)


def _stays_until(tx: Transaction, row: Row, now: int, idle: int | None) -> int | None:
    """Return when to look at a scope again, or ``None`` when it may go now."""
    scope_id, kind, deleted, updated_at, state, holds_entries, run_has_tasks = row
    if deleted:
        return None
    wait = idle or _LOOK_AGAIN
    if kind == "asset" or idle is None or holds_entries or (kind == "run" and run_has_tasks):
        return int(now + wait)
    if updated_at + wait > now:
        return int(updated_at + wait)
    if state == "running":
        beat = tx.one(sql.LAST_BEAT, {"id": scope_id})
        if beat and beat[0] is not None and beat[0] + wait > now:
            return int(beat[0] + wait)
    return None


def sweep_sessions(tx: Transaction, *, now: int, idle: int | None, limit: int) -> CleanupReport | None:
    """Remove sessions whose client is long gone; ``None`` when nothing was due."""
    del idle, limit
    gone = tx.run(sql.ERASE_OLD_SESSIONS, {"before": now - _SESSION_LASTS})
    return CleanupReport(sessions=gone) if gone else None


STEPS = (sweep_entries, sweep_scopes, sweep_sessions)


def count(query: Callable[[str, Params], list[Row]], *, now: int, idle: int | None) -> CleanupReport:
    """Count what a cleanup would remove. Scopes that only entries keep alive are counted once those are gone."""
    entries = query(sql.COUNT_EXPIRED_ENTRIES, {"now": now})[0][0]
    history = query(sql.COUNT_DUE_LOG, {"now": now})[0][0]
    before = now - idle if idle is not None else -1
    scopes, attempts = query(sql.COUNT_IDLE_SCOPES, {"now": now, "before": before})[0]
    sessions = query(sql.COUNT_OLD_SESSIONS, {"before": now - _SESSION_LASTS})[0][0]
    return CleanupReport(entries, history, scopes, attempts, sessions, dry_run=True)
