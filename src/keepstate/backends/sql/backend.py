"""The verbs of `backends.base` over a SQL database: what is done in which transaction."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from keepstate.backends.answers import (
    Applied,
    Begun,
    ChangeNotice,
    Outcome,
    Reading,
    StoredEntry,
    StoredVersion,
)
from keepstate.backends.refusals import stale, unknown
from keepstate.backends.requests import (
    Batch,
    Begin,
    Clear,
    End,
    EntryScope,
    Fence,
    HeldScope,
    HistoryPolicy,
    Session,
)
from keepstate.backends.sql import assets, attempts, entries, purge
from keepstate.backends.sql import statements as sql
from keepstate.backends.sql.database import (
    Database,
    RepeatedRequestError,
    Row,
    Transaction,
)
from keepstate.backends.sql.lists import Lists
from keepstate.backends.sql.removal import Removal
from keepstate.backends.sql.scopes import (
    ScopeRow,
    admit,
    admit_reader,
    open_known,
    open_scope,
)
from keepstate.backends.sql.sessions import find_repeated, note
from keepstate.backends.sql.tokens import TokenRows
from keepstate.errors import KeepstateError
from keepstate.scope import (
    Attempt,
    CleanupReport,
    TaskScope,
    Writer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from keepstate.backends.images import Fate, Image, Selection, Tally

T = TypeVar("T")

_Where = tuple[str, dict[str, object]]

_NO_ENTRY = (None,) * 6
_MOST_WATCHED = 10_000


class SqlBackend(Lists, Removal):
    """Entries in SQLite, PostgreSQL or MySQL."""

    guide_only = False

    def __init__(self, database: Database, *, now: Callable[[], int], retry_timeout: float) -> None:
        """Open a store, making or upgrading its tables when they are not at this version."""
        super().__init__(database, now=now, retry_timeout=retry_timeout)
        self._overgrown: set[tuple[bytes, str]] = set()

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
        texts: bool = True,
    ) -> Reading:
        """See `Backend.read`."""
        where = self._where(scope)
        if where is None:
            # an asset that nobody has written to
            return Reading(0, None, (), 0 if limit is not None else None)
        rows = self._entries(where, keys, now, limit, offset, texts=texts)
        reset, has_a_say = False, fence is None or _registered(rows, fence)
        if fence is not None and not has_a_say:

            def register(tx: Transaction) -> bool:
                row = open_scope(tx, self._db.dialect, scope, now)
                admit_reader(
                    tx, self._db.dialect, scope, row, fence, now=now, history=history or HistoryPolicy()
                )
                return row.reset

            reset = self._write(register)
            rows = self._entries(where, keys, now, limit, offset, texts=texts)
            has_a_say = _registered(rows, fence)
        if not rows or rows[0][sql.DELETED]:
            return Reading(0, None, (), 0 if limit is not None else None)
        _, version, incarnation = rows[0][:3]
        if fence is not None and fence.incarnation not in (None, incarnation):
            raise stale(scope, fence, ScopeRow.of(rows[0]).standing)
        found = [StoredEntry(*row[sql.OF_ENTRY]) for row in rows if row[sql.VALUE] is not None]
        if keys is not None and len(keys) > 1:
            wanted = set(keys)
            found = [entry for entry in found if entry.key in wanted]
        total = None
        if limit is not None:
            counted = self._ask(sql.COUNT_LIVE, where, now=now)
            if not counted:
                # it has been removed since its entries were read
                return Reading(0, None, (), 0)
            total = int(counted[0][sql.TOTAL])
        return Reading(version, incarnation if has_a_say else None, tuple(found), total, reset)

    def _entries(
        self,
        where: _Where,
        keys: Sequence[str] | None,
        now: int,
        limit: int | None,
        offset: int,
        *,
        texts: bool,
    ) -> list[Row]:
        """Return the rows of entries, each beginning with how the scope stands; at least one where it is there."""
        if keys is not None and len(keys) == 1:
            one = sql.READ_ONE if texts else sql.READ_ONE_KEY
            return self._ask(one, where, now=now, key=keys[0])
        if keys is None and limit is not None:
            some = sql.READ_PAGE if texts else sql.READ_PAGE_OF_KEYS
            page = self._ask(some, where, now=now, limit=limit, offset=offset)
            # beyond the last entry there is no row
            return page or [(*row, *_NO_ENTRY) for row in self._ask(sql.STANDING, where)]
        return self._ask(sql.READ_ALL if texts else sql.READ_ALL_KEYS, where, now=now)

    def apply(self, batch: Batch) -> Applied:
        """See `Backend.apply`."""
        return self._numbered(batch.session, partial(self._apply, batch))

    def _apply(self, batch: Batch, session: Session | None) -> Applied:
        dialect = self._db.dialect
        short_way = dialect.put_in_one or dialect.one_writer
        simple = entries.simple_put(batch) if short_way else None
        if simple is not None and dialect.put_in_one and session is not None:
            done = self._put_in_one(simple, session, batch.history.limit)
            if done is not None:
                return done

        def work(tx: Transaction) -> Applied:
            if simple is not None and dialect.one_writer:
                done = entries.put_in_few(tx, simple, session, self.address)
                if done is not None:
                    return done
            row = self._open(tx, batch)
            repeated = find_repeated(tx, session, self.address)
            if repeated:
                return repeated
            if row is None:
                raise unknown(batch.scope)
            admit(tx, self._db.dialect, batch.scope, row, batch.fence, now=batch.now, history=batch.history)
            behalf = self._vouch_for(tx, batch)
            entries.change(tx, row, batch)
            done = Applied(row.version, row.incarnation, reset=row.reset, behalf=behalf)
            note(tx, session, done, batch.now)
            return done

        return self._write(work)

    def _put_in_one(self, params: dict[str, Any], session: Session, limit: int) -> Applied | None:
        """Try the single statement; ``None`` where only the long way can tell what is the matter."""
        if threading.get_ident() in self._writing:
            raise self._within_a_write()
        params["session"], params["number"] = session.id, session.number
        place = params["digest"], params["key"]
        statement = sql.PUT_AND_TRIM_IN_ONE if place in self._overgrown else sql.PUT_IN_ONE
        try:
            rows = self._query(statement, params)
        except RepeatedRequestError:
            return None
        if not rows:
            return None
        version, incarnation, log_rows = rows[0]
        if log_rows >= params["most"] or place in self._overgrown:
            self._watch_log(place, log_rows, limit)
        return Applied(version, incarnation)

    def _watch_log(self, place: tuple[bytes, str], log_rows: int, limit: int) -> None:
        """Have the next write trim a log that has grown; at twice its limit, which is when nobody writes twice, at once."""
        if log_rows < entries.most_rows(limit):
            self._overgrown.discard(place)
            return
        if len(self._overgrown) >= _MOST_WATCHED:
            self._overgrown.clear()
        self._overgrown.add(place)
        if log_rows >= 2 * limit:
            # the write itself is done: whatever becomes of this, the next one tries again
            with suppress(KeepstateError):
                self._write(lambda tx: entries.trim(tx, self._db.dialect, *place, limit))

    def clear(self, request: Clear) -> Applied:
        """See `Backend.clear`."""
        return self._numbered(request.session, partial(self._clear, request))

    def _clear(self, request: Clear, session: Session | None) -> Applied:
        def work(tx: Transaction) -> Applied:
            row = self._open(tx, request)
            repeated = find_repeated(tx, session, self.address)
            if repeated:
                return repeated
            siblings, behalf = self._siblings(tx, request, row), None
            if row is not None:
                admit(
                    tx,
                    self._db.dialect,
                    request.scope,
                    row,
                    request.fence,
                    now=request.now,
                    history=request.history,
                )
                behalf = self._vouch_for(tx, request)
                entries.clear(tx, row, request)
            elif not siblings:
                raise unknown(request.scope)
            for sibling in siblings:
                entries.clear(tx, sibling, request)
            done = (
                Applied(row.version, row.incarnation, reset=row.reset, behalf=behalf)
                if row
                else Applied(0, 0)
            )
            note(tx, session, done, request.now)
            return done

        return self._write(work)

    def _open(self, tx: Transaction, request: Batch | Clear) -> ScopeRow | None:
        """Lock the row of the scope to be changed, making it where that is allowed."""
        if request.known:
            return open_known(tx, self._db.dialect, request.scope)
        return open_scope(tx, self._db.dialect, request.scope, request.now)

    def _vouch_for(self, tx: Transaction, request: Batch | Clear) -> int | None:
        """Refuse a change to an asset by an attempt that has been superseded at its own task; return its incarnation."""
        behalf = request.behalf
        if behalf is None:
            return None
        own = open_scope(tx, self._db.dialect, behalf.scope, request.now)
        admit(
            tx,
            self._db.dialect,
            behalf.scope,
            own,
            behalf.fence,
            now=request.now,
            history=request.history,
        )
        return own.incarnation

    def _siblings(self, tx: Transaction, request: Clear, own: ScopeRow | None) -> list[ScopeRow]:
        """Lock and return the other map indices of the task, where they are to be cleared too."""
        scope, lock = request.scope, self._db.dialect.render
        if not request.all_map_indices or not isinstance(scope, TaskScope):
            return []
        ids = tx.all(
            lock(sql.SCOPES_OF_TASK),
            {"dag_id": scope.dag_id, "run_id": scope.run_id, "task_id": scope.task_id},
        )
        others = [row[0] for row in ids if own is None or row[0] != own.id]
        found = [tx.one(lock(sql.LOCK_SCOPE_BY_ID), {"id": other}) for other in others]
        return [ScopeRow.of(row) for row in found if row]

    def history(
        self, scope: EntryScope, key: str, *, now: int, limit: int | None = None
    ) -> list[StoredVersion]:
        """See `Backend.history`."""
        where = self._where(scope)
        rows = self._ask(sql.HISTORY, where, key=key, now=now) if where else []
        # last in each row is the limit in force when the key was last written; more may be there
        kept = [StoredVersion(*row[:-1]) for row in rows[: rows[0][-1]]] if rows else []
        return [one for one in kept if one.expires_at is None or one.expires_at > now][:limit]

    def changes(self, scope: EntryScope, *, after: int, now: int) -> tuple[int, list[ChangeNotice]]:
        """See `Backend.changes`."""
        where = self._where(scope)
        found = self._ask(sql.STANDING, where) if where else []
        if not found or found[0][sql.DELETED]:
            return 0, []
        scope_id, version = found[0][:2]
        if version <= after:
            return version, []
        rows = self._query(sql.CHANGED_SINCE, {"scope_id": scope_id, "after": after, "now": now})
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

    # ------------------------------------------------------------------------------------------- upkeep

    def purge(
        self,
        *,
        now: int,
        batch_size: int,
        idle: int | None,
        history: HistoryPolicy,
        dry_run: bool = False,
        sessions: Sequence[str] = (),
    ) -> Iterator[CleanupReport]:
        """See `Backend.purge`."""
        del history
        own = {*sessions, *(self._sessions.ids() if self._sessions else ())}
        if dry_run:
            yield purge.count(self._query, now=now, idle=idle, own=own)
            return
        ask = (self._query, self._write)
        yield from purge.sweep_entries(*ask, self._db.dialect, now=now, limit=batch_size)
        yield from purge.sweep_scopes(*ask, self._db.dialect, now=now, limit=batch_size, idle=idle)
        yield from purge.sweep_sessions(*ask, now=now, limit=batch_size, own=own)

    def images(self, selection: Selection, *, now: int, after: int, limit: int) -> list[tuple[int, Image]]:
        """See `Copyable.images`."""
        # loaded by who copies: it takes a tenth of the time in which a task's process starts
        from keepstate.backends.sql import images

        return images.images(self._query, self._db.dialect, selection, now=now, after=after, limit=limit)

    def take_in(self, several: Sequence[Image], *, now: int, overwrite: bool = False) -> list[Fate]:
        """See `Copyable.take_in`."""
        from keepstate.backends.sql import intake

        return self._write(
            lambda tx: intake.take_in(tx, self._db.dialect, several, now=now, overwrite=overwrite)
        )

    def tally(self, selection: Selection, *, now: int) -> Tally:
        """See `Copyable.tally`."""
        from keepstate.backends.sql import images

        return images.tally(self._query, self._db.dialect, selection, now=now)

    def tokens(self) -> TokenRows:
        """Return the table of the server's tokens."""
        return TokenRows(self._query, self._write)

    def check_writable(self) -> None:
        """See `Backend.check_writable`."""
        self._write(lambda tx: tx.run(sql.CHANGE_NOTHING, {}))

    def close(self) -> None:
        """Close what was opened here."""
        self._db.close()

    # ------------------------------------------------------------------------------------------ reading

    def _where(self, scope: EntryScope) -> _Where | None:
        """Return the condition that finds a scope's row for reading, or ``None`` where an asset is not known.

        An asset is found by its id: between two statements it may get another name.
        """
        if isinstance(scope, TaskScope):
            return "s.digest = :digest", {"digest": scope.digest}
        found = assets.find(self._query, scope)
        return None if found is None else ("s.id = :id", {"id": found[0]})

    def _ask(self, statement: str, where: _Where, **params: object) -> list[Row]:
        condition, of_scope = where
        params.update(of_scope)
        return self._query(_completed(statement, condition), params)


@lru_cache(maxsize=64)
def _completed(statement: str, condition: str) -> str:
    return statement.replace("{scope}", condition)


def _registered(rows: list[Row], fence: Fence) -> bool:
    """Whether the scope that was read stands at this very attempt, and knows of its item what there is to know."""
    if not rows or rows[0][sql.DELETED]:
        return False
    try_number, attempt_id, item = rows[0][3:6]
    if item is None and fence.item is not None and fence.incarnation is None:
        return False
    same_id = attempt_id == fence.attempt_id or not (attempt_id and fence.attempt_id)
    return bool(try_number == fence.try_number and same_id)
