"""The verbs of `backends.base` over a dict of records.

One lock makes each verb atomic. A verb that changes a scope works on a copy of its record, which takes the original's
place when nothing was raised: so each is all or nothing.
"""

from __future__ import annotations

import itertools
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from keepstate.backends.answers import (
    MOST_IN_A_GRID,
    Applied,
    Begun,
    GridRun,
    GridTask,
    KeyOfAsset,
    KeyOfTask,
    Outcome,
    Reading,
)
from keepstate.backends.fencing import Verdict
from keepstate.backends.images import Fate, Tally, may_replace
from keepstate.backends.memory import images
from keepstate.backends.memory.record import Record
from keepstate.backends.refusals import ended, unknown
from keepstate.backends.requests import Fence, HistoryPolicy
from keepstate.clock import DAY, to_datetime, to_micros
from keepstate.errors import BackendError, InvalidIdError
from keepstate.patterns import fits
from keepstate.scope import (
    AssetInfo,
    AssetScope,
    CleanupReport,
    DagInfo,
    RunInfo,
    RunScope,
    TaskInstanceInfo,
    TaskScope,
    check_attempt,
    which_asset,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keepstate.backends.answers import ChangeNotice, StoredVersion
    from keepstate.backends.images import Image, Selection
    from keepstate.backends.requests import Batch, Begin, Clear, End, EntryScope, HeldScope, Session
    from keepstate.scope import Attempt, Scope, Writer

# no client tries a request again for this long
_SESSION_LASTS = DAY


class MemoryBackend:
    """Keeps every promise but durability. Threads may share it; nothing is left of it when the process ends."""

    address = "memory:"
    guide_only = False

    def __init__(self) -> None:
        """Begin empty."""
        # reentrant, as clearing all map indices changes several scopes
        self._lock = threading.RLock()
        self._records: dict[Scope, Record] = {}
        self._sessions: dict[str, tuple[int, Applied, int]] = {}
        self._ids = itertools.count(1)

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
        with self._lock:
            reset = False
            if fence is not None:
                with self._changing(scope, now) as record:
                    record.admit_reader(fence, now, history or HistoryPolicy())
                    reset = record.reset
            found = self._find(scope)
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
        with self._lock:
            if done := self._done_before(batch.session):
                return done
            if batch.known and not self._is_known(batch.scope):
                raise unknown(batch.scope)
            with self._changing(batch.scope, batch.now) as record:
                record.admit(batch.fence, batch.now, batch.history)
                with self._vouching(batch):
                    record.apply(batch)
            return self._answer(record, batch.session, batch.now)

    def clear(self, request: Clear) -> Applied:
        """See `Backend.clear`."""
        with self._lock:
            if done := self._done_before(request.session):
                return done
            siblings = self._siblings(request)
            own = None
            if not request.known or self._is_known(request.scope):
                with self._changing(request.scope, request.now) as own:
                    own.admit(request.fence, request.now, request.history)
                    with self._vouching(request):
                        own.clear(request)
            elif not siblings:
                raise unknown(request.scope)
            for sibling in siblings:
                with self._changing(sibling, request.now) as other:
                    other.clear(request)
            return self._answer(own, request.session, request.now)

    def _is_known(self, scope: EntryScope) -> bool:
        found = self._find(scope)
        return found is not None and not found.standing.deleted

    @contextmanager
    def _vouching(self, request: Batch | Clear) -> Iterator[None]:
        """Refuse a change to an asset by an attempt that has been superseded at its own task."""
        if request.behalf is None:
            yield
            return
        with self._changing(request.behalf.scope, request.now) as own:
            own.admit(request.behalf.fence, request.now, request.history)
            yield

    def _siblings(self, request: Clear) -> list[Scope]:
        own = request.scope
        if not request.all_map_indices or not isinstance(own, TaskScope):
            return []
        return [
            scope
            for scope, _ in self._of_run(own.dag_id, own.run_id)
            if isinstance(scope, TaskScope) and scope.task_id == own.task_id and scope != own
        ]

    def history(
        self, scope: EntryScope, key: str, *, now: int, limit: int | None = None
    ) -> list[StoredVersion]:
        """See `Backend.history`."""
        with self._lock:
            found = self._find(scope)
            return found.history(key, now)[:limit] if found else []

    def changes(self, scope: EntryScope, *, after: int, now: int) -> tuple[int, list[ChangeNotice]]:
        """See `Backend.changes`."""
        with self._lock:
            found = self._find(scope)
            if found is None or found.standing.deleted:
                return 0, []
            return found.version, found.changes(scope, after, now)

    # ------------------------------------------------------------------------------------------ attempts

    def begin(self, request: Begin) -> Begun:
        """See `Backend.begin`."""
        with self._changing(request.scope, request.now) as record:
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
        with self._changing(scope, now) as record:
            record.require_current(fence, now)
            attempt = record.current
            if attempt is not None and attempt.state == "running":
                record.current = replace(attempt, beat_at=now)

    def end(self, request: End) -> None:
        """See `Backend.end`."""
        with self._changing(request.scope, request.now) as record:
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
        with self._lock:
            found = self._find(scope)
            attempts = (
                [one.shown(*key) for key, one in found.attempts.items() if one.state != "deleted"]
                if found
                else []
            )
        attempts.sort(key=lambda one: (one.incarnation, one.try_number, one.started_at), reverse=True)
        return attempts

    def outcome(self, scope: HeldScope) -> Outcome | None:
        """See `Backend.outcome`."""
        with self._lock:
            found = self._find(scope)
            attempt = found.current if found else None
            if found is None or attempt is None or attempt.state != "success":
                return None
            return Outcome(found.standing.try_number or 0, attempt.result, attempt.arguments)

    # --------------------------------------------------------------------------------------------- lists

    def dags(self, *, pattern: str | None = None, limit: int | None = None, offset: int = 0) -> list[DagInfo]:
        """See `Backend.dags`."""
        by_dag: dict[str, list[RunInfo]] = {}
        for info in self._runs(None, pattern):
            by_dag.setdefault(info.dag_id, []).append(info)
        found = [self._dag_info(dag_id, by_dag[dag_id]) for dag_id in sorted(by_dag)]
        return found[offset:][:limit]

    def _dag_info(self, dag_id: str, runs: list[RunInfo]) -> DagInfo:
        last = runs[0]
        with self._lock:
            changes = [to_datetime(one.updated_at) for _, one in self._of_run(dag_id, last.run_id)]
        updated_at = max([*changes, *(info.updated_at for info in runs)])
        return DagInfo(dag_id, len(runs), last.run_id, last.state, last.created_at, updated_at)

    def count_dags(self, *, pattern: str | None = None) -> int:
        """See `Backend.count_dags`."""
        return len({info.dag_id for info in self._runs(None, pattern)})

    def runs(
        self,
        dag_id: str | None = None,
        *,
        pattern: str | None = None,
        run_id: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[RunInfo]:
        """See `Backend.runs`."""
        found = self._runs(dag_id, pattern)
        wanted = found if run_id is None else [run for run in found if run.run_id == run_id]
        return wanted[offset : offset + limit]

    def count_runs(self, dag_id: str | None = None, *, pattern: str | None = None) -> int:
        """See `Backend.count_runs`."""
        return len(self._runs(dag_id, pattern))

    def run(self, scope: RunScope) -> RunInfo | None:
        """See `Backend.run`."""
        with self._lock:
            found = self._records.get(scope)
            return None if found is None or found.standing.deleted else _run_info(scope, found)

    def _runs(self, dag_id: str | None, pattern: str | None) -> list[RunInfo]:
        """Return runs, most recently begun first."""
        with self._lock:
            found = [
                (one.created_at, one.id, _run_info(scope, one))
                for scope, one in self._records.items()
                if isinstance(scope, RunScope)
                and not one.standing.deleted
                and dag_id in {None, scope.dag_id}
                and (pattern is None or fits(pattern, scope.dag_id))
            ]
        found.sort(key=lambda one: one[:2], reverse=True)
        return [info for _, _, info in found]

    def task_instances(
        self, dag_id: str, run_id: str, *, now: int, limit: int | None = None, offset: int = 0
    ) -> list[TaskInstanceInfo]:
        """See `Backend.task_instances`."""
        with self._lock:
            found = [
                _task_instance_info(scope, one, now)
                for scope, one in self._of_run(dag_id, run_id)
                if isinstance(scope, TaskScope)
            ]
        found.sort(key=lambda info: (info.scope.task_id, info.scope.map_index))
        return found[offset:][:limit]

    def count_task_instances(self, dag_id: str, run_id: str) -> int:
        """See `Backend.count_task_instances`."""
        with self._lock:
            return sum(isinstance(scope, TaskScope) for scope, _ in self._of_run(dag_id, run_id))

    def task_instance(self, scope: TaskScope, *, now: int) -> TaskInstanceInfo | None:
        """See `Backend.task_instance`."""
        with self._lock:
            found = self._records.get(scope)
            if found is None or found.standing.deleted:
                return None
            return _task_instance_info(scope, found, now)

    def grid(
        self,
        dag_id: str | None = None,
        *,
        now: int,
        pattern: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> list[GridRun]:
        """See `Backend.grid`."""
        with self._lock:
            runs = self._runs(dag_id, pattern)[offset : offset + limit]
            left = itertools.count()
            found = []
            for run in runs:
                tasks: dict[str, list[TaskInstanceInfo]] = {}
                for one in self.task_instances(run.dag_id, run.run_id, now=now):
                    if next(left) < MOST_IN_A_GRID:
                        tasks.setdefault(one.scope.task_id, []).append(one)
                found.append(GridRun(run, tuple(_grid_task(*item) for item in tasks.items())))
        return found

    def keys(
        self, *, now: int, pattern: str | None = None, runs: int = 40, limit: int = 10_000
    ) -> list[KeyOfTask]:
        """See `Backend.keys`."""
        with self._lock:
            found = [
                KeyOfTask(one.scope, key)
                for run in self._runs(None, pattern)[:runs]
                for one in self.task_instances(run.dag_id, run.run_id, now=now)
                for key in sorted(self._records[one.scope].live(now))
            ]
        return found[:limit]

    def keys_of_assets(
        self, *, now: int, pattern: str | None = None, limit: int = 10_000
    ) -> list[KeyOfAsset]:
        """See `Backend.keys_of_assets`."""
        with self._lock:
            assets = sorted(self._assets(pattern), key=lambda one: str(one[0].name))
            found = [
                KeyOfAsset(record.id, str(scope.name), str(scope.uri), key)
                for scope, record in assets
                for key in sorted(record.live(now))
            ]
        return found[:limit]

    def assets(
        self, *, now: int, pattern: str | None = None, limit: int | None = None, offset: int = 0
    ) -> list[AssetInfo]:
        """See `Backend.assets`."""
        found = [_asset_info(scope, one, now) for scope, one in self._assets(pattern)]
        found.sort(key=lambda info: info.name)
        return found[offset:][:limit]

    def count_assets(self, *, pattern: str | None = None) -> int:
        """See `Backend.count_assets`."""
        return len(self._assets(pattern))

    def asset(self, which: AssetScope | int, *, now: int) -> AssetInfo | None:
        """See `Backend.asset`."""
        with self._lock:
            wanted = which if isinstance(which, int) else getattr(self._find(which), "id", None)
            found = (one for one in self._assets(None) if one[1].id == wanted)
            return next((_asset_info(scope, one, now) for scope, one in found), None)

    def _assets(self, pattern: str | None) -> list[tuple[AssetScope, Record]]:
        with self._lock:
            return [
                (scope, one)
                for scope, one in self._records.items()
                if isinstance(scope, AssetScope)
                and (pattern is None or fits(pattern, str(scope.name)) or fits(pattern, str(scope.uri)))
            ]

    def delete_run(self, dag_id: str, run_id: str, *, now: int, session: Session | None = None) -> int:
        """See `Backend.delete_run`."""
        with self._lock:
            repeated = self._done_before(session)
            if repeated is not None:
                return repeated.version
            doomed = self._of_run(dag_id, run_id)
            for _, record in doomed:
                record.bury(now)
            count = sum(isinstance(scope, TaskScope) for scope, _ in doomed)
            self._note(session, Applied(count, 0), now)
            return count

    def delete_asset(self, scope: AssetScope, *, now: int, session: Session | None = None) -> bool:
        """See `Backend.delete_asset`."""
        with self._lock:
            repeated = self._done_before(session)
            if repeated is not None:
                return repeated.version == 1
            found = self._find(scope)
            if found is not None:
                del self._records[found.scope]
            self._note(session, Applied(int(found is not None), 0), now)
            return found is not None

    def _of_run(self, dag_id: str, run_id: str) -> list[tuple[Scope, Record]]:
        return [
            (scope, record)
            for scope, record in self._records.items()
            if not isinstance(scope, AssetScope)
            and (scope.dag_id, scope.run_id) == (dag_id, run_id)
            and not record.standing.deleted
        ]

    # -------------------------------------------------------------------------------------------- upkeep

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
        spared = self._runs_with_tasks()
        while report := self._sweep_entries(now, batch_size):
            yield report
        while report := self._sweep_scopes(now, batch_size, idle, spared):
            yield report
        while report := self._sweep_sessions(now, batch_size, sessions):
            yield report

    def _copy(self) -> MemoryBackend:
        twin = MemoryBackend()
        with self._lock:
            twin._records = {scope: record.copy() for scope, record in self._records.items()}
            twin._sessions = dict(self._sessions)
        return twin

    def _runs_with_tasks(self) -> set[Scope]:
        """Return the runs that a cleanup spares: each outlasts its task instances by one, however the batches fall."""
        with self._lock:
            return {RunScope(one.dag_id, one.run_id) for one in self._records if isinstance(one, TaskScope)}

    def _sweep_entries(self, now: int, limit: int) -> CleanupReport | None:
        with self._lock:
            due = ((record, key) for record in self._records.values() for key in record.due(now))
            swept = [record.sweep(key, now) for record, key in list(itertools.islice(due, limit))]
        entries, history = (sum(counts) for counts in zip(*swept, strict=True)) if swept else (0, 0)
        return CleanupReport(entries=entries, history=history) if swept else None

    def _sweep_scopes(
        self, now: int, limit: int, idle: int | None, spared: set[Scope]
    ) -> CleanupReport | None:
        with self._lock:
            due = (
                record
                for scope, record in self._records.items()
                if record.may_go(now, idle) and (record.standing.deleted or scope not in spared)
            )
            gone = list(itertools.islice(due, limit))
            for record in gone:
                del self._records[record.scope]
        attempts = sum(len(record.attempts) for record in gone)
        return CleanupReport(scopes=len(gone), attempts=attempts) if gone else None

    def _sweep_sessions(self, now: int, limit: int, kept: Sequence[str]) -> CleanupReport | None:
        with self._lock:
            before = now - _SESSION_LASTS
            old = (
                key
                for key, (_, _, used_at) in self._sessions.items()
                if used_at <= before and key not in kept
            )
            gone = list(itertools.islice(old, limit))
            for key in gone:
                del self._sessions[key]
        return CleanupReport(sessions=len(gone)) if gone else None

    # -------------------------------------------------------------------------------------------- copies

    def images(self, selection: Selection, *, now: int, after: int, limit: int) -> list[tuple[int, Image]]:
        """See `Copyable.images`."""
        with self._lock:
            found = sorted(
                (one.id, scope)
                for scope, one in self._records.items()
                if one.id > after and _is_selected(selection, scope)
            )
            return [
                (place, images.image_of(scope, self._records[scope], now)) for place, scope in found[:limit]
            ]

    def take_in(self, several: Sequence[Image], *, now: int, overwrite: bool = False) -> list[Fate]:
        """See `Copyable.take_in`."""
        del now
        with self._lock:
            return [self._take_in(image, overwrite=overwrite) for image in several]

    def _take_in(self, image: Image, *, overwrite: bool) -> Fate:
        try:
            found = self._find(image.head.scope)
        except InvalidIdError:
            # its name belongs to one asset here, and its uri to another
            return Fate.CONFLICT
        if found is not None:
            fate = may_replace(image, images.head_of(found.scope, found), found.copied)
            if fate is Fate.UNCHANGED:
                found.copied = found.copied or image.head.fingerprint
                return fate
            if fate is Fate.CONFLICT and not overwrite:
                return fate
            del self._records[found.scope]
        number = found.id if found else next(self._ids)
        self._records[image.head.scope] = images.record_of(image, number)
        return Fate.COPIED

    def tally(self, selection: Selection, *, now: int) -> Tally:
        """See `Copyable.tally`."""
        with self._lock:
            found = [
                (scope, one)
                for scope, one in self._records.items()
                if not one.standing.deleted and _is_selected(selection, scope)
            ]
        return Tally(
            task_instances=sum(isinstance(scope, TaskScope) for scope, _ in found),
            runs=sum(isinstance(scope, RunScope) for scope, _ in found),
            assets=sum(isinstance(scope, AssetScope) for scope, _ in found),
            entries=sum(len(one.live(now)) for _, one in found),
            attempts=sum(at.state != "deleted" for _, one in found for at in one.attempts.values()),
        )

    def check_writable(self) -> None:
        """Memory can be written."""

    def close(self) -> None:
        """Nothing was opened."""

    # ------------------------------------------------------------------------------------------ plumbing

    @contextmanager
    def _changing(self, scope: Scope, now: int) -> Iterator[Record]:
        """Give a copy of a record to work on, or a new one; it takes its place when nothing was raised."""
        with self._lock:
            found = self._find(scope)
            if isinstance(scope, AssetScope):
                scope = _full_name(scope, found)
            record = replace(found.copy(), scope=scope) if found else Record(next(self._ids), scope, now, now)
            yield record
            if found is not None:
                del self._records[found.scope]
            self._records[scope] = record
            if isinstance(scope, TaskScope) and not record.standing.deleted:
                self._ensure_run(RunScope(scope.dag_id, scope.run_id), now)

    def _ensure_run(self, run: RunScope, now: int) -> None:
        """Make a run appear in lists with its first task instance, after a deletion too."""
        record = self._records.setdefault(run, Record(next(self._ids), run, now, now))
        record.admit(None, now, HistoryPolicy())

    def _find(self, scope: Scope) -> Record | None:
        if not isinstance(scope, AssetScope):
            return self._records.get(scope)
        known = which_asset(scope, [asset for asset in self._records if isinstance(asset, AssetScope)])
        return self._records[known] if known else None

    def _done_before(self, session: Session | None) -> Applied | None:
        """Return the answer given before, where this request was applied before."""
        if session is None or session.id not in self._sessions:
            return None
        number, answer, _ = self._sessions[session.id]
        if number > session.number:
            raise BackendError(
                f"request {session.number} came after request {number} of the same client session, and was not "
                "applied (again); a session's requests must come one after another",
                last_number=number,
            )
        return replace(answer, repeated=True) if number == session.number else None

    def _answer(self, record: Record | None, session: Session | None, now: int) -> Applied:
        answer = Applied(record.version, record.standing.incarnation) if record else Applied(0, 0)
        self._note(session, answer, now)
        return replace(answer, reset=record.reset) if record else answer

    def _note(self, session: Session | None, answer: Applied, now: int) -> None:
        if session is not None:
            self._sessions[session.id] = (session.number, answer, now)


def _is_selected(selection: Selection, scope: Scope) -> bool:
    if isinstance(scope, AssetScope):
        names = (str(scope.name), str(scope.uri))
        wanted = selection.assets
        return selection.has_assets and (wanted is None or any(fits(wanted, name) for name in names))
    return (
        selection.has_runs
        and selection.dag_id in {None, scope.dag_id}
        and selection.run_id in {None, scope.run_id}
        and (selection.dags is None or fits(selection.dags, scope.dag_id))
    )


def _full_name(scope: AssetScope, found: Record | None) -> AssetScope:
    """Return name and uri of an asset as they are known from this request on."""
    if scope.name is not None and scope.uri is not None:
        return scope
    if found is not None and isinstance(found.scope, AssetScope):
        return found.scope
    half = scope.name if scope.name is not None else scope.uri
    return AssetScope(half, half)


def _run_info(scope: RunScope, record: Record) -> RunInfo:
    return RunInfo(
        dag_id=scope.dag_id,
        run_id=scope.run_id,
        state=record.state,
        try_number=record.standing.try_number,
        created_at=to_datetime(record.created_at),
        updated_at=to_datetime(record.updated_at),
    )


def _task_instance_info(scope: TaskScope, record: Record, now: int) -> TaskInstanceInfo:
    return TaskInstanceInfo(
        scope=scope,
        state=record.state,
        try_number=record.standing.try_number,
        version=record.version,
        entries=len(record.live(now)),
        created_at=to_datetime(record.created_at),
        updated_at=to_datetime(record.updated_at),
    )


def _grid_task(task_id: str, infos: list[TaskInstanceInfo]) -> GridTask:
    return GridTask(
        task_id,
        tuple(sorted({info.state for info in infos}, key=lambda state: (state is not None, state))),
        len(infos),
        sum(info.entries for info in infos),
        max((info.try_number for info in infos if info.try_number is not None), default=None),
        min(to_micros(info.created_at) for info in infos),
    )


def _asset_info(scope: AssetScope, record: Record, now: int) -> AssetInfo:
    return AssetInfo(
        id=record.id,
        name=str(scope.name),
        uri=str(scope.uri),
        entries=len(record.live(now)),
        created_at=to_datetime(record.created_at),
        updated_at=to_datetime(record.updated_at),
    )
