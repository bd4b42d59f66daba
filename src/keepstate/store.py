"""A place where state lives: makes accessors, lists what there is, and cleans up."""

from __future__ import annotations

import itertools
import logging
import time
import uuid
import weakref
from typing import TYPE_CHECKING

from keepstate.accessors import AssetStateStore, TaskStateStore
from keepstate.allowance import Allowance, try_all
from keepstate.backends.requests import Behalf, Fence, HistoryPolicy
from keepstate.errors import InvalidIdError, KeepstateError
from keepstate.scope import (
    Asset,
    AssetInfo,
    AssetScope,
    Attempt,
    CleanupReport,
    RunInfo,
    RunScope,
    TaskInstanceInfo,
    TaskScope,
    Writer,
    check_attempt,
    check_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from typing_extensions import Self

    from keepstate.backends.base import Backend
    from keepstate.clock import Clock
    from keepstate.settings import Settings

log = logging.getLogger("keepstate")

PURGE_BATCH = 1000
"""Rows per cleanup transaction where ``state_cleanup_batch_size`` is 0: few enough that no writer waits for long."""
_PURGE_BATCH_OF_ONE_WRITER = 250
"""The same where every writer waits, and not only those of the same rows."""

# An embedded store purges a few batches when it is opened, one kind of row after the other, and looks for more after so many
# rows that one process has written. While there are any, it comes back after far fewer, and removes twice as many: the write
# that this comes with should hardly take longer than others.
_BATCHES_AT_A_TIME = 3
_WRITES_BETWEEN_PURGES = 250
_WRITES_WHILE_PURGING = 50
_ROWS_BETWEEN_WRITES = 100
_LONGEST_PAUSE = 0.05


class StateStore:
    """A place where state lives. `keepstate.connect` makes one; it is a context manager, and may be shared by threads."""

    def __init__(
        self,
        backend: Backend,
        *,
        settings: Settings,
        clock: Clock,
        purges_itself: bool = False,
    ) -> None:
        """Wrap ``backend``. ``purges_itself`` is for embedded stores, which no server cleans up."""
        self.backend = backend
        self.settings = settings
        self.clock = clock
        self.history_policy = HistoryPolicy(
            limit=settings.history_limit,
            days=settings.history_days,
            value_bytes=settings.max_value_storage_bytes,
        )
        self._purges_itself = purges_itself
        self._writes = 0
        self._purge_after = _WRITES_BETWEEN_PURGES
        # by id, and no set: its references can be copied in one go, whatever other threads add meanwhile
        self._accessors: weakref.WeakValueDictionary[int, TaskStateStore | AssetStateStore] = (
            weakref.WeakValueDictionary()
        )

    @property
    def has_one_writer(self) -> bool:
        """Whether a write locks the store as a whole, as in a SQLite file."""
        return self.backend.address.startswith("sqlite:")

    def __repr__(self) -> str:
        return f"<StateStore {self.backend.address}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def task(
        self,
        dag_id: str,
        run_id: str,
        task_id: str,
        *,
        map_index: int = -1,
        try_number: int | None = None,
        attempt_id: str | None = None,
        item: str | None = None,
    ) -> TaskStateStore:
        """Return the accessor of a task instance.

        With a ``try_number`` it belongs to that attempt and is fenced: once a later attempt has used the store, it may
        change nothing. ``attempt_id`` is the engine's unique id of the try, ``item`` the fingerprint of a mapped item.
        Without a ``try_number`` it is a person's, and not fenced. Raises ``InvalidIdError`` for ids that can't be used.
        """
        scope = TaskScope(dag_id, run_id, task_id, map_index)
        fence = None
        if try_number is not None:
            check_attempt(try_number, attempt_id, item)
            fence = Fence(try_number, attempt_id, item)
        elif attempt_id is not None or item is not None:
            raise InvalidIdError("attempt_id and item belong to an attempt: give its try_number too")
        writer = Writer("api") if fence is None else Writer("task", try_number=try_number)
        return self.bound(scope, fence, writer)

    def bound(self, scope: TaskScope, fence: Fence | None, writer: Writer) -> TaskStateStore:
        """Return the accessor of a scope for a given attempt and writer: for engines and interfaces."""
        accessor = TaskStateStore(self, scope, fence, writer)
        self._accessors[id(accessor)] = accessor
        return accessor

    def asset(
        self,
        name: str | Asset | None = None,
        *,
        uri: str | None = None,
        writer: Writer | None = None,
        behalf: Behalf | None = None,
    ) -> AssetStateStore:
        """Return the accessor of an asset, by name, by uri, by both, or by `Asset`.

        ``writer`` is recorded with each write; by default it is ``api``. ``behalf`` names the task's attempt that writes: once
        a later attempt of that task has begun, it may change nothing. Raises ``InvalidIdError`` for names that can't be
        used.
        """
        scope = AssetScope(name.name, name.uri) if isinstance(name, Asset) else AssetScope(name, uri)
        accessor = AssetStateStore(self, scope, writer or Writer("api"), behalf)
        self._accessors[id(accessor)] = accessor
        return accessor

    # ----------------------------------------------------------------------------------- lists and upkeep

    def runs(self, dag_id: str | None = None, *, limit: int = 50, offset: int = 0) -> list[RunInfo]:
        """Return runs, of one dag or of all, most recently begun first. Raises ``InvalidIdError`` for what no dag can be called."""
        if dag_id is not None:
            check_id("dag_id", dag_id)
        return self.backend.runs(dag_id, limit=limit, offset=offset)

    def task_instances(
        self, dag_id: str, run_id: str, *, limit: int | None = None, offset: int = 0
    ) -> list[TaskInstanceInfo]:
        """Return the task instances of a run, ordered by task id and map index."""
        run = RunScope(dag_id, run_id)
        return self.backend.task_instances(
            run.dag_id, run.run_id, now=self.clock(), limit=limit, offset=offset
        )

    def attempts(
        self, dag_id: str, run_id: str, task_id: str | None = None, *, map_index: int = -1
    ) -> list[Attempt]:
        """Return the attempts of a task instance, or without a ``task_id`` of the run as a whole, newest first."""
        scope = RunScope(dag_id, run_id) if task_id is None else TaskScope(dag_id, run_id, task_id, map_index)
        return self.backend.attempts(scope)

    def assets(self, *, limit: int | None = None, offset: int = 0) -> list[AssetInfo]:
        """Return the assets, ordered by name."""
        return self.backend.assets(now=self.clock(), limit=limit, offset=offset)

    def delete_run(self, dag_id: str, run_id: str) -> int:
        """Erase everything of a run, history included; return how many task instances it had.

        Attempts of it that still run are stale from then on, and a run made again under its id starts empty.
        """
        run = RunScope(dag_id, run_id)
        return self.backend.delete_run(run.dag_id, run.run_id, now=self.clock())

    def delete_asset(self, name: str | None = None, *, uri: str | None = None) -> bool:
        """Erase an asset with its entries and their history; return whether it was there."""
        return self.backend.delete_asset(AssetScope(name, uri), now=self.clock())

    def cleanup(
        self, *, dry_run: bool = False, on_progress: Callable[[CleanupReport], None] | None = None
    ) -> CleanupReport:
        """Remove what has expired, in batches, from every table; return what was, or with ``dry_run`` would be, removed.

        ``on_progress`` is called after each batch with the sum so far. It may be stopped at any time and run again.
        """
        total = CleanupReport(dry_run=dry_run)
        began = time.monotonic()
        for batch in purge_batches(self, dry_run=dry_run):
            total = _sum(total, batch)
            if on_progress is not None:
                on_progress(total)
            if self.has_one_writer and not dry_run:
                # those that wait look again and again, and would find it taken nearly always
                time.sleep(min(time.monotonic() - began, _LONGEST_PAUSE))
                began = time.monotonic()
        return total

    def count_write(self, rows: int = 1) -> None:
        """Note that so many rows were written: an embedded store cleans up by itself every so many of them."""
        if not self._purges_itself:
            return
        self._writes += rows
        if self._writes >= self._purge_after:
            # whoever writes many at once makes as much to be removed
            batch = max(_ROWS_BETWEEN_WRITES, 2 * self._writes)
            self._writes = 0
            self._purge_quietly(batch, enough=batch)

    def purge_quietly(self) -> None:
        """Remove a few batches of what has expired; trouble is logged, as whoever called wanted something else."""
        self._purge_quietly(PURGE_BATCH, enough=PURGE_BATCH * _BATCHES_AT_A_TIME)

    def _purge_quietly(self, batch: int, *, enough: int) -> None:
        self._purge_after = _WRITES_BETWEEN_PURGES
        removed = 0
        try:
            for report in itertools.islice(purge_batches(self, most_rows=batch), _BATCHES_AT_A_TIME):
                self._purge_after = _WRITES_WHILE_PURGING
                removed += report.entries + report.scopes + report.sessions
                if removed >= enough:
                    break
        except KeepstateError as exc:
            log.warning("cleanup of %s failed, and will be tried again: %s", self.backend.address, exc)

    def flush(self) -> None:
        """Write what throttled checkpoints hold back; the first trouble is raised once all have been tried.

        A store that can't be reached is tried for as long as for one request, however many there are.
        """
        accessors = [accessor for known in self._accessors.valuerefs() if (accessor := known()) is not None]
        with Allowance(self.settings.retry_timeout):
            try_all([accessor.flush for accessor in accessors])

    def close(self) -> None:
        """Write what throttled checkpoints hold back, and release what was opened."""
        try:
            self.flush()
        finally:
            self.backend.close()


def purge_batches(
    store: StateStore, *, dry_run: bool = False, most_rows: int | None = None
) -> Iterator[CleanupReport]:
    """Remove what has expired by now as the store's settings say, a batch each time the next report is asked for.

    ``most_rows`` of a batch are fewer than the settings allow, or count where they say nothing.
    """
    usual = most_rows or (_PURGE_BATCH_OF_ONE_WRITER if store.has_one_writer else PURGE_BATCH)
    batch_size = store.settings.state_cleanup_batch_size or usual
    return store.backend.purge(
        now=store.clock(),
        batch_size=min(batch_size, most_rows or batch_size),
        idle=store.settings.idle_scope_micros,
        history=store.history_policy,
        dry_run=dry_run,
    )


def _sum(total: CleanupReport, batch: CleanupReport) -> CleanupReport:
    counts = {kind: count + batch.counts[kind] for kind, count in total.counts.items()}
    return CleanupReport(**counts, dry_run=total.dry_run)


def new_attempt_id(clock: Clock) -> str:
    """Return a UUIDv7 (RFC 9562, 5.7): ids of later attempts compare as later."""
    millis = clock() // 1000
    bits = uuid.uuid4().int & ((1 << 76) - 1)
    tail = bits & ((1 << 62) - 1)
    return str(
        uuid.UUID(int=(millis << 80) | (0x7 << 76) | ((bits >> 62) & 0xFFF) << 64 | (0b10 << 62) | tail)
    )
