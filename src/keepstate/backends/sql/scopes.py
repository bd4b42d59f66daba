"""Opening a scope's row inside a transaction, and admitting or refusing the attempt that asks."""

from __future__ import annotations

from dataclasses import dataclass

from keepstate.backends.base import (
    EntryScope,
    Fence,
    HeldScope,
    HistoryPolicy,
    Holder,
    Standing,
    Verdict,
    judge,
    outlived,
    stale,
)
from keepstate.backends.sql import statements as sql
from keepstate.backends.sql.database import Row, Transaction
from keepstate.backends.sql.dialects import Dialect
from keepstate.clock import DAY
from keepstate.errors import InvalidIdError
from keepstate.scope import AssetScope, RunScope, Scope, TaskScope, asset_digest


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


def digest_of(scope: Scope) -> bytes:
    """Return the digest under which a scope's row is found; for an asset known by uri alone, ask `find_asset`."""
    if isinstance(scope, AssetScope):
        name = scope.name if scope.name is not None else scope.uri
        assert name is not None  # noqa: S101 - AssetScope refuses to be without both
        return asset_digest("name", name)
    return scope.digest


def open_scope(tx: Transaction, dialect: Dialect, scope: Scope, now: int) -> ScopeRow:
    """Lock the scope's row, and make it first where there is none."""
    if isinstance(scope, AssetScope):
        return _open_asset(tx, dialect, scope, now)
    return _open(tx, dialect, scope, scope.digest, now)


def _open(tx: Transaction, dialect: Dialect, scope: Scope, digest: bytes, now: int) -> ScopeRow:
    lock = dialect.render(sql.LOCK_SCOPE)
    row = tx.one(lock, {"digest": digest})
    if row is None:
        _create(tx, scope, digest, now)
        row = tx.one(lock, {"digest": digest})
        assert row is not None  # noqa: S101 - made a line above, in this transaction
        if isinstance(scope, TaskScope):
            # lists of runs read one row per run, whoever began it
            run = RunScope(scope.dag_id, scope.run_id)
            _create(tx, run, run.digest, now)
    return ScopeRow.of(row)


def _create(tx: Transaction, scope: Scope, digest: bytes, now: int) -> None:
    is_task = isinstance(scope, TaskScope)
    tx.run(
        sql.CREATE_SCOPE,
        {
            "digest": digest,
            "kind": "task" if is_task else "run" if isinstance(scope, RunScope) else "asset",
            "dag_id": getattr(scope, "dag_id", None),
            "run_id": getattr(scope, "run_id", None),
            "task_id": getattr(scope, "task_id", None),
            "map_index": getattr(scope, "map_index", None),
            "now": now,
        },
    )


# ------------------------------------------------------------------------------------------------- assets


def _open_asset(tx: Transaction, dialect: Dialect, scope: AssetScope, now: int) -> ScopeRow:
    known = _settle_names(tx, scope)
    name = known[1] if known else scope.name if scope.name is not None else scope.uri
    assert name is not None  # noqa: S101 - AssetScope refuses to be without both
    row = _open(tx, dialect, scope, asset_digest("name", name), now)
    if known is None:
        # the scope's row is locked, so whoever else met the new asset at the same time has finished
        if tx.one(sql.ASSET_BY_NAME, {"digest": asset_digest("name", name)}) is None:
            tx.run(
                sql.CREATE_ASSET, _asset_params(row.id, name, scope.uri if scope.uri is not None else name)
            )
    return row


def _settle_names(tx: Transaction, scope: AssetScope) -> Row | None:
    """Find the asset, and write down what is now known of its name and uri."""
    by_name = tx.one(sql.ASSET_BY_NAME, {"digest": asset_digest("name", scope.name)}) if scope.name else None
    by_uri = tx.one(sql.ASSET_BY_URI, {"digest": asset_digest("uri", scope.uri)}) if scope.uri else None
    if scope.name is None or scope.uri is None:
        return by_name or by_uri
    if by_name and by_uri and by_name[0] != by_uri[0]:
        raise InvalidIdError(
            f"the asset named {scope.name!r} has the uri {by_name[2]!r}, and the uri {scope.uri!r} belongs to the asset "
            f"named {by_uri[1]!r}; delete one of them, or name it as it is known"
        )
    known = by_name or by_uri
    if known and (known[1], known[2]) != (scope.name, scope.uri):
        tx.run(sql.RENAME_ASSET, _asset_params(known[0], scope.name, scope.uri))
        tx.run(sql.REDIGEST_SCOPE, {"id": known[0], "digest": asset_digest("name", scope.name)})
        return (known[0], scope.name, scope.uri)
    return known


def _asset_params(scope_id: int, name: str, uri: str) -> dict[str, object]:
    return {
        "id": scope_id,
        "name": name,
        "uri": uri,
        "name_digest": asset_digest("name", name),
        "uri_digest": asset_digest("uri", uri),
    }


# ------------------------------------------------------------------------------------------------ fencing


def admit(
    tx: Transaction,
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
            row.incarnation += 1
            row.deleted, row.try_number, row.attempt_id, row.item, row.state = False, None, None, None, None
        return
    verdict = verdict_on(tx, row, fence)
    if verdict is Verdict.STALE:
        raise stale(scope, fence, row.standing)
    if verdict is Verdict.CURRENT and holder is None:
        return
    item_changed = (
        None not in (fence.item, row.item) and fence.item != row.item and verdict is not Verdict.CURRENT
    )
    if verdict is Verdict.NEW_INCARNATION or item_changed:
        row.reset = item_changed and verdict is not Verdict.NEW_INCARNATION
        row.incarnation += 1
        row.item = None
        start_empty(tx, row, now, history)
    _seat(tx, row, fence, now, holder)


def verdict_on(tx: Transaction, row: ScopeRow, fence: Fence) -> Verdict:
    """Ask `judge`, with the attempt table as its memory."""
    return judge(row.standing, fence, lambda: known_in(tx, row, fence))


def known_in(tx: Transaction, row: ScopeRow, fence: Fence) -> int | None:
    """Return the incarnation in which exactly this attempt registered, if it has an id and did."""
    if fence.attempt_id is None:
        return None
    found = tx.one(
        sql.KNOWN_IN, {"id": row.id, "try_number": fence.try_number, "attempt_id": fence.attempt_id}
    )
    return int(found[0]) if found else None


def admit_reader(
    tx: Transaction, scope: EntryScope, row: ScopeRow, fence: Fence, *, now: int, history: HistoryPolicy
) -> None:
    """Register an attempt that reads, if it is the newest; refuse it only if its incarnation is over."""
    if verdict_on(tx, row, fence) is not Verdict.STALE:
        admit(tx, scope, row, fence, now=now, history=history)
    elif outlived(row.standing, fence, known_in(tx, row, fence)):
        raise stale(scope, fence, row.standing)


def start_empty(tx: Transaction, row: ScopeRow, now: int, history: HistoryPolicy) -> None:
    """Move all entries to the history, as nobody's writing: the beginning of a new incarnation."""
    row.version += 1
    tx.run(sql.BUMP_SCOPE, {"id": row.id, "version": row.version, "now": now})
    bury_all(tx, row, action="reset", now=now, writer=None, history=history)


def bury_all(
    tx: Transaction, row: ScopeRow, *, action: str, now: int, writer: str | None, history: HistoryPolicy
) -> None:
    """Remove every live entry under the row's version; the history stays for its days."""
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
        "writer": writer,
    }
    tx.run(sql.LOG_REMOVAL_OF_ALL, params)
    tx.run(sql.BURY_ALL_ENTRIES, params)


def _seat(tx: Transaction, row: ScopeRow, fence: Fence, now: int, holder: Holder | None) -> None:
    superseded = "lost" if holder else "superseded"
    if row.try_number is not None:
        reason = (
            f"superseded by attempt {fence.try_number}"
            if holder is None
            else "its process is gone or was taken over"
        )
        tx.run(sql.CLOSE_SUPERSEDED, {"id": row.id, "now": now, "state": superseded, "reason": reason})
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
