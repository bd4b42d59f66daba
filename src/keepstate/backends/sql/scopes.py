"""Opening a scope's row inside a transaction, and admitting or refusing the attempt that asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.backends.fencing import Standing, Verdict, end_of_superseded, judge, outlived
from keepstate.backends.refusals import stale
from keepstate.backends.sql import assets
from keepstate.backends.sql import statements as sql
from keepstate.backends.sql.database import TransientError
from keepstate.clock import DAY
from keepstate.scope import AssetScope, RunScope, Scope, TaskScope

if TYPE_CHECKING:
    from keepstate.backends.requests import EntryScope, Fence, HeldScope, HistoryPolicy, Holder
    from keepstate.backends.sql.database import Row, Transaction
    from keepstate.backends.sql.dialects import Dialect


@dataclass
class ScopeRow:
    """A scope's row, locked; ``version`` and ``incarnation`` move along with what the transaction does."""

    id: int
    version: int
    incarnation: int
    try_number: int | None
    attempt_id: str | None
    item: str | None
    deleted: bool
    state: str | None
    reset: bool = False

    @classmethod
    def of(cls, row: Row) -> ScopeRow:
        """Read the columns of ``SCOPE_COLUMNS``."""
        return cls(row[0], row[1], row[2], row[3], row[4], row[5], bool(row[6]), row[7])

    @property
    def standing(self) -> Standing:
        """The attempt that the scope stands at."""
        return Standing(self.try_number, self.attempt_id, self.incarnation, self.item, self.deleted)


def open_scope(tx: Transaction, dialect: Dialect, scope: Scope, now: int) -> ScopeRow:
    """Lock the scope's row, and make it first where there is none."""
    if isinstance(scope, AssetScope):
        return ScopeRow.of(assets.lock(tx, dialect, scope, now))
    lock = dialect.render(sql.LOCK_SCOPE)
    row = tx.one(lock, {"digest": scope.digest})
    if row is None:
        _create(tx, scope, now)
        row = tx.one(lock, {"digest": scope.digest})
        if row is None:
            raise TransientError("a cleanup removed the task instance in the meantime")
        _list_run(tx, dialect, scope, now)
    return ScopeRow.of(row)


def open_known(tx: Transaction, dialect: Dialect, scope: EntryScope) -> ScopeRow | None:
    """Lock the scope's row, or return ``None`` where there is none, or its run was deleted. Nothing is made."""
    if isinstance(scope, AssetScope):
        found = assets.lock_known(tx, dialect, scope)
    else:
        found = tx.one(dialect.render(sql.LOCK_SCOPE), {"digest": scope.digest})
    row = ScopeRow.of(found) if found is not None else None
    return None if row is None or row.deleted else row


def _create(tx: Transaction, scope: TaskScope | RunScope, now: int) -> None:
    task_id, map_index = (scope.task_id, scope.map_index) if isinstance(scope, TaskScope) else (None, None)
    tx.run(
        sql.CREATE_SCOPE,
        {
            "digest": scope.digest,
            "kind": "run" if task_id is None else "task",
            "dag_id": scope.dag_id,
            "run_id": scope.run_id,
            "task_id": task_id,
            "map_index": map_index,
            "now": now,
            # idle times are whole days, so no scope may go sooner; nor a run before the task instance that it came with
            "sweep_at": now + DAY + (task_id is None),
        },
    )


def _list_run(tx: Transaction, dialect: Dialect, scope: Scope, now: int) -> None:
    """Have the run of a task instance in the list of runs, whoever began it, and after a deletion too.

    Who deletes the run locks its row first, and then all that it finds in it: either it finds this task instance, or this
    waits for it, and finds the run deleted.
    """
    if isinstance(scope, TaskScope):
        run = RunScope(scope.dag_id, scope.run_id)
        _create(tx, run, now)
        if tx.one(dialect.render(sql.LOCK_SCOPE), {"digest": run.digest}) is None:
            raise TransientError("a cleanup removed the run in the meantime")
        tx.run(sql.REVIVE_RUN, {"digest": run.digest, "now": now})


# ------------------------------------------------------------------------------------------------ fencing


def admit(
    tx: Transaction,
    dialect: Dialect,
    scope: EntryScope | HeldScope,
    row: ScopeRow,
    fence: Fence | None,
    *,
    now: int,
    history: HistoryPolicy,
    holder: Holder | None = None,
) -> None:
    """Let the attempt in, registering it if it is the newest, or raise ``StaleAttemptError``.

    Without a fence a person asks, who is let in always. ``row`` is brought up to date.
    """
    if fence is None:
        if row.deleted:
            tx.run(sql.REVIVE_SCOPE, {"id": row.id, "now": now})
            _list_run(tx, dialect, scope, now)
            # the id of the last attempt stays: who has an older one ran before the deletion
            row.incarnation += 1
            row.deleted, row.try_number, row.item, row.state = False, None, None, None
        return
    verdict = verdict_on(tx, row, fence, now)
    if verdict is Verdict.STALE:
        raise stale(scope, fence, row.standing)
    if verdict is Verdict.CURRENT and holder is None:
        if row.standing.lacks_item(fence):
            row.item = fence.item
            tx.run(sql.NOTE_ITEM, {"id": row.id, "item": row.item})
        return
    item_changed = row.standing.at_other_item(fence) and verdict is not Verdict.CURRENT
    row.incarnation = max(row.incarnation, fence.incarnation or 0)
    if verdict is Verdict.NEW_INCARNATION or item_changed:
        row.reset = item_changed and verdict is not Verdict.NEW_INCARNATION
        row.incarnation += 1
        row.item = None
        start_empty(tx, row, now, history)
    if row.deleted:
        _list_run(tx, dialect, scope, now)
    _seat(tx, row, fence, now, holder)


def verdict_on(tx: Transaction, row: ScopeRow, fence: Fence, now: int) -> Verdict:
    """Ask `judge`, with the attempt table as its memory."""
    return judge(row.standing, fence, lambda: known_in(tx, row, fence), now)


def known_in(tx: Transaction, row: ScopeRow, fence: Fence) -> int | None:
    """Return the incarnation in which exactly this attempt registered, if it has an id and did."""
    if fence.attempt_id is None:
        return None
    found = tx.one(
        sql.KNOWN_IN, {"id": row.id, "try_number": fence.try_number, "attempt_id": fence.attempt_id}
    )
    return int(found[0]) if found else None


def admit_reader(
    tx: Transaction,
    dialect: Dialect,
    scope: EntryScope,
    row: ScopeRow,
    fence: Fence,
    *,
    now: int,
    history: HistoryPolicy,
) -> None:
    """Register an attempt that reads, if it is the newest; refuse it only if its incarnation is over."""
    if verdict_on(tx, row, fence, now) is not Verdict.STALE:
        admit(tx, dialect, scope, row, fence, now=now, history=history)
    elif outlived(row.standing, fence, known_in(tx, row, fence)):
        raise stale(scope, fence, row.standing)


def start_empty(tx: Transaction, row: ScopeRow, now: int, history: HistoryPolicy) -> None:
    """Move all entries to the history, as nobody's writing: the beginning of a new incarnation."""
    bury_all(tx, row, action="reset", now=now, writer=None, history=history)


def bury_all(
    tx: Transaction, row: ScopeRow, *, action: str, now: int, writer: str | None, history: HistoryPolicy
) -> None:
    """Remove every live entry, if there is any, under one new version; the history stays for its days."""
    if tx.one(sql.ANY_LIVE, {"scope_id": row.id, "now": now}) is None:
        return
    row.version += 1
    tx.run(sql.BUMP_SCOPE, {"id": row.id, "version": row.version, "now": now})
    if history.days == 0 or history.limit == 0:
        tx.run(sql.ERASE_ALL_ENTRIES, {"scope_id": row.id})
        tx.run(sql.ERASE_LOG, {"scope_id": row.id})
        return
    params = {
        "scope_id": row.id,
        "version": row.version,
        "action": action,
        "now": now,
        "lapses_at": now + history.days * DAY,
        "limit": history.limit,
        "writer": writer,
    }
    tx.run(sql.LOG_REMOVAL_OF_ALL, params)
    tx.run(sql.BURY_ALL_ENTRIES, params)


def _seat(tx: Transaction, row: ScopeRow, fence: Fence, now: int, holder: Holder | None) -> None:
    if row.try_number is not None:
        state, reason = end_of_superseded(fence, holder)
        tx.run(sql.CLOSE_SUPERSEDED, {"id": row.id, "now": now, "state": state, "reason": reason})
    row.try_number, row.attempt_id, row.state, row.deleted = (
        fence.try_number,
        fence.attempt_id,
        "running",
        False,
    )
    row.item = fence.item if fence.item is not None else row.item
    seat = {
        "id": row.id,
        "try_number": row.try_number,
        "attempt_id": row.attempt_id,
        "incarnation": row.incarnation,
        "item": row.item,
        "state": row.state,
        "now": now,
    }
    tx.run(sql.SEAT_ATTEMPT, seat)
    tx.run(
        sql.REGISTER_ATTEMPT,
        {
            **seat,
            "attempt_id": fence.attempt_id or "",
            "host": holder.host if holder else None,
            "pid": holder.pid if holder else None,
            "process_started": holder.started if holder else None,
            "beat_at": now if holder else None,
        },
    )
