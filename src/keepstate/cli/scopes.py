"""What a command works on: the scope that its options name, else the one that `keepstate run` supervises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepstate.backends.requests import Fence
from keepstate.cli.options import NOTHING, Named
from keepstate.errors import InvalidInputError
from keepstate.scope import AssetScope, RunScope, TaskScope, Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from keepstate.accessors import AssetStateStore, TaskStateStore
    from keepstate.scope import Scope
    from keepstate.settings import Settings
    from keepstate.store import StateStore

_NAMES = ("dag_id", "run_id", "task_id")


class Target:
    """A scope, and in whose name it is used: a person's, or that of the attempt that runs this command."""

    def __init__(self, scope: TaskScope | AssetScope, fence: Fence | None, writer: Writer) -> None:
        self.scope = scope
        self.fence = fence
        self.writer = writer

    @property
    def by_person(self) -> bool:
        """Whether a person uses it, and not a supervised attempt."""
        return self.writer.kind != "task"

    @property
    def kind(self) -> str:
        """What the scope is called."""
        return "asset" if isinstance(self.scope, AssetScope) else "task instance"

    @property
    def name(self) -> str:
        """The scope's name, without its kind."""
        return str(self.scope).removeprefix("asset ") if self.kind == "asset" else str(self.scope)

    def accessor(self, store: StateStore) -> TaskStateStore | AssetStateStore:
        """Return the scope's accessor."""
        if isinstance(self.scope, AssetScope):
            return store.asset(self.scope.name, uri=self.scope.uri, writer=self.writer)
        return store.bound(self.scope, self.fence, self.writer)

    def set(
        self,
        store: StateStore,
        key: str,
        value: Any,
        *,
        retention: timedelta | None,
        if_version: int | None,
    ) -> None:
        """Write a value."""
        if isinstance(self.scope, TaskScope):
            task = store.bound(self.scope, self.fence, self.writer)
            task.set(key, value, retention=retention, if_version=if_version)
            return
        if retention is not None:
            raise InvalidInputError("an asset's entries last until they are deleted: leave out --retention")
        store.asset(self.scope.name, uri=self.scope.uri, writer=self.writer).set(
            key, value, if_version=if_version
        )


def choose(settings: Settings, named: Named) -> Target:
    """Return the target that the options name; without any, the supervised task instance, fenced as its attempt.

    Options and environment are never mixed, so that no command hits half of somebody else's scope. Raises
    ``InvalidInputError`` naming what is missing.
    """
    if named.asset is not None or named.asset_uri is not None:
        if named != Named(asset=named.asset, asset_uri=named.asset_uri):
            raise InvalidInputError("give either --asset or a task instance's ids, not both")
        return Target(AssetScope(named.asset, named.asset_uri), None, writer_of_asset(settings))
    if named != NOTHING:
        given = {name: getattr(named, name) for name in _NAMES}
        rule = "a task instance is named by --dag-id, --run-id and --task-id together"
        if named.dag_id and named.run_id:
            rule += "; `keepstate runs show` lists the tasks of a run"
        dag, run, task = _whole(given, _option, rule)
        return Target(
            TaskScope(dag, run, task, -1 if named.map_index is None else named.map_index), None, person()
        )
    supervised = {name: getattr(settings, name) for name in _NAMES}
    if not any(supervised.values()):
        raise InvalidInputError(
            "say which entries are meant: give --dag-id, --run-id and --task-id (or set KEEPSTATE_DAG_ID, KEEPSTATE_RUN_ID and "
            "KEEPSTATE_TASK_ID), or --asset, or run this under `keepstate run`"
        )
    dag, run, task = _whole(
        supervised, _variable, "set all three variables, or give --dag-id, --run-id and --task-id"
    )
    scope = TaskScope(dag, run, task, settings.map_index)
    if settings.try_number is None:
        return Target(scope, None, person())
    return Target(
        scope,
        Fence(settings.try_number, settings.attempt_id),
        Writer("task", try_number=settings.try_number),
    )


def writer_of_asset(settings: Settings) -> Writer:
    """Return who writes to an asset: the supervised attempt with its ids, or a person."""
    if settings.try_number is None or not all(getattr(settings, name) for name in _NAMES):
        return person()
    return Writer(
        "task",
        dag_id=settings.dag_id,
        run_id=settings.run_id,
        task_id=settings.task_id,
        map_index=settings.map_index,
        try_number=settings.try_number,
    )


def known(store: StateStore, scope: Scope) -> bool:
    """Whether a scope has ever been there: something was written to it, or it was begun."""
    if not isinstance(scope, AssetScope) and store.backend.attempts(scope):
        return True
    if isinstance(scope, RunScope):
        return bool(store.task_instances(scope.dag_id, scope.run_id, limit=1))
    return store.backend.read(scope, [], now=store.clock()).version > 0


def choose_run(settings: Settings, dag_id: str | None, run_id: str | None) -> tuple[str, str]:
    """Return the run that the options name; without any, the supervised one."""
    if dag_id is None and run_id is None:
        dag_id, run_id = settings.dag_id, settings.run_id
    given = {"dag_id": dag_id, "run_id": run_id}
    dag, run = _whole(given, _option, "a run is named by --dag-id and --run-id together")
    return dag, run


def person() -> Writer:
    """Return the writer that stands for whoever runs this command."""
    import os

    try:
        import pwd

        name = pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        # no such database on this system, or a container's user without a name
        return Writer("cli")
    return Writer("cli", name=name)


def _whole(given: dict[str, str | None], spelled: Callable[[str], str], rule: str) -> list[str]:
    missing = [spelled(name) for name, value in given.items() if not value]
    if missing:
        is_are = "is" if len(missing) == 1 else "are"
        raise InvalidInputError(f"{' and '.join(missing)} {is_are} missing: {rule}")
    return [value for value in given.values() if value]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _variable(name: str) -> str:
    return f"KEEPSTATE_{name.upper()}"
