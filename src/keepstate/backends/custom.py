"""A user's own class as a backend, named by ``[state_store] backend``: written for Airflow 3.3, used as it is."""

from __future__ import annotations

import importlib
import logging
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn, cast

from keepstate.allowance import try_all
from keepstate.backends.answers import (
    Applied,
    Begun,
    ChangeNotice,
    Outcome,
    Reading,
    StoredEntry,
    StoredVersion,
)
from keepstate.backends.requests import (
    Batch,
    Begin,
    Clear,
    End,
    EntryScope,
    Fence,
    HeldScope,
    HistoryPolicy,
    Put,
    Session,
)
from keepstate.clock import optional_datetime
from keepstate.errors import ConfigurationError, UnsupportedError
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
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from keepstate.backends.answers import GridRun, KeyOfAsset, KeyOfTask
    from keepstate.backends.base import Backend

log = logging.getLogger("keepstate")


class BaseStoreBackend(ABC):
    """The base of custom backends, with the method names and signatures of Airflow 3.3's class of that name.

    ``scope`` is a `TaskScope` or an `AssetScope`; values are JSON text, to be given back unchanged. ``session`` is
    Airflow's SQLAlchemy session where Airflow calls, and ``None`` here.
    """

    @abstractmethod
    def get(self, scope: TaskScope | AssetScope, key: str, *, session: Any = None) -> str | None:
        """Return the JSON text under ``key``, or ``None``."""

    @abstractmethod
    def set(
        self,
        scope: TaskScope | AssetScope,
        key: str,
        value: str,
        *,
        expires_at: datetime | None = None,
        session: Any = None,
    ) -> None:
        """Write or overwrite the JSON text under ``key``; it may go after ``expires_at`` (UTC), or never."""

    @abstractmethod
    def delete(self, scope: TaskScope | AssetScope, key: str, *, session: Any = None) -> None:
        """Delete one key; does nothing if it is absent."""

    @abstractmethod
    def clear(
        self,
        scope: TaskScope | AssetScope,
        *,
        all_map_indices: bool = False,
        session: Any = None,
    ) -> None:
        """Delete every key of the scope, of all its map indices if asked."""

    @abstractmethod
    async def aget(self, scope: TaskScope | AssetScope, key: str, *, session: Any = None) -> str | None:
        """Awaitable twin of `get`."""

    @abstractmethod
    async def aset(
        self,
        scope: TaskScope | AssetScope,
        key: str,
        value: str,
        *,
        expires_at: datetime | None = None,
        session: Any = None,
    ) -> None:
        """Awaitable twin of `set`."""

    @abstractmethod
    async def adelete(self, scope: TaskScope | AssetScope, key: str, *, session: Any = None) -> None:
        """Awaitable twin of `delete`."""

    @abstractmethod
    async def aclear(
        self,
        scope: TaskScope | AssetScope,
        *,
        all_map_indices: bool = False,
        session: Any = None,
    ) -> None:
        """Awaitable twin of `clear`."""

    def cleanup(self) -> None:  # noqa: B027 - as in Airflow, a class may leave it out
        """Remove what has expired; does nothing unless overridden."""


class CustomBackend:
    """Serves the guide's four verbs from a user's class. What the class has no method for is refused, not imitated.

    Runs and attempts, of which such a class knows nothing, are noted by ``keeper``: a backend of keepstate's own that is
    opened when the local runtime first asks for it. Without one they are refused too.
    """

    guide_only = True

    def __init__(self, inner: BaseStoreBackend, *, keeper: Callable[[], Backend] | None = None) -> None:
        """Wrap an instance; warns once that attempts are not fenced here."""
        self._inner = inner
        self._open_keeper = keeper
        self._opened: Backend | None = None
        cls = type(inner)
        self.address = f"custom:{cls.__module__}.{cls.__qualname__}"
        self._scopes = _scope_classes(cls)
        log.warning(
            "state lives in %s: a custom class has no fencing, versions or history, so an attempt that was thought dead "
            "may still write there",
            self.address,
        )

    @property
    def inner(self) -> BaseStoreBackend:
        """The user's instance."""
        return self._inner

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
        """Return one entry; the class can't list, nor read several at one moment."""
        del fence, writer, history, limit, offset
        if keys is None or len(keys) != 1:
            self._refuse("read several keys at one moment, or list them")
        text = self._inner.get(self._scope(scope), keys[0])
        if text is None:
            return Reading(0, None)
        return Reading(0, None, (StoredEntry(keys[0], text if texts else "", 0, now, None),))

    def apply(self, batch: Batch) -> Applied:
        """Put or delete one key."""
        if batch.known:
            self._refuse("tell whether a task instance or asset is known")
        if len(batch.changes) != 1:
            self._refuse("change several keys in one transaction")
        (change,) = batch.changes
        if change.expected is not None:
            self._refuse("compare and set")
        scope = self._scope(batch.scope)
        if isinstance(change, Put):
            self._inner.set(scope, change.key, change.text, expires_at=optional_datetime(change.expires_at))
        else:
            self._inner.delete(scope, change.key)
        return Applied(0, 0)

    def clear(self, request: Clear) -> Applied:
        """Clear the scope."""
        if request.known:
            self._refuse("tell whether a task instance or asset is known")
        if request.forget:
            self._refuse("forget a history it does not keep")
        self._inner.clear(self._scope(request.scope), all_map_indices=request.all_map_indices)
        return Applied(0, 0)

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
        """Call the class's own `cleanup`, which tells no counts."""
        del now, batch_size, idle, history, sessions
        if dry_run:
            self._refuse("tell what a cleanup would remove")
        self._inner.cleanup()
        yield CleanupReport()

    def check_writable(self) -> None:
        """Nothing is known of the class's place before it is used."""

    def close(self) -> None:
        """The class has no such method in Airflow; one that has it is closed."""
        closes = [getattr(opened, "close", None) for opened in (self._inner, self._opened)]
        try_all([close for close in closes if callable(close)])

    # ---------------------------------------------------------------------------------- runs and attempts

    @property
    def _keeper(self) -> Backend:
        if self._opened is None:
            if self._open_keeper is None:
                self._refuse("hold attempts, or list runs")
            self._opened = self._open_keeper()
        return self._opened

    def begin(self, request: Begin) -> Begun:
        """See `Backend.begin`. A task instance that is made again finds what the class still holds; another item does not."""
        begun = self._keeper.begin(request)
        if begun.reset and isinstance(request.scope, TaskScope):
            self._inner.clear(self._scope(request.scope))
        return begun

    def beat(self, scope: HeldScope, fence: Fence, *, now: int) -> None:
        """See `Backend.beat`."""
        self._keeper.beat(scope, fence, now=now)

    def end(self, request: End) -> None:
        """See `Backend.end`. The class is cleared after the end is recorded: a crash between leaves entries, no repetition."""
        self._keeper.end(request)
        if request.clear and isinstance(request.scope, TaskScope):
            self._inner.clear(self._scope(request.scope))

    def attempts(self, scope: HeldScope) -> list[Attempt]:
        """See `Backend.attempts`."""
        return self._keeper.attempts(scope)

    def outcome(self, scope: HeldScope) -> Outcome | None:
        """See `Backend.outcome`."""
        return self._keeper.outcome(scope)

    def dags(self, *, pattern: str | None = None, limit: int | None = None, offset: int = 0) -> list[DagInfo]:
        """See `Backend.dags`: those of the local runtime."""
        return self._keeper.dags(pattern=pattern, limit=limit, offset=offset)

    def dag_ids(self, *, pattern: str | None = None, limit: int | None = None, offset: int = 0) -> list[str]:
        """See `Backend.dag_ids`."""
        return self._keeper.dag_ids(pattern=pattern, limit=limit, offset=offset)

    def count_dags(self, *, pattern: str | None = None) -> int:
        """See `Backend.count_dags`."""
        return self._keeper.count_dags(pattern=pattern)

    def runs(
        self,
        dag_id: str | None = None,
        *,
        pattern: str | None = None,
        run_id: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[RunInfo]:
        """See `Backend.runs`: those of the local runtime."""
        return self._keeper.runs(dag_id, pattern=pattern, run_id=run_id, limit=limit, offset=offset)

    def count_runs(self, dag_id: str | None = None, *, pattern: str | None = None) -> int:
        """See `Backend.count_runs`."""
        return self._keeper.count_runs(dag_id, pattern=pattern)

    def run(self, scope: RunScope) -> RunInfo | None:
        """See `Backend.run`."""
        return self._keeper.run(scope)

    def task_instance(self, scope: TaskScope, *, now: int) -> TaskInstanceInfo | None:
        """See `Backend.task_instance`; the class can't tell how many entries it holds."""
        return self._keeper.task_instance(scope, now=now)

    def count_task_instances(self, dag_id: str, run_id: str, task_id: str | None = None) -> int:
        """See `Backend.count_task_instances`."""
        return self._keeper.count_task_instances(dag_id, run_id, task_id)

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
        """See `Backend.task_instances`: those of the local runtime; the class can't tell how many entries they hold."""
        return self._keeper.task_instances(dag_id, run_id, task_id, now=now, limit=limit, offset=offset)

    def grid(
        self,
        dag_id: str | None = None,
        *,
        now: int,
        pattern: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> list[GridRun]:
        """See `Backend.grid`: that of the local runtime; the class can't tell how many entries there are."""
        return self._keeper.grid(dag_id, now=now, pattern=pattern, limit=limit, offset=offset)

    # ------------------------------------------------------------------------------------------- refused

    def keys(
        self, *, now: int, pattern: str | None = None, runs: int = 40, limit: int = 10_000
    ) -> list[KeyOfTask]:
        """Refused."""
        del now, pattern, runs, limit
        self._refuse("list keys")

    def keys_of_assets(
        self, *, now: int, pattern: str | None = None, limit: int = 10_000
    ) -> list[KeyOfAsset]:
        """Refused."""
        del now, pattern, limit
        self._refuse("list keys")

    def history(
        self, scope: EntryScope, key: str, *, now: int, limit: int | None = None
    ) -> list[StoredVersion]:
        """Refused."""
        del scope, key, now, limit
        self._refuse("keep a history")

    def changes(self, scope: EntryScope, *, after: int, now: int) -> tuple[int, list[ChangeNotice]]:
        """Refused."""
        del scope, after, now
        self._refuse("follow changes")

    def assets(
        self, *, now: int, pattern: str | None = None, limit: int | None = None, offset: int = 0
    ) -> list[AssetInfo]:
        """Refused."""
        del now, pattern, limit, offset
        self._refuse("list assets")

    def count_assets(self, *, pattern: str | None = None) -> int:
        """Refused."""
        del pattern
        self._refuse("list assets")

    def asset(self, which: AssetScope | int, *, now: int) -> AssetInfo | None:
        """Refused."""
        del which, now
        self._refuse("tell whether an asset is known")

    def delete_run(self, dag_id: str, run_id: str, *, now: int, session: Session | None = None) -> int:
        """Refused."""
        del dag_id, run_id, now, session
        self._refuse("delete a run")

    def delete_asset(self, scope: AssetScope, *, now: int, session: Session | None = None) -> bool:
        """Refused."""
        del scope, now, session
        self._refuse("delete an asset")

    def _refuse(self, what: str) -> NoReturn:
        raise UnsupportedError(
            f"the custom backend {self.address} can't {what}; it serves get, set, delete, clear, checkpoint() and "
            "ResumableJobMixin. Unset AIRFLOW__STATE_STORE__BACKEND to use keepstate's own store"
        )

    def _scope(self, scope: EntryScope) -> Any:
        task_scope, asset_scope = self._scopes
        if isinstance(scope, TaskScope):
            return task_scope(scope.dag_id, scope.run_id, scope.task_id, scope.map_index)
        return asset_scope(name=scope.name, uri=scope.uri)


def _scope_classes(cls: type) -> tuple[Any, Any]:
    """Return the scope classes that a user's class matches on.

    Airflow ships two copies of its base class, each beside its own scope classes, so the copy that the class derives
    from decides.
    """
    for base in cls.__mro__:
        if base.__name__ == "BaseStoreBackend" and base is not BaseStoreBackend:
            module = sys.modules[base.__module__]
            found = getattr(module, "TaskScope", None), getattr(module, "AssetScope", None)
            if None not in found:
                return found
    return TaskScope, AssetScope


def load(dotted_path: str, *, keeper: Callable[[], Backend]) -> CustomBackend:
    """Make the class named by ``dotted_path``, with ``keeper`` to note runs and attempts.

    Raises ``ConfigurationError`` naming the setting when it can't be used.
    """
    setting = "AIRFLOW__STATE_STORE__BACKEND"
    module_name, _, class_name = dotted_path.rpartition(".")
    if not module_name or not class_name or module_name.startswith("."):
        raise ConfigurationError(
            f"{setting} is {dotted_path!r}, but must be a dotted path like 'my_package.my_module.MyBackend'",
            variable=setting,
            value=dotted_path,
        )
    try:
        cls = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as exc:
        raise ConfigurationError(
            f"{setting} is {dotted_path!r}, which can't be imported: {exc}; it must be importable by this Python "
            f"({sys.executable})",
            variable=setting,
            value=dotted_path,
        ) from exc
    missing = [name for name in ("get", "set", "delete", "clear") if not callable(getattr(cls, name, None))]
    if not isinstance(cls, type) or missing:
        raise ConfigurationError(
            f"{setting} is {dotted_path!r}, which is no class with the methods of BaseStoreBackend"
            + (f" (it lacks {', '.join(missing)})" if missing else ""),
            variable=setting,
            value=dotted_path,
        )
    try:
        return CustomBackend(cast("BaseStoreBackend", cls()), keeper=keeper)
    except TypeError as exc:
        raise ConfigurationError(
            f"{setting} is {dotted_path!r}, which can't be made without arguments: {exc}",
            variable=setting,
            value=dotted_path,
        ) from exc
