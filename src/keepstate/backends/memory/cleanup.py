"""What a cleanup removes, one batch at a time: entries with their log, and idle scopes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from keepstate.scope import CleanupReport, RunScope, TaskScope

if TYPE_CHECKING:
    from keepstate.backends.memory.records import Records
    from keepstate.scope import Scope


def runs_with_tasks(records: Records) -> set[Scope]:
    """Return the runs that a cleanup spares: each outlasts its task instances by one, however the batches fall."""
    with records.lock:
        return {RunScope(one.dag_id, one.run_id) for one in records.kept if isinstance(one, TaskScope)}


def sweep_entries(records: Records, now: int, limit: int) -> CleanupReport | None:
    """Remove so many entries and versions whose time has come, or return ``None`` where there are none."""
    with records.lock:
        due = ((record, key) for record in records.kept.values() for key in record.due(now))
        swept = [record.sweep(key, now) for record, key in list(itertools.islice(due, limit))]
    entries, history = (sum(counts) for counts in zip(*swept, strict=True)) if swept else (0, 0)
    return CleanupReport(entries=entries, history=history) if swept else None


def sweep_scopes(
    records: Records, now: int, limit: int, idle: int | None, spared: set[Scope]
) -> CleanupReport | None:
    """Remove so many scopes that hold nothing and have idled, or return ``None`` where there are none."""
    with records.lock:
        due = (
            record
            for scope, record in records.kept.items()
            if record.may_go(now, idle) and (record.standing.deleted or scope not in spared)
        )
        gone = list(itertools.islice(due, limit))
        for record in gone:
            del records.kept[record.scope]
    attempts = sum(len(record.attempts) for record in gone)
    return CleanupReport(scopes=len(gone), attempts=attempts) if gone else None
