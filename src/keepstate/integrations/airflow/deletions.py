"""When Airflow deletes a run, what its tasks stored goes too; so does the state of an asset that no DAG names any more."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from keepstate.errors import UnsupportedError
from keepstate.integrations.airflow import metadata
from keepstate.integrations.airflow.hooks import is_airflow_2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from keepstate.scope import AssetInfo
    from keepstate.store import StateStore

log = logging.getLogger("keepstate")

_DELETED = "keepstate_deleted_runs"
_PAGE = 500
_LOOKED_AT = 20


def extend(module: ModuleType) -> None:
    """Watch for runs that are deleted by this process.

    It is done once the deletion is committed, over a connection of keepstate's own, so that neither waits for the other. A
    deletion that gets past this, made by another program say, is noticed by `sweep`.
    """
    from sqlalchemy import event, select
    from sqlalchemy.orm import Session, object_session

    kind = module.__dict__["DagRun"]

    def noted(_mapper: Any, _connection: Any, run: Any) -> None:
        session = object_session(run)
        if session is not None:
            session.info.setdefault(_DELETED, set()).add((run.dag_id, run.run_id))

    def noted_in_bulk(execution: Any) -> None:
        mapper = execution.bind_mapper
        if not execution.is_delete or mapper is None or mapper.class_ is not kind:
            return
        # asked for while they are there: afterwards nobody says which ones went
        which = select(kind.dag_id, kind.run_id)
        session, condition = execution.session, execution.statement.whereclause
        try:
            with session.no_autoflush:
                runs = session.execute(which if condition is None else which.where(condition)).all()
        except Exception as exc:  # noqa: BLE001 - Airflow's deletion is not to fail for this, and a sweep finds the runs
            log.debug("keepstate can't tell which runs are deleted: %s", exc)
            return
        session.info.setdefault(_DELETED, set()).update((run.dag_id, run.run_id) for run in runs)

    event.listen(kind, "after_delete", noted)
    event.listen(Session, "do_orm_execute", noted_in_bulk)
    event.listen(Session, "after_commit", _committed)
    event.listen(Session, "after_rollback", lambda session: session.info.pop(_DELETED, None))


def extend_3_3(module: ModuleType) -> None:
    """Watch for deleted runs where keepstate is the backend of Airflow 3.3; elsewhere it has nothing there."""
    from keepstate.integrations.airflow import configuration

    if configuration.load().backend == configuration.BACKEND:
        extend(module)


def _committed(session: Any) -> None:
    runs = session.info.pop(_DELETED, None)
    if not runs:
        return
    try:
        store = metadata.store()
        if len(runs) > _PAGE:
            # most have no state, and asking for each takes long
            stored = (page for dag_id in {dag_id for dag_id, _ in runs} for page in _pages(store, dag_id))
            runs = {run for page in stored for run in page} & runs
        for run in runs:
            store.delete_run(*run)
    except UnsupportedError:
        log.debug("the class of [state_store] backend can't be told that runs were deleted")
    except Exception as exc:  # noqa: BLE001 - Airflow's deletion is done; what is left over goes with a later sweep
        log.warning("The state of deleted runs could not be deleted yet: %s", exc)


def sweep(store: StateStore) -> int:
    """Delete the state of runs that Airflow no longer knows; return how many they were.

    A store at ``KEEPSTATE_URL`` may hold those of another Airflow besides, so there nothing is swept.
    """
    if store.settings.url is not None:
        return 0
    unknown = [run for page in _pages(store) for run in sorted(set(page) - _known(page))]
    gone = [run for run in unknown if _was_airflow_s(store, *run)]
    for run in gone:
        store.delete_run(*run)
    return len(gone)


def _pages(store: StateStore, dag_id: str | None = None) -> Iterator[list[tuple[str, str]]]:
    offset = 0
    while runs := store.runs(dag_id, limit=_PAGE, offset=offset):
        offset += len(runs)
        yield [(run.dag_id, run.run_id) for run in runs]


def _was_airflow_s(store: StateStore, dag_id: str, run_id: str) -> bool:
    """Whether Airflow's tasks have used the store in a run: their tries have ids, and no process of keepstate's own holds them.

    Scripts may share the database, by way of `keepstate serve`, say; what they store is not Airflow's to delete.
    """
    return any(
        attempt.attempt_id is not None and attempt.host is None
        for one in store.task_instances(dag_id, run_id, limit=_LOOKED_AT)
        for attempt in store.attempts(dag_id, run_id, one.scope.task_id, map_index=one.scope.map_index)
    )


def _known(runs: list[tuple[str, str]]) -> set[tuple[str, str]]:
    from airflow.models.dagrun import DagRun
    from airflow.settings import engine
    from sqlalchemy import select
    from sqlalchemy.orm import Session

    # by the columns each, as not every database compares pairs; what is too much is sorted out here
    query = select(DagRun.dag_id, DagRun.run_id).where(
        DagRun.dag_id.in_({dag_id for dag_id, _ in runs}), DagRun.run_id.in_({run_id for _, run_id in runs})
    )
    with Session(engine) as session:
        return {(row.dag_id, row.run_id) for row in session.execute(query)}


def sweep_assets(store: StateStore) -> int:
    """Delete the state of assets that no DAG names any more, as Airflow 3.3 does; return how many they were.

    Only of those that Airflow has had: what scripts call an asset is theirs. Before 3.1, Airflow does not know which assets are
    inlets, and so takes some for unused that are not. A store at ``KEEPSTATE_URL`` is left alone, as by `sweep`.
    """
    if store.settings.url is not None or is_airflow_2():
        return 0
    from airflow.models import asset as models

    if not hasattr(models, "TaskInletAssetReference"):
        return 0
    gone: list[AssetInfo] = []
    offset = 0
    while assets := store.assets(limit=_PAGE, offset=offset):
        offset += len(assets)
        gone += _unnamed(assets)
    return sum(store.delete_asset(asset.name, uri=asset.uri) for asset in gone)


def _unnamed(assets: list[AssetInfo]) -> list[AssetInfo]:
    from airflow.models.asset import AssetActive, AssetModel
    from airflow.settings import engine
    from sqlalchemy import or_, select
    from sqlalchemy.orm import Session

    def having(table: Any) -> Any:
        names, uris = {one.name for one in assets}, {one.uri for one in assets}
        return select(table.name, table.uri).where(or_(table.name.in_(names), table.uri.in_(uris)))

    with Session(engine) as session:
        had = {(row.name, row.uri) for row in session.execute(having(AssetModel))}
        active = session.execute(having(AssetActive)).all()
    names, uris = {row.name for row in active}, {row.uri for row in active}
    return [
        one for one in assets if (one.name, one.uri) in had and one.name not in names and one.uri not in uris
    ]
