"""The verbs of `backends.base` over a SQL database: what is done in which transaction."""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from keepstate.backends.base import (
    Applied,
    Batch,
    Begin,
    Begun,
    ChangeNotice,
    Clear,
    Delete,
    End,
    EntryScope,
    Fence,
    HeldScope,
    HistoryPolicy,
    Outcome,
    Put,
    Reading,
    Session,
    StoredEntry,
    StoredVersion,
    conflict,
    stale,
)
from keepstate.backends.sql import attempts, lists, purge, upgrade
from keepstate.backends.sql import statements as sql
from keepstate.backends.sql.database import (
    Database,
    Params,
    RepeatedRequestError,
    Row,
    Transaction,
    TransientError,
)
from keepstate.backends.sql.scopes import (
    ScopeRow,
    admit,
    admit_reader,
    bury_all,
    digest_of,
    open_scope,
)
from keepstate.clock import DAY
from keepstate.errors import BackendError, BackendUnavailableError
from keepstate.scope import (
    AssetInfo,
    AssetScope,
    Attempt,
    CleanupReport,
    RunInfo,
    TaskInstanceInfo,
    TaskScope,
    Writer,
    asset_digest,
)
from keepstate.values import size_of

T = TypeVar("T")

_ALL = 2**31 - 1
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 2.0


class SqlBackend:
    """Entries in SQLite or PostgreSQL."""

    guide_only = False

    def __init__(self, database: Database, *, now: Callable[[], int], retry_timeout: float) -> None:
        """Open a store, making or upgrading its tables when they are not at this version."""
        self._db = database
        self._retry_timeout = retry_timeout
        self.address = database.address
        self._sessions = _Sessions() if database.dialect.commit_may_be_lost else None
        self._retrying(lambda: upgrade.upgrade(database, now=now()))

    # ------------------------------------------------------------------------------------------- entries

    def read(
        self,
        scope: EntryScope,
        keys: Sequence[str] | None,
        *,
        now: int,
        fence: Fence | None = None,
        writer: Writer | None = None,  # noqa: ARG002 - other backends register who reads
        history: HistoryPolicy | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> Reading:
        """See `Backend.read`."""
        statement, params = self._reading_statement(scope, keys, now, limit, offset)
        rows = self._query(statement, params)
        reset = False
        if fence is not None and not _registered(rows, fence):

            def register(tx: Transaction) -> bool:
                row = open_scope(tx, self._db.dialect, scope, now)
                admit_reader(tx, scope, row, fence, now=now, history=history or HistoryPolicy())
                return row.reset

            reset = self._write(register)
            rows = self._query(statement, params)
        if not rows or rows[0][6]:
            return Reading(0, None, (), 0 if limit is not None else None)
        first = rows[0]
        current = fence is None or _registered(rows, fence)
        if fence is not None and fence.incarnation not in (None, first[2]):
            raise stale(scope, fence, ScopeRow.of(first[:8]).standing)
        wanted = None if keys is None or statement is sql.READ_ONE else set(keys)
        found = tuple(
            StoredEntry(*row[8:14])
            for row in rows
            if row[9] is not None and (wanted is None or row[8] in wanted)
        )
        total = None
        if limit is not None:
            total = int(self._query(sql.COUNT_LIVE, {"digest": params["digest"], "now": now})[0][0])
        return Reading(first[1], first[2] if current else None, found, total, reset)

    def _reading_statement(
        self, scope: EntryScope, keys: Sequence[str] | None, now: int, limit: int | None, offset: int
    ) -> tuple[str, dict[str, object]]:
        params: dict[str, object] = {"digest": self._digest(scope), "now": now}
        if keys is not None and len(keys) == 1:
            return sql.READ_ONE, {**params, "key": keys[0]}
        if keys is None and limit is not None:
            return sql.READ_PAGE, {**params, "limit": limit, "offset": offset}
        return sql.READ_ALL, params

    def apply(self, batch: Batch) -> Applied:
        """See `Backend.apply`."""
        session = self._numbered(batch.session)
        if self._db.dialect.put_in_one and len(batch.changes) == 1:
            done = self._put_in_one(batch, batch.changes[0], session)
            if done is not None:
                return done

        def work(tx: Transaction) -> Applied:
            row = open_scope(tx, self._db.dialect, batch.scope, batch.now)
            repeated = _find_repeated(tx, session)
            if repeated:
                return repeated
            admit(tx, batch.scope, row, batch.fence, now=batch.now, history=batch.history)
            live = {change.key: _live_version(tx, row, change, batch.now) for change in batch.changes}
            for change in batch.changes:
                if change.expected is not None and change.expected != live[change.key]:
                    raise conflict(change.key, change.expected, live[change.key] or 0)
            todo = [change for change in batch.changes if isinstance(change, Put) or live[change.key]]
            if todo:
                row.version += 1
                tx.run(sql.BUMP_SCOPE, {"id": row.id, "version": row.version, "now": batch.now})
                writer = batch.writer.to_text()
                for change in todo:
                    if isinstance(change, Put):
                        _put(tx, row, change, batch, writer)
                    else:
                        _bury(tx, row, change, batch, writer)
            _note(tx, session, row, batch.now)
            return Applied(row.version, row.incarnation, reset=row.reset)

        return self._write(work)

    def _put_in_one(self, batch: Batch, change: Put | Delete, session: Session | None) -> Applied | None:
        """Try the single statement; ``None`` where only the long way can tell what is the matter."""
        fence = batch.fence
        if (
            not isinstance(change, Put)
            or change.expected is not None
            or not isinstance(batch.scope, TaskScope)
            or batch.history.limit == 0
            or session is None
            or (fence is not None and fence.incarnation is None)
        ):
            return None
        size, logged, sha256 = _loggable(change.text, batch.history)
        params = {
            "digest": batch.scope.digest,
            "now": batch.now,
            "try_number": fence.try_number if fence else None,
            "attempt_id": fence.attempt_id if fence else None,
            "incarnation": fence.incarnation if fence else None,
            "session": session.id,
            "number": session.number,
            "key": change.key,
            "keep": batch.history.limit - 1,
            "value": change.text,
            "expires_at": change.expires_at,
            "writer": batch.writer.to_text(),
            "logged_value": logged,
            "size": size,
            "sha256": sha256,
        }
        try:
            rows = self._query(sql.PUT_IN_ONE, params)
        except RepeatedRequestError:
            return None
        return Applied(rows[0][0], rows[0][1]) if rows else None

    def clear(self, request: Clear) -> Applied:
        """See `Backend.clear`."""
        session = self._numbered(request.session)

        def work(tx: Transaction) -> Applied:
            row = open_scope(tx, self._db.dialect, request.scope, request.now)
            repeated = _find_repeated(tx, session)
            if repeated:
                return repeated
            admit(tx, request.scope, row, request.fence, now=request.now, history=request.history)
            _clear_row(tx, row, request)
            if request.all_map_indices and isinstance(request.scope, TaskScope):
                for sibling in self._siblings(tx, request.scope, row.id):
                    _clear_row(tx, sibling, request)
            _note(tx, session, row, request.now)
            return Applied(row.version, row.incarnation, reset=row.reset)

        return self._write(work)

    def _siblings(self, tx: Transaction, scope: TaskScope, own_id: int) -> list[ScopeRow]:
        ids = tx.all(
            self._db.dialect.render(sql.SCOPES_OF_TASK),
            {"dag_id": scope.dag_id, "run_id": scope.run_id, "task_id": scope.task_id},
        )
        found = [tx.one(sql.SCOPE_BY_ID, {"id": row[0]}) for row in ids if row[0] != own_id]
        return [ScopeRow.of(row) for row in found if row]

    def history(
        self, scope: EntryScope, key: str, *, now: int, limit: int | None = None
    ) -> list[StoredVersion]:
        """See `Backend.history`."""
        params = {
            "digest": self._digest(scope),
            "key": key,
            "now": now,
            "limit": _ALL if limit is None else limit,
        }
        return [StoredVersion(*row) for row in self._query(sql.HISTORY, params)]

    def changes(self, scope: EntryScope, *, after: int, now: int) -> tuple[int, list[ChangeNotice]]:
        """See `Backend.changes`."""
        found = self._query(sql.FIND_SCOPE, {"digest": self._digest(scope)})
        if not found or found[0][6]:
            return 0, []
        version = int(found[0][1])
        if version <= after:
            return version, []
        rows = self._query(sql.CHANGED_SINCE, {"scope_id": found[0][0], "after": after, "now": now})
        notices = [
            ChangeNotice(scope, key, changed, "delete" if text is None else "set", text, updated_at, writer)
            for key, changed, text, updated_at, writer in rows
        ]
        return max([version, *(notice.version for notice in notices)]), notices

    # ------------------------------------------------------------------------------------------ attempts

    def begin(self, request: Begin) -> Begun:
        """See `Backend.begin`."""
        return self._write(lambda tx: attempts.begin(tx, self._db.dialect, request))

    def beat(self, scope: HeldScope, fence: Fence, *, now: int) -> None:
        """See `Backend.beat`."""
        self._write(lambda tx: attempts.beat(tx, self._db.dialect, scope, fence, now))

    def end(self, request: End) -> None:
        """See `Backend.end`."""
        self._write(lambda tx: attempts.end(tx, self._db.dialect, request))

    def attempts(self, scope: HeldScope) -> list[Attempt]:
        """See `Backend.attempts`."""
        return [attempts.attempt_of(row) for row in self._query(sql.ATTEMPTS, {"digest": scope.digest})]

    def outcome(self, scope: HeldScope) -> Outcome | None:
        """See `Backend.outcome`."""
        rows = self._query(sql.OUTCOME, {"digest": scope.digest})
        return Outcome(*rows[0]) if rows else None

    # --------------------------------------------------------------------------------------------- lists

    def runs(self, dag_id: str | None = None, *, limit: int = 50, offset: int = 0) -> list[RunInfo]:
        """See `Backend.runs`."""
        statement = sql.RUNS if dag_id is None else sql.RUNS_OF_DAG
        params = {"limit": limit, "offset": offset}
        rows = self._query(statement, params if dag_id is None else {**params, "dag_id": dag_id})
        return [lists.run_of(row) for row in rows]

    def task_instances(
        self, dag_id: str, run_id: str, *, now: int, limit: int | None = None, offset: int = 0
    ) -> list[TaskInstanceInfo]:
        """See `Backend.task_instances`."""
        window = {"limit": _ALL if limit is None else limit, "offset": offset}
        rows = self._query(sql.TASK_INSTANCES, {"dag_id": dag_id, "run_id": run_id, "now": now, **window})
        return [lists.task_instance_of(row) for row in rows]

    def assets(self, *, now: int, limit: int | None = None, offset: int = 0) -> list[AssetInfo]:
        """See `Backend.assets`."""
        window = {"limit": _ALL if limit is None else limit, "offset": offset}
        return [lists.asset_of(row) for row in self._query(sql.ASSETS, {"now": now, **window})]

    def delete_run(self, dag_id: str, run_id: str, *, now: int) -> int:
        """See `Backend.delete_run`."""
        return self._write(lambda tx: lists.delete_run(tx, self._db.dialect, dag_id, run_id, now))

    def delete_asset(self, scope: AssetScope, *, now: int) -> bool:
        """See `Backend.delete_asset`."""
        return self._write(lambda tx: lists.delete_asset(tx, self._db.dialect, scope, now))

    # ------------------------------------------------------------------------------------------- upkeep

    def purge(
        self, *, now: int, batch_size: int, idle: int | None, history: HistoryPolicy, dry_run: bool = False
    ) -> Iterator[CleanupReport]:
        """See `Backend.purge`."""
        if dry_run:
            yield purge.count(self._query, now=now, idle=idle)
            return
        for step in purge.STEPS:
            while True:
                report = self._write(lambda tx, step=step: step(tx, now=now, idle=idle, limit=batch_size))  # type: ignore[misc]
                if report is None:
                    break
                yield report
        del history

    def check_writable(self) -> None:
        """See `Backend.check_writable`."""
        self._write(lambda tx: tx.run(sql.ERASE_OLD_SESSIONS, {"before": 0}))

    def close(self) -> None:
        """Close what was opened here."""
        self._db.close()

    # ------------------------------------------------------------------------------------------ plumbing

    def _digest(self, scope: EntryScope) -> bytes:
        if isinstance(scope, AssetScope) and scope.uri is not None:
            digest = asset_digest("uri", scope.uri)
            found = self._query(sql.ASSET_BY_URI, {"digest": digest})
            if found:
                return asset_digest("name", found[0][1])
        return digest_of(scope)

    def _numbered(self, session: Session | None) -> Session | None:
        if session is None and self._sessions is not None:
            return self._sessions.next()
        return session

    def _query(self, statement: str, params: Params) -> list[Row]:
        return self._retrying(lambda: self._db.query(statement, params))

    def _write(self, work: Callable[[Transaction], T]) -> T:
        def attempt() -> T:
            with self._db.transaction() as tx:
                return work(tx)

        return self._retrying(attempt)

    def _retrying(self, attempt: Callable[[], T]) -> T:
        """Try again while the trouble may pass, with growing, jittered pauses, until the time allowed is over."""
        deadline = time.monotonic() + self._retry_timeout
        pause = _FIRST_PAUSE
        while True:
            try:
                return attempt()
            except TransientError as exc:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise BackendUnavailableError(
                        f"the store {self.address} could not be reached within {self._retry_timeout:g} s: {exc}; "
                        "check that it runs, or allow more with KEEPSTATE_RETRY_TIMEOUT",
                        address=self.address,
                    ) from exc.__cause__ or exc
                time.sleep(min(left, pause * random.uniform(0.5, 1.5)))  # noqa: S311 - jitter is no secret
                pause = min(pause * 2, _LONGEST_PAUSE)


class _Sessions:
    """Numbers requests. Each thread has a session of its own, as a session's requests come one after another."""

    def __init__(self) -> None:
        self._local = threading.local()
        _live_sessions.add(self)

    def next(self) -> Session:
        local = self._local
        if not hasattr(local, "id"):
            local.id, local.number = str(uuid.uuid4()), 0
        local.number += 1
        return Session(local.id, local.number)

    def forget(self) -> None:
        self._local = threading.local()


_live_sessions: weakref.WeakSet[_Sessions] = weakref.WeakSet()


def _forget_sessions() -> None:
    # a forked child that went on with its parent's numbers would have its writes taken for repetitions
    for sessions in list(_live_sessions):
        sessions.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_sessions)


# ------------------------------------------------------------------------------------- inside a transaction


def _registered(rows: list[Row], fence: Fence) -> bool:
    """Whether the scope that was read stands at this very attempt."""
    if not rows or rows[0][6]:
        return False
    try_number, attempt_id = rows[0][3:5]
    same_id = attempt_id == fence.attempt_id or not (attempt_id and fence.attempt_id)
    return bool(try_number == fence.try_number and same_id)


def _find_repeated(tx: Transaction, session: Session | None) -> Applied | None:
    """Return the answer given before, where this request was applied before."""
    if session is None:
        return None
    found = tx.one(sql.FIND_SESSION, {"session": session.id})
    if found is None or found[0] < session.number:
        return None
    if found[0] > session.number:
        raise BackendError(
            f"request {session.number} came after request {found[0]} of the same client session, and was not applied "
            "(again); a session's requests must come one after another"
        )
    return Applied(found[1], found[2], repeated=True)


def _note(tx: Transaction, session: Session | None, row: ScopeRow, now: int) -> None:
    if session is not None:
        tx.run(
            sql.NOTE_SESSION,
            {
                "session": session.id,
                "number": session.number,
                "version": row.version,
                "incarnation": row.incarnation,
                "now": now,
            },
        )


def _live_version(tx: Transaction, row: ScopeRow, change: Put | Delete, now: int) -> int | None:
    if isinstance(change, Put) and change.expected is None:
        return None
    found = tx.one(sql.ENTRY_VERSION, {"scope_id": row.id, "key": change.key, "now": now})
    return int(found[0]) if found else 0


def _loggable(text: str, history: HistoryPolicy) -> tuple[int, str | None, str | None]:
    """Return a value's size, and what the log keeps of it: its text, or above the limit its hash."""
    size = size_of(text)
    if history.value_bytes and size > history.value_bytes:
        return size, None, hashlib.sha256(text.encode()).hexdigest()
    return size, text, None


def _put(tx: Transaction, row: ScopeRow, change: Put, batch: Batch, writer: str) -> None:
    params = {
        "scope_id": row.id,
        "key": change.key,
        "value": change.text,
        "version": row.version,
        "now": batch.now,
        "expires_at": change.expires_at,
        "writer": writer,
    }
    _trim(tx, row, change.key, batch)
    tx.run(sql.PUT_ENTRY, params)
    if batch.history.limit:
        size, logged, sha256 = _loggable(change.text, batch.history)
        tx.run(sql.ADD_TO_LOG, {**params, "action": "set", "value": logged, "size": size, "sha256": sha256})


def _bury(tx: Transaction, row: ScopeRow, change: Delete, batch: Batch, writer: str) -> None:
    history = batch.history
    if history.days == 0 or history.limit == 0:
        tx.run(sql.ERASE_ENTRY, {"scope_id": row.id, "key": change.key})
        tx.run(sql.ERASE_LOG_OF_KEY, {"scope_id": row.id, "key": change.key})
        return
    _trim(tx, row, change.key, batch)
    lapses_at = batch.now + history.days * DAY
    params = {
        "scope_id": row.id,
        "key": change.key,
        "version": row.version,
        "now": batch.now,
        "writer": writer,
    }
    tx.run(sql.BURY_ENTRY, {**params, "lapses_at": lapses_at})
    gone = {"action": "delete", "value": None, "size": 0, "sha256": None, "expires_at": lapses_at}
    tx.run(sql.ADD_TO_LOG, {**params, **gone})


def _trim(tx: Transaction, row: ScopeRow, key: str, batch: Batch) -> None:
    """Make room in the log for one more version."""
    params = {"scope_id": row.id, "key": key}
    if batch.history.limit == 0:
        tx.run(sql.ERASE_LOG_OF_KEY, params)
    else:
        tx.run(sql.TRIM_LOG, {**params, "keep": batch.history.limit - 1, "now": batch.now})


def _clear_row(tx: Transaction, row: ScopeRow, request: Clear) -> None:
    if request.forget:
        row.version += 1
        tx.run(sql.BUMP_SCOPE, {"id": row.id, "version": row.version, "now": request.now})
        tx.run(sql.ERASE_ALL_ENTRIES, {"scope_id": row.id})
        tx.run(sql.ERASE_LOG, {"scope_id": row.id})
        return
    if tx.one(sql.ANY_LIVE, {"scope_id": row.id, "now": request.now}) is None:
        return
    row.version += 1
    tx.run(sql.BUMP_SCOPE, {"id": row.id, "version": row.version, "now": request.now})
    bury_all(
        tx, row, action="clear", now=request.now, writer=request.writer.to_text(), history=request.history
    )
