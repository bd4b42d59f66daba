"""What a backend must do: a narrow set of atomic verbs on encoded text.

Each verb is all or nothing. A backend that can't keep a promise raises ``UnsupportedError``; none is weakened by
default. Everything above (accessors, checkpoints, jobs, the runtime, the server) is built from these verbs, and
`keepstate.testing.contract` holds every backend to them.

What the verbs take is in `requests` and what they answer in `answers`; who writes a backend finds all of it here.

Times are microseconds since 1970 in UTC and are handed in by the caller. Values are JSON text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from keepstate.backends.answers import (
    MOST_IN_A_GRID,
    MOST_RUNS_COUNTED,
    Applied,
    Begun,
    ChangeNotice,
    GridRun,
    GridTask,
    KeyOfAsset,
    KeyOfTask,
    Outcome,
    Reading,
    StoredEntry,
    StoredToken,
    StoredVersion,
)
from keepstate.backends.fencing import (
    Standing,
    Verdict,
    is_newer,
    judge,
    outlived,
)
from keepstate.backends.refusals import (
    conflict,
    ended,
    stale,
    unknown,
)
from keepstate.backends.requests import (
    Batch,
    Begin,
    Behalf,
    Change,
    Clear,
    Delete,
    End,
    EntryScope,
    Fence,
    HeldScope,
    HistoryPolicy,
    Holder,
    Put,
    Session,
)
from keepstate.scope import (
    AssetInfo,
    AssetScope,
    Attempt,
    CleanupReport,
    DagInfo,
    RunInfo,
    RunScope,
    TaskInstanceInfo,
    TaskScope,
    Writer,
    which_asset,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "MOST_IN_A_GRID",
    "MOST_RUNS_COUNTED",
    "Applied",
    "Backend",
    "Batch",
    "Begin",
    "Begun",
    "Behalf",
    "Change",
    "ChangeNotice",
    "Clear",
    "Delete",
    "End",
    "EntryScope",
    "Fence",
    "GridRun",
    "GridTask",
    "HeldScope",
    "HistoryPolicy",
    "Holder",
    "KeyOfAsset",
    "KeyOfTask",
    "Outcome",
    "Put",
    "Reading",
    "Session",
    "Standing",
    "StoredEntry",
    "StoredToken",
    "StoredVersion",
    "Verdict",
    "conflict",
    "ended",
    "is_newer",
    "judge",
    "outlived",
    "stale",
    "unknown",
    "which_asset",
]


class Backend(Protocol):
    """A place where entries live."""

    address: str
    """Where that is, for people: without passwords or tokens."""

    guide_only: bool
    """Whether only the guide's four verbs work here, unfenced (a custom class)."""

    def read(
        self,
        scope: EntryScope,
        keys: Sequence[str] | None,
        *,
        now: int,
        fence: Fence | None = None,
        writer: Writer | None = None,
        history: HistoryPolicy | None = None,
        limit: int | None = None,
        offset: int = 0,
        texts: bool = True,
    ) -> Reading:
        """Return the live entries under ``keys`` (``None``: all, ordered by key, ``limit`` from ``offset``).

        An unregistered ``fence`` is registered first if it is the newest; a superseded one is served, unless it belongs
        to an earlier incarnation: ``StaleAttemptError``. With ``limit``, ``Reading.total`` counts all live entries.
        Without ``texts``, those of the entries are empty, and no value is read.
        """
        ...

    def apply(self, batch: Batch) -> Applied:
        """Apply a batch. Raises ``StaleAttemptError`` or ``VersionConflictError`` with nothing changed, nor registered."""
        ...

    def clear(self, request: Clear) -> Applied:
        """Remove a scope's entries. Raises ``StaleAttemptError`` with nothing changed."""
        ...

    def history(
        self, scope: EntryScope, key: str, *, now: int, limit: int | None = None
    ) -> list[StoredVersion]:
        """Return the versions of ``key`` whose time has not passed, newest first."""
        ...

    def begin(self, request: Begin) -> Begun:
        """Begin an attempt. Raises ``AlreadyRunningError``, or ``StaleAttemptError`` when a later one stands."""
        ...

    def beat(self, scope: HeldScope, fence: Fence, *, now: int) -> None:
        """Note a sign of life. Raises ``StaleAttemptError`` when the attempt was superseded or taken over."""
        ...

    def end(self, request: End) -> None:
        """Record an attempt's end; doing so twice is fine. Raises ``StaleAttemptError``."""
        ...

    def attempts(self, scope: HeldScope) -> list[Attempt]:
        """Return the attempts of a scope, newest first, those of earlier incarnations too."""
        ...

    def outcome(self, scope: HeldScope) -> Outcome | None:
        """Return how the current attempt succeeded, or ``None`` if it has not."""
        ...

    def changes(self, scope: EntryScope, *, after: int, now: int) -> tuple[int, list[ChangeNotice]]:
        """Return the scope's version, and the keys changed since version ``after``, oldest change first."""
        ...

    def dags(self, *, pattern: str | None = None, limit: int | None = None, offset: int = 0) -> list[DagInfo]:
        """Return the dags that have runs, ordered by id; of each it looks at the ``MOST_RUNS_COUNTED`` newest runs alone.

        ``pattern`` admits what fits it as a whole: ``*`` is any characters, ``?`` one, and case counts.
        """
        ...

    def dag_ids(self, *, pattern: str | None = None, limit: int | None = None, offset: int = 0) -> list[str]:
        """Return the ids of what `dags` lists, which takes a database far less."""
        ...

    def count_dags(self, *, pattern: str | None = None) -> int:
        """Return how many dags `dags` would list without a limit."""
        ...

    def runs(
        self,
        dag_id: str | None = None,
        *,
        pattern: str | None = None,
        run_id: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[RunInfo]:
        """Return runs, most recently begun first: of the dags that fit ``pattern``, and of that id, where these are given."""
        ...

    def count_runs(self, dag_id: str | None = None, *, pattern: str | None = None) -> int:
        """Return how many runs `runs` would list without a limit."""
        ...

    def run(self, scope: RunScope) -> RunInfo | None:
        """Return one run with its tasks' state, or ``None`` where it is not known, or was deleted."""
        ...

    def task_instance(self, scope: TaskScope, *, now: int) -> TaskInstanceInfo | None:
        """Return one task instance, or ``None`` where it is not known, or was deleted."""
        ...

    def count_task_instances(self, dag_id: str, run_id: str, task_id: str | None = None) -> int:
        """Return how many task instances `task_instances` would list without a limit."""
        ...

    def task_instances(
        self,
        dag_id: str,
        run_id: str,
        task_id: str | None = None,
        *,
        now: int,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[TaskInstanceInfo]:
        """Return the task instances of a run, or of one task in it, ordered by task id and map index."""
        ...

    def grid(
        self,
        dag_id: str | None = None,
        *,
        now: int,
        pattern: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> list[GridRun]:
        """Return the runs that `runs` would, each with its tasks; of at most ``MOST_IN_A_GRID`` task instances."""
        ...

    def keys(
        self, *, now: int, pattern: str | None = None, runs: int = 40, limit: int = 10_000
    ) -> list[KeyOfTask]:
        """Return the keys of what live entries the newest ``runs`` of the dags that fit have, those of newer runs first."""
        ...

    def keys_of_assets(
        self, *, now: int, pattern: str | None = None, limit: int = 10_000
    ) -> list[KeyOfAsset]:
        """Return the keys of the live entries of the assets that fit, ordered by the assets' names."""
        ...

    def assets(
        self, *, now: int, pattern: str | None = None, limit: int | None = None, offset: int = 0
    ) -> list[AssetInfo]:
        """Return the assets, ordered by name; with ``pattern``, those whose name or uri fits it."""
        ...

    def count_assets(self, *, pattern: str | None = None) -> int:
        """Return how many assets `assets` would list without a limit."""
        ...

    def asset(self, which: AssetScope | int, *, now: int) -> AssetInfo | None:
        """Return one asset, by what it is called or by its id, or ``None`` where it is not known."""
        ...

    def delete_run(self, dag_id: str, run_id: str, *, now: int, session: Session | None = None) -> int:
        """Erase everything of a run, history included; return how many task instances it had.

        Attempts that still run are stale from then on. With a ``session``, a repeated request leaves alone what was made
        since, and returns what the first one did.
        """
        ...

    def delete_asset(self, scope: AssetScope, *, now: int, session: Session | None = None) -> bool:
        """Erase an asset with its entries and history; return whether it was there. ``session`` as in `delete_run`."""
        ...

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
        """Remove what has expired, lapsed or idled, in transactions of ``batch_size`` rows, yielding each batch's count.

        ``idle`` is how many microseconds after its last change an empty scope goes (``None``: never). ``sessions`` are those
        that the caller goes on using, however old they are.
        """
        ...

    def check_writable(self) -> None:
        """Raise the ``BackendError`` that a write would meet now, without changing anything that is kept."""
        ...

    def close(self) -> None:
        """Release what this backend opened itself. Using it again afterwards is an error."""
        ...
