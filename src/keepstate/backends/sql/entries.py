"""Changing entries inside a transaction whose scope is open: puts, deletes, clearing, and the log of it all."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from keepstate.backends.answers import Applied
from keepstate.backends.refusals import conflict
from keepstate.backends.requests import Delete, Put
from keepstate.backends.sql import statements as sql
from keepstate.backends.sql.scopes import ScopeRow, bury_all
from keepstate.backends.sql.sessions import find_repeated, note
from keepstate.clock import DAY
from keepstate.scope import TaskScope, Writer

if TYPE_CHECKING:
    from keepstate.backends.requests import Batch, Clear, Session
    from keepstate.backends.sql.database import Transaction
    from keepstate.backends.sql.dialects import Dialect


def writer_text(writer: Writer) -> str:
    """Return the text of a writer; an attempt writes as the same one again and again."""
    return _text_of(writer, writer.token)


@lru_cache(maxsize=256)
def _text_of(writer: Writer, token: str | None) -> str:
    del token  # two writers are equal whatever let them in
    return writer.to_text()


def change(tx: Transaction, row: ScopeRow, batch: Batch) -> None:
    """Apply a batch under one new version, or raise ``VersionConflictError``; nothing to delete is no change."""
    todo = batch.changes
    if len(todo) != 1 or isinstance(todo[0], Delete) or todo[0].expected is not None:
        todo = _what_there_is_to_do(tx, row, batch)
        if not todo:
            return
    row.version += 1
    tx.run(sql.BUMP_SCOPE, {"id": row.id, "version": row.version, "now": batch.now})
    writer = writer_text(batch.writer)
    for one in todo:
        if isinstance(one, Put):
            _put(tx, row, one, batch, writer)
        else:
            _bury(tx, row, one, batch, writer)


def _what_there_is_to_do(tx: Transaction, row: ScopeRow, batch: Batch) -> tuple[Put | Delete, ...]:
    live = {
        one.key: _live_version(tx, row, one.key, batch.now)
        for one in batch.changes
        if isinstance(one, Delete) or one.expected is not None
    }
    for one in batch.changes:
        if one.expected is not None and one.expected != live[one.key]:
            raise conflict(one.key, one.expected, live[one.key])
    return tuple(one for one in batch.changes if isinstance(one, Put) or live[one.key])


def _live_version(tx: Transaction, row: ScopeRow, key: str, now: int) -> int:
    found = tx.one(sql.ENTRY_VERSION, {"scope_id": row.id, "key": key, "now": now})
    return int(found[0]) if found else 0


def _put(tx: Transaction, row: ScopeRow, put: Put, batch: Batch, writer: str) -> None:
    params = _written(put, batch, writer)
    params["scope_id"], params["version"] = row.id, row.version
    if batch.history.limit:
        _write_and_log(tx, params)
    else:
        params["trimmed"] = tx.run(sql.ERASE_LOG_OF_KEY, params)
        tx.run(sql.PUT_ENTRY, params)


def _written(put: Put, batch: Batch, writer: str) -> dict[str, Any]:
    """Return the parameters that say what is written to an entry and to its log, and how far that is trimmed."""
    size, logged, sha256 = batch.history.logged(put.text)
    limit = batch.history.limit
    return {
        "key": put.key,
        "value": put.text,
        "now": batch.now,
        "expires_at": put.expires_at,
        "writer": writer,
        "action": "set",
        "logged": logged,
        "size": size,
        "sha256": sha256,
        "logged_rows": 1 if limit else 0,
        "limit": limit,
        "most": most_rows(limit),
        "keep": limit - 1,
    }


def _write_and_log(tx: Transaction, params: dict[str, Any]) -> None:
    if not tx.run(sql.RENEW_ENTRY, params):
        params["trimmed"] = tx.run(sql.TRIM_LOG, params)
        tx.run(sql.PUT_ENTRY, params)
    tx.run(sql.ADD_TO_LOG, params)


def most_rows(limit: int) -> int:
    """Return how many rows a key's log may have before it is trimmed to ``limit``: trimming takes time, so not each time."""
    return limit + limit // 2


def _bury(tx: Transaction, row: ScopeRow, delete: Delete, batch: Batch, writer: str) -> None:
    history = batch.history
    lapses_at = batch.now + history.days * DAY
    params = {
        "scope_id": row.id,
        "key": delete.key,
        "version": row.version,
        "now": batch.now,
        "lapses_at": lapses_at,
        "expires_at": lapses_at,
        "writer": writer,
        "action": "delete",
        "logged": None,
        "size": 0,
        "sha256": None,
        "limit": history.limit,
        "keep": history.limit - 1,
    }
    if history.days == 0 or history.limit == 0:
        tx.run(sql.ERASE_ENTRY, params)
        tx.run(sql.ERASE_LOG_OF_KEY, params)
        return
    params["trimmed"] = tx.run(sql.TRIM_LOG, params)
    tx.run(sql.BURY_ENTRY, params)
    tx.run(sql.ADD_TO_LOG, params)


def clear(tx: Transaction, row: ScopeRow, request: Clear) -> None:
    """Remove all entries of a scope under one new version; with ``forget``, the log too. None is no change."""
    if request.forget:
        row.version += 1
        tx.run(sql.BUMP_SCOPE, {"id": row.id, "version": row.version, "now": request.now})
        tx.run(sql.ERASE_ALL_ENTRIES, {"scope_id": row.id})
        tx.run(sql.ERASE_LOG, {"scope_id": row.id})
    else:
        writer = writer_text(request.writer)
        bury_all(tx, row, action="clear", now=request.now, writer=writer, history=request.history)


def trim(tx: Transaction, dialect: Dialect, digest: bytes, key: str, limit: int) -> None:
    """Trim a key's log to ``limit`` rows."""
    row = tx.one(sql.FIND_SCOPE, {"digest": digest})
    if row is not None:
        params = {"scope_id": row[0], "key": key, "keep": limit}
        tx.run(sql.TRIM_LOG, params)
        reschedule(tx, dialect, params)


def reschedule(tx: Transaction, dialect: Dialect, params: dict[str, Any]) -> None:
    """Have a key swept again when the first of what is left of it expires; beside writers, which lock more than the key."""
    tx.one(dialect.render(sql.LOCK_ENTRY), params)
    tx.run(sql.RESCHEDULE_SWEEP, params)


def simple_put(batch: Batch) -> dict[str, Any] | None:
    """Return the parameters of what most writes are, or ``None`` where a batch is more than that.

    That is one key of a task instance written over whatever stands there, in the name of an attempt that knows its
    incarnation, or of a person.
    """
    fence, scope = batch.fence, batch.scope
    put = batch.changes[0]
    if (
        len(batch.changes) != 1
        or not isinstance(put, Put)
        or put.expected is not None
        or not isinstance(scope, TaskScope)
        or batch.history.limit == 0
    ):
        return None
    try_number = attempt_id = incarnation = None
    if fence is not None:
        try_number, attempt_id, incarnation = fence.try_number, fence.attempt_id, fence.incarnation
        if incarnation is None:
            return None
    params = _written(put, batch, writer_text(batch.writer))
    params["digest"] = scope.digest
    params["try_number"], params["attempt_id"], params["incarnation"] = try_number, attempt_id, incarnation
    return params


def put_in_few(
    tx: Transaction, params: dict[str, Any], session: Session | None, address: str
) -> Applied | None:
    """Write a simple put in as few statements as there are rows; ``None`` where it takes more, with nothing changed.

    For databases with one writer at a time; RETURNING would take longer than a statement more.
    """
    row = tx.one(sql.FIND_STANDING, params)
    if row is None or row[sql.DELETED]:
        return None
    scope_id, version, incarnation, try_number, attempt_id = row[:5]
    fence = params["try_number"]
    if fence is not None and (fence, params["incarnation"], params["attempt_id"]) != (
        try_number,
        incarnation,
        attempt_id,
    ):
        return None
    repeated = find_repeated(tx, session, address)
    if repeated:
        return repeated
    version += 1
    params["id"] = params["scope_id"] = scope_id
    params["version"] = version
    tx.run(sql.BUMP_SCOPE, params)
    _write_and_log(tx, params)
    done = Applied(version, incarnation)
    note(tx, session, done, params["now"])
    return done
