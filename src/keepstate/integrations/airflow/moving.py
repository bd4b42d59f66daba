"""Moving entries between keepstate and the two tables that Airflow 3.3 has of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timezone
from typing import TYPE_CHECKING, Any

from keepstate.backends.requests import Batch, Clear, Put
from keepstate.clock import optional_datetime, to_micros
from keepstate.errors import ConfigurationError
from keepstate.integrations.airflow.hooks import series
from keepstate.scope import AssetScope, TaskScope, Writer, writer_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.backends.answers import StoredEntry
    from keepstate.backends.requests import EntryScope
    from keepstate.store import StateStore

_PAGE = 500


@dataclass
class Moved:
    """How many entries were moved, and how many stayed: there was one of that key already, or nothing to hang it on."""

    entries: int = 0
    present: int = 0
    homeless: int = 0


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


def export_to_airflow(store: StateStore, *, keep: bool) -> Moved:
    """Write what has not expired into Airflow's own tables, and clear it here unless it is to be kept.

    What Airflow has already stays as it is there. An interrupted export may be run again.
    """
    from airflow.utils.session import create_session

    moved = Moved()
    for scope, entries in _all_of(store):
        with create_session(scoped=False) as session:
            own = _of_airflow(scope, session)
            gone = [_export(entry, own, session, moved) for entry in entries]
        if own is not None and not keep and all(gone):
            store.backend.clear(
                Clear(scope, store.clock(), Writer("cli"), history=store.history_policy, known=True)
            )
    return moved


def _all_of(store: StateStore) -> Iterator[tuple[EntryScope, tuple[StoredEntry, ...]]]:
    """Yield every scope that holds anything, with its entries."""
    scopes: list[EntryScope] = []
    offset = 0
    while runs := store.runs(limit=_PAGE, offset=offset):
        offset += len(runs)
        for run in runs:
            scopes += [one.scope for one in store.task_instances(run.dag_id, run.run_id) if one.entries]
    scopes += [AssetScope(asset.name) for asset in store.assets() if asset.entries]
    for scope in scopes:
        entries = store.backend.read(scope, None, now=store.clock()).entries
        if entries:
            yield scope, entries


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


def _export(entry: StoredEntry, own: Any, session: Any, moved: Moved) -> bool:
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


def import_from_airflow(store: StateStore, *, keep: bool) -> Moved:
    """Write what Airflow's own tables hold into the store, and delete it there unless it is to be kept.

    What the store has already stays as it is here. What has expired is left to Airflow's cleanup.
    """
    from airflow.utils.session import create_session

    moved = Moved()
    with create_session(scoped=False) as session:
        rows = list(_rows(session))
        for row, scope, expires_at, writer in rows:
            if expires_at is not None and expires_at <= store.clock():
                continue
            if store.backend.read(scope, [row.key], now=store.clock()).entries:
                moved.present += 1
            else:
                # the compact form of it: that is what sizes are counted of
                text = json.dumps(json.loads(row.value), ensure_ascii=False, separators=(",", ":"))
                put = Put(row.key, text, expires_at)
                store.backend.apply(Batch(scope, (put,), store.clock(), writer, history=store.history_policy))
                moved.entries += 1
            if not keep:
                session.delete(row)
    return moved


def _rows(session: Any) -> Iterator[tuple[Any, EntryScope, int | None, Writer]]:
    """Yield each row of Airflow's tables, with what it is in our words."""
    from airflow.models.asset import AssetModel
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.models.task_state_store import TaskStateStoreModel
    from sqlalchemy import select

    for row in session.scalars(select(TaskStateStoreModel)):
        scope = TaskScope(row.dag_id, row.run_id, row.task_id, row.map_index)
        expires_at = row.expires_at
        if expires_at is not None and expires_at.tzinfo is None:
            expires_at = expires_at.replace(tzinfo=timezone.utc)
        yield row, scope, None if expires_at is None else to_micros(expires_at), Writer("task")
    for row in session.scalars(select(AssetStateStoreModel)):
        asset = session.get(AssetModel, row.asset_id)
        if asset is None:
            continue
        writer = Writer(
            row.last_updated_by_kind or "api",
            row.last_updated_by_dag_id,
            row.last_updated_by_run_id,
            row.last_updated_by_task_id,
            row.last_updated_by_map_index,
        )
        yield row, AssetScope(asset.name, asset.uri), None, writer
