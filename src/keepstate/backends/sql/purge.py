"""Cleanup, one bounded transaction at a time: entries with their log, idle scopes, and old sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from keepstate.backends.sessions import SESSION_LASTS
from keepstate.backends.sql import cleanup_statements as sql
from keepstate.backends.sql import statements
from keepstate.backends.sql.database import Params, Row, Transaction
from keepstate.backends.sql.entries import reschedule
from keepstate.clock import DAY
from keepstate.scope import CleanupReport, RunScope

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from keepstate.backends.sql.dialects import Dialect

# how soon a scope that may not go yet is looked at again, where no idle time is set
_LOOK_AGAIN = 30 * DAY


Query = Callable[[str, Params], list[Row]]
Step = Callable[[Transaction], CleanupReport]
Write = Callable[[Step], CleanupReport]


# Each step looks for what is due by a mere read: where nothing is, no writer has to wait, and a store that can't be
# written just now is no trouble.


def sweep_entries(
    query: Query, write: Write, dialect: Dialect, *, now: int, limit: int
) -> Iterator[CleanupReport]:
    """Remove entries and versions whose time has come, so many at a time."""
    since = 0
    while due := query(sql.DUE_ENTRIES, {"now": now, "since": since, "limit": limit}):
        emptied = list(dict.fromkeys(scope_id for scope_id, _, _, is_over, _ in due if is_over))
        erase = partial(_erase_entries, dialect=dialect, due=due, now=now)
        wake = partial(_wake_emptied, dialect=dialect, scope_ids=emptied, now=now)
        if dialect.one_writer:
            report = write(partial(_in_one, erase, wake))
        else:
            # Apart from the erasing: who writes locks the scope first and its entries then, and each would wait for the
            # other. Where this is not reached, the scopes go at their own time.
            report = write(erase)
            if emptied:
                write(wake)
        yield report
        since = due[-1][-1]


def _in_one(first: Step, second: Step, tx: Transaction) -> CleanupReport:
    """Take two steps in one transaction; return what the first removed."""
    report = first(tx)
    second(tx)
    return report


def _erase_entries(tx: Transaction, *, dialect: Dialect, due: list[Row], now: int) -> CleanupReport:
    over: list[dict[str, Any]] = []
    standing: list[dict[str, Any]] = []
    for scope_id, key, log_limit, is_over, _ in due:
        one = {"scope_id": scope_id, "key": key, "now": now, "keep": log_limit}
        (over if is_over else standing).append(one)
    entries, history = _erase_expired(tx, dialect, over, now)
    for one in standing:
        # first what a write would have trimmed by now: it must not come back when newer rows are gone
        erased = tx.run(statements.TRIM_LOG, one) + tx.run(sql.ERASE_EXPIRED_LOG, one)
        reschedule(tx, dialect, one)
        history += erased
    return CleanupReport(entries=entries, history=history)


def _erase_expired(
    tx: Transaction, dialect: Dialect, over: list[dict[str, Any]], now: int
) -> tuple[int, int]:
    """Erase entries that are still expired, with their log; return how many rows of each there were."""
    if not dialect.takes_arrays:
        return tx.run_many(sql.ERASE_EXPIRED_ENTRY, over), tx.run_many(sql.ERASE_LOG_OF_ERASED, over)
    arrays = {"scope_ids": [one["scope_id"] for one in over], "keys": [one["key"] for one in over]}
    counts = tx.one(sql.ERASE_EXPIRED_OF_ALL, {**arrays, "now": now})
    return (counts[0], counts[1]) if counts else (0, 0)


def _wake_emptied(tx: Transaction, *, dialect: Dialect, scope_ids: list[int], now: int) -> CleanupReport:
    """Have scopes looked at in this cleanup whose last entry has gone."""
    if dialect.takes_arrays:
        tx.run(sql.SWEEP_ALL_EMPTIED_SCOPES, {"scope_ids": scope_ids, "now": now})
    else:
        tx.run_many(sql.SWEEP_EMPTIED_SCOPE, [{"scope_id": one, "now": now} for one in scope_ids])
    return CleanupReport()


def sweep_scopes(
    query: Query, write: Write, dialect: Dialect, *, now: int, limit: int, idle: int | None
) -> Iterator[CleanupReport]:
    """Remove scopes that hold nothing and have idled, and those of deleted runs, so many at a time.

    A run outlasts its task instances by one cleanup, however the batches fall.
    """
    since = 0
    while due := query(sql.DUE_SCOPES, {"now": now, "since": since, "limit": limit}):
        yield write(partial(_erase_scopes, dialect=dialect, due=due, now=now, idle=idle))
        since = due[-1][-1]


def _erase_scopes(
    tx: Transaction, *, dialect: Dialect, due: list[Row], now: int, idle: int | None
) -> CleanupReport:
    going: list[dict[str, Any]] = []
    staying: list[dict[str, Any]] = []
    left: dict[RunScope, None] = {}
    for scope_id, kind, deleted, updated_at, state, dag_id, run_id, holds_entries, run_has_tasks, _ in due:
        stays = holds_entries or (kind == "run" and run_has_tasks)
        again = None if deleted else _stays_until(tx, scope_id, updated_at, state, now, idle, stays=stays)
        if again is not None:
            staying.append({"id": scope_id, "sweep_at": again})
            continue
        run = RunScope(dag_id, run_id)
        if kind == "run" and not deleted and _has_tasks_now(tx, dialect, run):
            continue
        going.append({"id": scope_id, "updated_at": updated_at})
        if kind == "task":
            left[run] = None
    # what was changed since it was listed is still there, with what it holds, for the next cleanup to look at
    scopes = tx.run_many(sql.ERASE_IDLE_SCOPE, going)
    attempts = tx.run_many(sql.ERASE_ATTEMPTS_OF_ERASED, going)
    tx.run_many(sql.ERASE_ENTRIES_OF_ERASED, going)
    tx.run_many(sql.ERASE_LOG_OF_ERASED_SCOPE, going)
    tx.run_many(sql.POSTPONE_SCOPE, staying)
    tx.run_many(sql.SWEEP_RUN, [{"digest": run.digest, "sweep_at": now + 1} for run in left])
    return CleanupReport(scopes=scopes, attempts=attempts)


def _has_tasks_now(tx: Transaction, dialect: Dialect, run: RunScope) -> bool:
    """Whether a run has got a task instance since it was listed. Who adds one locks the run's row, as this does."""
    tx.one(dialect.render(statements.LOCK_SCOPE), {"digest": run.digest})
    return tx.one(sql.ANY_TASK_OF_RUN, {"dag_id": run.dag_id, "run_id": run.run_id}) is not None


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
) -> Iterator[CleanupReport]:
    """Remove sessions whose client is long gone, which those of this process are not, so many at a time."""
    before = now - SESSION_LASTS
    while True:
        old = query(sql.OLD_SESSIONS, {"before": before, "limit": limit + len(own)})
        due = [row[0] for row in old if row[0] not in own][:limit]
        if not due:
            return
        yield write(partial(_erase_sessions, due=due, before=before))


def _erase_sessions(tx: Transaction, *, due: list[str], before: int) -> CleanupReport:
    rows = [{"id": one, "before": before} for one in due]
    return CleanupReport(sessions=tx.run_many(sql.ERASE_OLD_SESSION, rows))


def count(query: Query, *, now: int, idle: int | None, own: AbstractSet[str]) -> CleanupReport:
    """Count what a cleanup would remove."""
    entries = query(sql.COUNT_EXPIRED_ENTRIES, {"now": now})[0][0]
    history = query(sql.COUNT_DUE_LOG, {"now": now})[0][0]
    before = now - idle if idle is not None else -1
    scopes, attempts = query(sql.COUNT_IDLE_SCOPES, {"now": now, "before": before})[0]
    old = query(sql.OLD_SESSIONS, {"before": now - SESSION_LASTS, "limit": 2**31 - 1})
    sessions = sum(row[0] not in own for row in old)
    return CleanupReport(entries, history, scopes, attempts, sessions, dry_run=True)
