"""Moving entries between keepstate and the two tables that Airflow 3.3 has of its own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timezone
from typing import TYPE_CHECKING, Any

from keepstate.backends.requests import Batch, Clear, Put
from keepstate.clock import optional_datetime, to_micros
from keepstate.errors import ConfigurationError
from keepstate.integrations.airflow.hooks import series
from keepstate.scope import AssetScope, TaskScope, Writer, writer_of
from keepstate.values import check_key, decode, encode, is_damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol

    from keepstate.backends.answers import StoredEntry
    from keepstate.backends.requests import EntryScope
    from keepstate.store import StateStore

    class Work(Protocol):
        """Moves all entries one way. Tells of each that can't be moved, and after each few how many were done, of how many."""

        def __call__(  # noqa: D102 - the class says it
            self,
            store: StateStore,
            *,
            keep: bool,
            refused: Callable[[str], None],
            on_progress: Callable[[int, int], None] | None,
        ) -> Moved: ...


_PAGE = 500


@dataclass
class Moved:
    """How many entries were moved, and how many were not.

    There was one of that key already (``present``), nothing to hang it on (``homeless``), or the other side can't hold it
    (``refused``).
    """

    entries: int = 0
    present: int = 0
    homeless: int = 0
    refused: int = 0


def demand_3_3() -> None:
    """Raise ``ConfigurationError`` unless this is the environment of an Airflow that has such tables."""
    try:
        from airflow import __version__ as version
    except ImportError:
        version = None
    if version is None or series(version) != "3.3":
        found = "there is no Airflow" if version is None else f"this is Airflow {version}"
        raise ConfigurationError(
            f"entries can be moved in the environment of Airflow 3.3, and {found}; run this where its scheduler runs"
        )


def export_to_airflow(
    store: StateStore,
    *,
    keep: bool,
    refused: Callable[[str], None],
    on_progress: Callable[[int, int], None] | None = None,
) -> Moved:
    """Write what has not expired into Airflow's own tables, and clear it here unless it is to be kept.

    What Airflow has already stays as it is there, and what is damaged stays here. An interrupted export may be run again.
    """
    from airflow.utils.session import create_session

    moved = Moved()
    scopes = _scopes_of(store)
    for number, scope in enumerate(scopes, 1):
        entries = store.backend.read(scope, None, now=store.clock()).entries
        with create_session(scoped=False) as session:
            own = _of_airflow(scope, session)
            gone = [_export(scope, entry, own, session, moved, refused) for entry in entries]
        if gone and not keep and all(gone):
            store.backend.clear(
                Clear(scope, store.clock(), Writer("cli"), history=store.history_policy, known=True)
            )
        if on_progress is not None:
            on_progress(number, len(scopes))
    return moved


def _scopes_of(store: StateStore) -> list[EntryScope]:
    """Return every scope that holds anything."""
    scopes: list[EntryScope] = []
    offset = 0
    while runs := store.runs(limit=_PAGE, offset=offset):
        offset += len(runs)
        for run in runs:
            scopes += [one.scope for one in store.task_instances(run.dag_id, run.run_id) if one.entries]
    scopes += [AssetScope(asset.name) for asset in store.assets() if asset.entries]
    return scopes


def _of_airflow(scope: EntryScope, session: Any) -> Any:
    """Return the scope in Airflow's words, or ``None`` where it knows no such run or asset."""
    from airflow.models.asset import AssetModel
    from airflow.models.dagrun import DagRun
    from airflow.state import AssetScope as AirflowAsset
    from airflow.state import TaskScope as AirflowTask
    from sqlalchemy import select

    if isinstance(scope, TaskScope):
        query = select(DagRun.id).where(DagRun.dag_id == scope.dag_id, DagRun.run_id == scope.run_id)
        known = session.scalar(query)
        return known and AirflowTask(scope.dag_id, scope.run_id, scope.task_id, scope.map_index)
    number = session.scalar(select(AssetModel.id).where(AssetModel.name == scope.name))
    return None if number is None else AirflowAsset(asset_id=number)


def _export(
    scope: EntryScope,
    entry: StoredEntry,
    own: Any,
    session: Any,
    moved: Moved,
    refused: Callable[[str], None],
) -> bool:
    """Write one entry, and return whether Airflow has it now."""
    from airflow._shared.state import AssetStateStoreWriterKind
    from airflow.state.metastore import MetastoreBackend

    if own is None:
        moved.homeless += 1
        return False
    native = MetastoreBackend()
    if native.get(own, entry.key, session=session) is not None:
        moved.present += 1
        return True
    if is_damaged(entry.text):
        moved.refused += 1
        refused(f"the key {entry.key!r} of {scope}, as its value is damaged")
        return False
    if hasattr(own, "dag_id"):
        native.set(
            own, entry.key, entry.text, expires_at=optional_datetime(entry.expires_at), session=session
        )
    else:
        native.set_asset_state_store(
            own, entry.key, entry.text, kind=AssetStateStoreWriterKind.API, session=session
        )
        _copy_writer(own.asset_id, entry, session)
    moved.entries += 1
    return True


def _copy_writer(asset_id: int, entry: StoredEntry, session: Any) -> None:
    """Have an asset's entry say who wrote it first: Airflow's own call would demand a task that still exists."""
    from airflow.models.asset_state_store import AssetStateStoreModel
    from sqlalchemy import update

    writer = writer_of(entry.writer)
    if writer is None or writer.kind != "task" or writer.task_id is None:
        return
    session.execute(
        update(AssetStateStoreModel)
        .where(AssetStateStoreModel.asset_id == asset_id, AssetStateStoreModel.key == entry.key)
        .values(
            last_updated_by_kind="task",
            last_updated_by_dag_id=writer.dag_id,
            last_updated_by_run_id=writer.run_id,
            last_updated_by_task_id=writer.task_id,
            last_updated_by_map_index=writer.map_index,
        )
    )


def import_from_airflow(
    store: StateStore,
    *,
    keep: bool,
    refused: Callable[[str], None],
    on_progress: Callable[[int, int], None] | None = None,
) -> Moved:
    """Write what Airflow's own tables hold into the store, and delete it there unless it is to be kept.

    What the store has already stays as it is here. What has expired is left to Airflow's cleanup, and so is what this store
    can't hold. An interrupted import may be run again.
    """
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    moved, done = Moved(), 0
    tables = (TaskStateStoreModel, AssetStateStoreModel)
    with create_session(scoped=False) as session:
        due = sum(session.scalar(select(func.count()).select_from(table)) for table in tables)
    for table in tables:
        for rows, assets in _pages(table):
            here = [row for row in rows if _import(row, assets, store, moved, refused)]
            if not keep:
                _delete(table, here)
            done += len(rows)
            if on_progress is not None:
                on_progress(done, due)
    return moved


def _pages(table: Any) -> Iterator[tuple[Sequence[Any], dict[int, Any]]]:
    """Yield the rows of one of Airflow's tables, a page at a time, with the assets that they belong to.

    No transaction is open meanwhile: the store may be in the same SQLite file.
    """
    from airflow.models.asset import AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import inspect, select, tuple_

    keys = inspect(table).primary_key
    query = select(table).order_by(*keys).limit(_PAGE)
    page = query
    while True:
        with create_session(scoped=False) as session:
            rows = session.scalars(page).all()
            wanted = {row.asset_id for row in rows if hasattr(row, "asset_id")}
            found = session.scalars(select(AssetModel).where(AssetModel.id.in_(wanted))) if wanted else ()
            assets = {asset.id: asset for asset in found}
            session.expunge_all()
        if not rows:
            return
        yield rows, assets
        page = query.where(tuple_(*keys) > tuple(getattr(rows[-1], key.name) for key in keys))


def _import(
    row: Any, assets: dict[int, Any], store: StateStore, moved: Moved, refused: Callable[[str], None]
) -> bool:
    """Write one row, and return whether the store has it now."""
    expires_at = getattr(row, "expires_at", None)
    if expires_at is not None:
        if expires_at.tzinfo is None:
            expires_at = expires_at.replace(tzinfo=timezone.utc)
        expires_at = to_micros(expires_at)
        if expires_at <= store.clock():
            return False
    of_asset = hasattr(row, "asset_id")
    if of_asset and row.asset_id not in assets:
        moved.homeless += 1
        return False
    try:
        scope, writer = _of_asset(row, assets[row.asset_id]) if of_asset else _of_task(row)
        # the compact form of it: that is what sizes are counted of
        put = Put(check_key(row.key), encode(decode(row.value)), expires_at)
    except ValueError as exc:
        moved.refused += 1
        refused(f"the key {row.key!r:.200} of {_named(row, assets)}: {exc}")
        return False
    if store.backend.read(scope, [put.key], now=store.clock()).entries:
        moved.present += 1
    else:
        store.backend.apply(Batch(scope, (put,), store.clock(), writer, history=store.history_policy))
        moved.entries += 1
    return True


def _of_task(row: Any) -> tuple[EntryScope, Writer]:
    return TaskScope(row.dag_id, row.run_id, row.task_id, row.map_index), Writer("task")


def _of_asset(row: Any, asset: Any) -> tuple[EntryScope, Writer]:
    writer = Writer(
        row.last_updated_by_kind or "api",
        row.last_updated_by_dag_id,
        row.last_updated_by_run_id,
        row.last_updated_by_task_id,
        row.last_updated_by_map_index,
    )
    return AssetScope(asset.name, asset.uri), writer


def _named(row: Any, assets: dict[int, Any]) -> str:
    if hasattr(row, "asset_id"):
        return f"asset {assets[row.asset_id].name!r}"
    return f"task instance {row.dag_id} / {row.run_id} / {row.task_id} / {row.map_index}"


def _delete(table: Any, rows: Sequence[Any]) -> None:
    """Delete rows from one of Airflow's tables, except for those that were written anew since they were read."""
    from airflow.utils.session import create_session
    from sqlalchemy import delete, inspect

    with create_session(scoped=False) as session:
        for row in rows:
            as_read = [
                getattr(table, name) == getattr(row, name)
                for name in (*(key.name for key in inspect(table).primary_key), "updated_at")
            ]
            session.execute(delete(table).where(*as_read))
