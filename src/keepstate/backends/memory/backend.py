"""The verbs of `backends.base` over a dict of records.

One lock makes each verb atomic. A verb that changes a scope works on a copy of its record, which takes the original's
place when nothing was raised: so each is all or nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from keepstate.backends.answers import (
    Applied,
    Begun,
    Outcome,
    Reading,
)
from keepstate.backends.fencing import Verdict
from keepstate.backends.memory import cleanup, images
from keepstate.backends.memory.lists import Lists
from keepstate.backends.memory.records import Records
from keepstate.backends.memory.sessions import Answered
from keepstate.backends.refusals import ended, unknown
from keepstate.backends.requests import Fence, HistoryPolicy
from keepstate.scope import (
    AssetScope,
    CleanupReport,
    TaskScope,
    check_attempt,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keepstate.backends.answers import ChangeNotice, StoredVersion
    from keepstate.backends.images import Fate, Image, Selection, Tally
    from keepstate.backends.memory.record import Record
    from keepstate.backends.requests import Batch, Begin, Clear, End, EntryScope, HeldScope, Session
    from keepstate.scope import Attempt, Scope, Writer


class MemoryBackend(Lists):
    """Keeps every promise but durability. Threads may share it; nothing is left of it when the process ends."""

    address = "memory:"
    guide_only = False

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__(Records())
        self._answered = Answered()

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
        with self._records.lock:
            reset = False
            if fence is not None:
                with self._records.changing(scope, now) as record:
                    record.admit_reader(fence, now, history or HistoryPolicy())
                    reset = record.reset
            found = self._records.find(scope)
            if found is None or found.standing.deleted:
                return Reading(0, None, (), None if limit is None else 0)
            entries = [one for one in found.entries(now) if keys is None or one.key in keys]
            total = None if limit is None else len(entries)
            if limit is not None:
                entries = entries[offset : offset + limit]
            if not texts:
                entries = [replace(one, text="") for one in entries]
            has_a_say = fence is None or found.judge(fence, now) is Verdict.CURRENT
            incarnation = found.standing.incarnation if has_a_say else None
            return Reading(found.version, incarnation, tuple(entries), total, reset)

    def apply(self, batch: Batch) -> Applied:
        """See `Backend.apply`."""
        with self._records.lock:
            if done := self._answered.before(batch.session):
                return done
            if batch.known and not self._records.is_known(batch.scope):
                raise unknown(batch.scope)
            with self._records.changing(batch.scope, batch.now, known=batch.known) as record:
                record.admit(batch.fence, batch.now, batch.history)
                with self._vouching(batch) as behalf:
                    record.apply(batch)
            return self._answer(record, batch.session, batch.now, behalf)

    def clear(self, request: Clear) -> Applied:
        """See `Backend.clear`."""
        with self._records.lock:
            if done := self._answered.before(request.session):
                return done
            siblings = self._siblings(request)
            own = behalf = None
            if not request.known or self._records.is_known(request.scope):
                with self._records.changing(request.scope, request.now, known=request.known) as own:
                    own.admit(request.fence, request.now, request.history)
                    with self._vouching(request) as behalf:
                        own.clear(request)
            elif not siblings:
                raise unknown(request.scope)
            for sibling in siblings:
                with self._records.changing(sibling, request.now) as other:
                    other.clear(request)
            return self._answer(own, request.session, request.now, behalf)

    @contextmanager
    def _vouching(self, request: Batch | Clear) -> Iterator[int | None]:
        """Refuse a change to an asset by an attempt that has been superseded at its own task; give its incarnation."""
        if request.behalf is None:
            yield None
            return
        with self._records.changing(request.behalf.scope, request.now) as own:
            own.admit(request.behalf.fence, request.now, request.history)
            yield own.standing.incarnation

    def _siblings(self, request: Clear) -> list[Scope]:
        own = request.scope
        if not request.all_map_indices or not isinstance(own, TaskScope):
            return []
        return [
            scope
            for scope, _ in self._records.of_run(own.dag_id, own.run_id)
            if isinstance(scope, TaskScope) and scope.task_id == own.task_id and scope != own
        ]

    def history(
        self, scope: EntryScope, key: str, *, now: int, limit: int | None = None
    ) -> list[StoredVersion]:
        """See `Backend.history`."""
        with self._records.lock:
            found = self._records.find(scope)
            return found.history(key, now)[:limit] if found else []

    def changes(self, scope: EntryScope, *, after: int, now: int) -> tuple[int, list[ChangeNotice]]:
        """See `Backend.changes`."""
        with self._records.lock:
            found = self._records.find(scope)
            if found is None or found.standing.deleted:
                return 0, []
            return found.version, found.changes(scope, after, now)

    def _answer(
        self, record: Record | None, session: Session | None, now: int, behalf: int | None
    ) -> Applied:
        answer = Applied(record.version, record.standing.incarnation) if record else Applied(0, 0)
        self._answered.note(session, answer, now)
        return replace(answer, reset=record.reset, behalf=behalf) if record else answer

    # ------------------------------------------------------------------------------------------ attempts

    def begin(self, request: Begin) -> Begun:
        """See `Backend.begin`."""
        with self._records.changing(request.scope, request.now) as record:
            record.refuse_latecomer(request)
            if record.standing.deleted:
                record.admit(None, request.now, request.history)
            if record.standing.try_number is None:
                # whatever ran before its run was deleted, this one is new
                record.standing = replace(record.standing, attempt_id=None)
            standing = record.standing
            if standing.attempt_id == request.attempt_id and standing.try_number is not None:
                # the answer to this very request was lost on the way
                return Begun(standing.try_number, standing.incarnation)
            if not request.take_over:
                record.refuse_while_held(request)
            lost = tuple(record.running())
            number = request.try_number if request.try_number is not None else (standing.try_number or 0) + 1
            check_attempt(number)
            fence = Fence(number, request.attempt_id, request.item)
            record.admit(fence, request.now, request.history, request.holder)
            return Begun(number, record.standing.incarnation, lost, record.reset)

    def beat(self, scope: HeldScope, fence: Fence, *, now: int) -> None:
        """See `Backend.beat`."""
        with self._records.changing(scope, now) as record:
            record.require_current(fence, now)
            attempt = record.current
            if attempt is not None and attempt.state == "running":
                record.current = replace(attempt, beat_at=now)

    def end(self, request: End) -> None:
        """See `Backend.end`."""
        with self._records.changing(request.scope, request.now) as record:
            record.require_current(request.fence, request.now)
            current = record.current
            if current is not None and current.state != "running":
                if current.state != request.state:
                    raise ended(request.scope, request.fence, current.state, record.standing)
                # sent again; what was stored since must not be cleared
                return
            if record.current is not None:
                record.current = replace(
                    record.current,
                    state=request.state,
                    ended_at=request.now,
                    reason=request.reason,
                    result=request.result,
                    arguments=request.arguments,
                )
            record.state, record.updated_at = request.state, request.now
            if request.clear:
                record.bury_all("clear", request.now, None, request.history)

    def attempts(self, scope: HeldScope) -> list[Attempt]:
        """See `Backend.attempts`."""
        with self._records.lock:
            found = self._records.find(scope)
            attempts = (
                [one.shown(*key) for key, one in found.attempts.items() if one.state != "deleted"]
                if found
                else []
            )
        attempts.sort(key=lambda one: (one.incarnation, one.try_number, one.started_at), reverse=True)
        return attempts

    def outcome(self, scope: HeldScope) -> Outcome | None:
        """See `Backend.outcome`."""
        with self._records.lock:
            found = self._records.find(scope)
            attempt = found.current if found else None
            if found is None or attempt is None or attempt.state != "success":
                return None
            return Outcome(found.standing.try_number or 0, attempt.result, attempt.arguments)

    # ------------------------------------------------------------------------------------------- removal

    def delete_run(self, dag_id: str, run_id: str, *, now: int, session: Session | None = None) -> int:
        """See `Backend.delete_run`."""
        with self._records.lock:
            repeated = self._answered.before(session)
            if repeated is not None:
                return repeated.version
            doomed = self._records.of_run(dag_id, run_id)
            for _, record in doomed:
                record.bury(now)
            count = sum(isinstance(scope, TaskScope) for scope, _ in doomed)
            self._answered.note(session, Applied(count, 0), now)
            return count

    def delete_asset(self, scope: AssetScope, *, now: int, session: Session | None = None) -> bool:
        """See `Backend.delete_asset`."""
        with self._records.lock:
            repeated = self._answered.before(session)
            if repeated is not None:
                return repeated.version == 1
            found = self._records.find(scope)
            if found is not None:
                del self._records.kept[found.scope]
            self._answered.note(session, Applied(int(found is not None), 0), now)
            return found is not None

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
        """See `Backend.purge`; a dry run is the real one, on a copy."""
        if dry_run:
            real = self._copy().purge(
                now=now, batch_size=batch_size, idle=idle, history=history, sessions=sessions
            )
            yield from (replace(report, dry_run=True) for report in real)
            return
        spared = cleanup.runs_with_tasks(self._records)
        while report := cleanup.sweep_entries(self._records, now, batch_size):
            yield report
        while report := cleanup.sweep_scopes(self._records, now, batch_size, idle, spared):
            yield report
        while report := self._sweep_sessions(now, batch_size, sessions):
            yield report

    def _copy(self) -> MemoryBackend:
        twin = MemoryBackend()
        with self._records.lock:
            twin._records = self._records.copy()
            twin._answered = self._answered.copy()
        return twin

    def _sweep_sessions(self, now: int, limit: int, kept: Sequence[str]) -> CleanupReport | None:
        with self._records.lock:
            return self._answered.sweep(now, limit, kept)

    # -------------------------------------------------------------------------------------------- copies

    def images(self, selection: Selection, *, now: int, after: int, limit: int) -> list[tuple[int, Image]]:
        """See `Copyable.images`."""
        return images.selected(self._records, selection, now, after, limit)

    def take_in(self, several: Sequence[Image], *, now: int, overwrite: bool = False) -> list[Fate]:
        """See `Copyable.take_in`."""
        del now
        with self._records.lock:
            return [images.take_in(self._records, image, overwrite=overwrite) for image in several]

    def tally(self, selection: Selection, *, now: int) -> Tally:
        """See `Copyable.tally`."""
        return images.tally(self._records, selection, now)

    def check_writable(self) -> None:
        """Memory can be written."""

    def close(self) -> None:
        """Nothing was opened."""
