"""Runs: what a task's run is, which one goes on, and who holds it."""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from keepstate.allowance import LAST_WORDS, Allowance
from keepstate.backends.requests import Fence
from keepstate.clock import to_datetime
from keepstate.errors import (
    InvalidInputError,
    KeepstateError,
    StaleAttemptError,
)
from keepstate.runtime.attempts import PATIENCE, describe, on_the_way_out
from keepstate.runtime.current import Current
from keepstate.runtime.holding import hold_run
from keepstate.runtime.names import new_run_id, own_name
from keepstate.scope import RunScope, TaskScope
from keepstate.settings import Settings

if TYPE_CHECKING:
    from datetime import datetime
    from types import TracebackType

    from keepstate.accessors import TaskStateStore
    from keepstate.runtime.attempts import HeldAttempt
    from keepstate.store import StateStore

log = logging.getLogger("keepstate.runtime")


class Run:
    """A run, as its tasks see it: ``dag_run`` in their context.

    ``hold`` is the attempt by which this process holds the run alone. In a program under `keepstate run` it is the
    supervisor that holds its task instance, or the run; ``supervised`` names that attempt. ``began_tasks`` and
    ``returned_results`` tell whether its tasks have been run, or had been before, or both.
    """

    def __init__(
        self,
        store: StateStore,
        dag_id: str,
        run_id: str,
        *,
        hold: HeldAttempt | None = None,
        supervised: tuple[TaskScope, Fence] | None = None,
    ) -> None:
        self.store = store
        self.scope = RunScope(dag_id, run_id)
        self._hold = hold
        self._supervised = supervised
        self._lock = threading.Lock()
        self._calls: dict[str, int] = {}
        self._owners: dict[str, object] = {}
        self._began: datetime | None = None
        self.began_tasks = False
        self.returned_results = False
        if supervised is not None and supervised[0].map_index < 0:
            self._owners[supervised[0].task_id] = "the supervised command"

    def __repr__(self) -> str:
        return f"<Run {self.scope}>"

    @property
    def dag_id(self) -> str:
        """The dag's id."""
        return self.scope.dag_id

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.scope.run_id

    @property
    def hold(self) -> HeldAttempt | None:
        """The attempt by which this process holds the run alone, if it does."""
        return self._hold

    @property
    def logical_date(self) -> datetime:
        """When the run first began; the same in every attempt."""
        if self._began is None:
            backend = self.store.backend
            began = [attempt.started_at for attempt in backend.attempts(self.scope)]
            if not began:
                # nobody holds a run that several commands share
                run = backend.run(self.scope)
                began = [] if run is None else [run.created_at]
            self._began = min(began, default=None) or to_datetime(self.store.clock())
        return self._began

    start_date = logical_date

    def check(self) -> None:
        """Raise ``StaleAttemptError`` when the run, or the supervised attempt, was taken over by somebody else."""
        if self._hold is not None:
            self._hold.check()
        elif self._supervised is not None:
            scope, fence = self._supervised
            self.store.backend.beat(scope, fence, now=self.store.clock())

    def name_call(self, task_id: str) -> tuple[str, int]:
        """Return the task id of the next call (``load``, ``load__1``, …), and how many came before."""
        with self._lock:
            earlier = number = self._calls.get(task_id, 0)
            self._calls[task_id] = earlier + 1
            name = f"{task_id}__{number}" if number else task_id
            # the supervised command, an operator, or a call of another name may have it
            while name in self._owners:
                number += 1
                name = f"{task_id}__{number}"
            self._owners[name] = f"a call of the task {task_id!r}"
            return name, earlier

    def claim(self, task_id: str, operator: object) -> None:
        """Note that an operator has this task id; raise ``InvalidInputError`` if another one or a call has."""
        with self._lock:
            owner = self._owners.setdefault(task_id, operator)
        if owner is not operator:
            taken = owner if isinstance(owner, str) else "another operator"
            raise InvalidInputError(
                f"the task id {task_id!r} is used twice in the run {self.scope}: {taken} has it already; "
                "give each operator a task_id of its own"
            )


# --------------------------------------------------------------------------------------------- dag_run


class dag_run:  # noqa: N801 - it is used as a word of the language: with dag_run("nightly"):
    """Name the run of the tasks inside a ``with`` block, and hold it: a second start of it meanwhile is refused.

    ::

        with dag_run("nightly", run_id="2026-11-29"):
            load(extract())

    Without a ``run_id`` the newest unfinished run of the dag goes on, else a new one begins. Tasks that already succeeded in
    the run are not run again. The run succeeds when the block is left, and fails when an exception leaves it.

    Raises ``AlreadyRunningError`` while a living process holds the run, unless ``take_over`` is set: then the other one's
    writes are refused from that moment on, and it ends at its next use of the store.

    ``store`` stays the caller's; ``url`` is opened and closed by the block; by default state lives where `connect` says.
    Inside a program under `keepstate run`, naming the supervised dag (and no other run id) means the supervised run,
    which is the supervisor's to hold and to end.
    """

    def __init__(
        self,
        dag_id: str,
        run_id: str | None = None,
        *,
        store: StateStore | None = None,
        url: str | None = None,
        take_over: bool = False,
    ) -> None:
        if store is not None and url is not None:
            raise InvalidInputError("give dag_run() either a store or a url, not both")
        RunScope(dag_id, "any" if run_id is None else run_id)
        self._dag_id = dag_id
        self._run_id = run_id
        self._store = store
        self._url = url
        self._take_over = take_over
        self._hold: HeldAttempt | None = None
        self._run: Run | None = None
        self._entered: Any = None
        self._opened: StateStore | None = None

    def __enter__(self) -> Run:
        if self._entered is not None:
            raise InvalidInputError(f"this dag_run({self._dag_id!r}) is entered already; make another one")
        store = self._store
        if store is None and self._url is not None:
            from keepstate.connect import connect

            store = self._opened = connect(self._url)
        try:
            self._run = run = self._find_run(store)
        except BaseException:
            self._close()
            raise
        self._entered = _runs.entered(run)
        self._entered.__enter__()
        return run

    def _find_run(self, store: StateStore | None) -> Run:
        settings = Settings.load()
        if store is None and settings.dag_id == self._dag_id and self._run_id in {None, settings.run_id}:
            supervised = _supervised_run(settings)
            if supervised is not None:
                return supervised
        store = store or default_store()
        self._hold = hold = hold_run(store, self._dag_id, self._run_id, take_over=self._take_over)
        assert isinstance(hold.scope, RunScope)  # noqa: S101 - hold_run holds nothing else
        return Run(store, self._dag_id, hold.scope.run_id, hold=hold)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered, self._entered = self._entered, None
        entered.__exit__(None, None, None)
        hold, self._hold = self._hold, None
        run, self._run = self._run, None
        try:
            if hold is not None:
                _end_run(hold, exc)
                # an unnamed run is not met again, once it has succeeded
                if exc is None and self._run_id is not None and run is not None:
                    _tell_if_idle(run)
        finally:
            self._close()

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


def _end_run(hold: HeldAttempt, exc: BaseException | None) -> None:
    if exc is None:
        hold.end("success", patience=PATIENCE)
        return
    try:
        with on_the_way_out(hold.store, exc):
            hold.end("failed", reason=describe(exc))
    except StaleAttemptError:
        log.warning("%s was taken over; its end is somebody else's to record", hold.scope)
    except KeepstateError as trouble:
        log.warning("The end of %s could not be stored: %s", hold.scope, trouble)


def how_to_run_again(scope: RunScope | TaskScope, run_id_option: str) -> str:
    """Say what to do where a run that has succeeded was not meant."""
    import shlex

    ids = f"--dag-id {shlex.quote(scope.dag_id)} --run-id {shlex.quote(scope.run_id)}"
    return (
        f"to run it again, give another {run_id_option}, or erase this run first: keepstate runs delete {ids}"
    )


def _tell_if_idle(run: Run) -> None:
    if run.returned_results and not run.began_tasks:
        again = how_to_run_again(run.scope, "run_id")
        log.warning("%s: its tasks had all succeeded before, and none was run; %s", run.scope, again)


# ------------------------------------------------------------------------------------- which run is current

_runs: Current[Run] = Current("run")
_stores: dict[Settings, StateStore] = {}
_processes: dict[tuple[int, Settings], Run] = {}
_lock = threading.Lock()


def current_run() -> Run:
    """Return the run that code here belongs to: that of a ``dag_run`` block, the supervised one, or the process's own."""
    run = _runs.find()
    if run is not None:
        return run
    settings = Settings.load()
    supervised = _supervised_run(settings)
    if supervised is not None:
        return supervised
    with _lock:
        key = (os.getpid(), settings)
        if key not in _processes:
            store = _open(settings)
            run_id = f"{new_run_id('process', store.clock)}__{os.getpid()}"
            _processes[key] = run = Run(store, own_name(), run_id)
            log.warning(
                "No dag_run is open here, so this process is a run of its own (%s), and another process will not find "
                "what its tasks store. So that a later start can continue, name the run: `with keepstate.dag_run(%r):`, or "
                "start the program with `keepstate run`.",
                run.scope,
                run.dag_id,
            )
        return _processes[key]


def in_dag_run() -> bool:
    """Whether this code stands in a ``dag_run`` block."""
    return _runs.find() is not None


def default_store() -> StateStore:
    """Return the store of this process: where `connect` without a URL says, opened once and closed at exit."""
    with _lock:
        return _open(Settings.load())


def supervised_attempt(settings: Settings) -> tuple[TaskScope, Fence] | None:
    """Return the attempt by which `keepstate run` supervises this program, or ``None`` where it does not.

    Ids alone are no attempt: people export them to look around.
    """
    if settings.dag_id is None or settings.run_id is None or settings.task_id is None:
        return None
    if settings.try_number is None or settings.attempt_id is None:
        return None
    scope = TaskScope(settings.dag_id, settings.run_id, settings.task_id, settings.map_index)
    return scope, Fence(settings.try_number, settings.attempt_id)


def supervised_store(settings: Settings) -> TaskStateStore | None:
    """Return the accessor of the task instance that `keepstate run` supervises, or ``None`` where there is none."""
    supervised = supervised_attempt(settings)
    if supervised is None:
        return None
    scope, fence = supervised
    with _lock:
        store = _open(settings)
        if settings not in _accessors:
            _accessors[settings] = store.task(
                scope.dag_id,
                scope.run_id,
                scope.task_id,
                map_index=scope.map_index,
                try_number=fence.try_number,
                attempt_id=fence.attempt_id,
            )
        return _accessors[settings]


_accessors: dict[Settings, TaskStateStore] = {}


def _supervised_run(settings: Settings) -> Run | None:
    supervised = supervised_attempt(settings)
    if supervised is None:
        return None
    scope, _ = supervised
    with _lock:
        key = (os.getpid(), settings)
        if key not in _processes:
            _processes[key] = Run(_open(settings), scope.dag_id, scope.run_id, supervised=supervised)
        return _processes[key]


def _open(settings: Settings) -> StateStore:
    if settings not in _stores:
        import atexit

        from keepstate.connect import connect

        _stores[settings] = store = connect(settings=settings)
        atexit.register(_close_at_exit, store, os.getpid())
    return _stores[settings]


def _close_at_exit(store: StateStore, process: int) -> None:
    """Write what throttled checkpoints hold back, and close. A forked child must not: its parent has gone on since."""
    if os.getpid() != process:
        return
    try:
        with Allowance(min(store.settings.retry_timeout, LAST_WORDS)):
            store.close()
    except KeepstateError as exc:
        sys.stderr.write(f"keepstate: what was held back could not be stored: {exc}\n")
