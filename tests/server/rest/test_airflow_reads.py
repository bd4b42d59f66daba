"""Airflow's own client reads dags, runs, task instances and assets."""

from __future__ import annotations

from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest
from airflow_client.client import (
    AssetApi,
    DAGApi,
    DagRunApi,
    MonitorApi,
    TaskInstanceApi,
    VersionApi,
)
from airflow_client.client.exceptions import NotFoundException, UnprocessableEntityException

from keepstate.backends.requests import Begin, End, Fence, Holder
from keepstate.scope import RunScope, TaskScope
from tests.server.rest.places import DAG, RUN, TASK

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_client.client import ApiClient

    from keepstate.accessors import AssetStateStore
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

HOUR = timedelta(hours=1)


@pytest.fixture
def runs(store: StateStore, clock: ManualClock) -> None:
    """Two dags; the second has three runs, one of which has ended."""
    store.task("a", "r", TASK).set("k", 1)
    for run in (RUN, "manual__1", "backfill__2"):
        clock.advance(HOUR)
        store.task(DAG, run, TASK, try_number=2).set("k", 1)
        for index in (0, 1):
            store.task(DAG, run, "mapped", map_index=index).set("k", 1)
    scope, holder = RunScope(DAG, RUN), Holder("h", 1, "s")
    store.backend.begin(Begin(scope, "id", holder, clock(), lease=1))
    clock.advance(HOUR)
    store.backend.end(End(scope, Fence(1, "id"), "failed", clock()))


def test_dags(airflow: Callable[..., ApiClient], runs: None) -> None:
    """In pages, by id; one by its id."""
    api = DAGApi(airflow())
    found = api.get_dags()
    assert ([dag.dag_id for dag in found.dags], found.total_entries) == (["a", DAG], 2)
    assert [dag.dag_id for dag in api.get_dags(limit=1, offset=1).dags] == [DAG]
    dag = api.get_dag(DAG)
    assert (dag.dag_id, dag.dag_display_name, dag.is_paused, dag.owners) == (DAG, DAG, False, [])
    details = api.get_dag_details(DAG)
    assert (details.dag_id, details.catchup, details.is_stale) == (DAG, False, False)
    for call in (api.get_dag, api.get_dag_details):
        with pytest.raises(NotFoundException):
            call("absent")


def test_runs(airflow: Callable[..., ApiClient], runs: None, clock: ManualClock) -> None:
    """Of one dag or of all, most recently begun first, with what is known of their end."""
    api = DagRunApi(airflow())
    found = api.get_dag_runs(DAG)
    assert [run.dag_run_id for run in found.dag_runs] == ["backfill__2", "manual__1", RUN]
    assert [run.run_type.value for run in found.dag_runs] == ["backfill", "manual", "scheduled"]
    assert [run.state.value for run in found.dag_runs] == ["running", "running", "failed"]
    assert found.total_entries == 3
    assert api.get_dag_runs("~").total_entries == 4
    page = api.get_dag_runs("~", limit=2, offset=2)
    assert [run.dag_id for run in page.dag_runs] == [DAG, "a"]
    run = api.get_dag_run(DAG, RUN)
    assert (run.end_date, run.start_date) == (clock.now, clock.now - 3 * HOUR)
    assert run.duration == 3 * 3600
    assert api.get_dag_run(DAG, "manual__1").end_date is None
    for ids in ((DAG, "absent"), ("absent", RUN)):
        with pytest.raises(NotFoundException):
            api.get_dag_run(*ids)
    with pytest.raises(NotFoundException):
        api.get_dag_runs("absent")


def test_task_instances(airflow: Callable[..., ApiClient], runs: None) -> None:
    """Of a run, by task and map index; one by its ids."""
    api = TaskInstanceApi(airflow())
    found = api.get_task_instances(DAG, RUN)
    assert [(one.task_id, one.map_index) for one in found.task_instances] == [
        (TASK, -1),
        ("mapped", 0),
        ("mapped", 1),
    ]
    assert found.total_entries == 3
    assert len(api.get_task_instances(DAG, RUN, limit=1, offset=2).task_instances) == 1
    one = api.get_task_instance(DAG, RUN, TASK)
    assert (one.task_id, one.dag_run_id, one.try_number, one.map_index) == (TASK, RUN, 2, -1)
    assert one.state is not None
    assert one.state.value == "running"
    mapped = api.get_mapped_task_instance(DAG, RUN, "mapped", 1)
    assert (mapped.map_index, mapped.try_number, mapped.state) == (1, 0, None)
    assert mapped.id != one.id
    assert mapped.id == api.get_mapped_task_instance(DAG, RUN, "mapped", 1).id
    with pytest.raises(NotFoundException):
        api.get_task_instance(DAG, RUN, "mapped")
    with pytest.raises(NotFoundException):
        api.get_mapped_task_instance(DAG, RUN, "mapped", 2)
    with pytest.raises(NotFoundException):
        api.get_task_instances(DAG, "absent")


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside one that is not mapped"])
def test_mapped_task_instances(
    airflow: Callable[..., ApiClient], store: StateStore, runs: None, beside: bool
) -> None:
    """Those of one task, in pages."""
    if beside:
        store.task(DAG, RUN, "mapped").set("k", 1)
    api = TaskInstanceApi(airflow())
    found = api.get_mapped_task_instances(DAG, RUN, "mapped")
    assert ([one.map_index for one in found.task_instances], found.total_entries) == ([0, 1], 2)
    page = api.get_mapped_task_instances(DAG, RUN, "mapped", limit=1, offset=1)
    assert ([one.map_index for one in page.task_instances], page.total_entries) == ([1], 2)
    for task in (TASK, "absent"):
        with pytest.raises(NotFoundException):
            api.get_mapped_task_instances(DAG, RUN, task)


def test_tries(airflow: Callable[..., ApiClient], store: StateStore, clock: ManualClock) -> None:
    """The attempts of the incarnation that stands, by their number; only a success is no failure once it has ended."""
    ids = [f"01900000-0000-7000-8000-{number:012x}" for number in range(9)]
    store.task(DAG, RUN, TASK, try_number=1, attempt_id=ids[0]).set("k", 1)
    store.delete_run(DAG, RUN)
    for number in (1, 2):
        store.task(DAG, RUN, TASK, try_number=number, attempt_id=ids[number]).set("k", 1)
        clock.advance(HOUR)
    store.task(DAG, RUN, "mapped", map_index=3, try_number=4).set("k", 1)
    api = TaskInstanceApi(airflow())
    found = api.get_task_instance_tries(DAG, RUN, TASK)
    assert [(one.try_number, one.state.value if one.state else None) for one in found.task_instances] == [
        (1, "failed"),
        (2, "running"),
    ]
    assert found.total_entries == 2
    assert found.task_instances[0].end_date == found.task_instances[1].start_date
    assert found.task_instances[0].duration == 3600
    assert api.get_task_instance_try_details(DAG, RUN, TASK, 2).try_number == 2
    assert api.get_mapped_task_instance_tries(DAG, RUN, "mapped", 3).task_instances[0].try_number == 4
    assert api.get_mapped_task_instance_try_details(DAG, RUN, "mapped", 4, 3).map_index == 3
    for call in (
        lambda: api.get_task_instance_tries(DAG, RUN, "mapped"),
        lambda: api.get_task_instance_try_details(DAG, RUN, TASK, 3),
        lambda: api.get_mapped_task_instance_tries(DAG, RUN, "mapped", 0),
    ):
        with pytest.raises(NotFoundException):
            call()


def test_a_run_is_deleted(airflow: Callable[..., ApiClient], runs: None, store: StateStore) -> None:
    """With everything of it; then it is not found."""
    api = DagRunApi(airflow())
    api.delete_dag_run(DAG, RUN)
    assert store.task_instances(DAG, RUN) == []
    assert store.task(DAG, RUN, TASK).history("k") == []
    with pytest.raises(NotFoundException):
        api.delete_dag_run(DAG, RUN)
    assert api.get_dag_runs(DAG).total_entries == 2


def test_assets(
    airflow: Callable[..., ApiClient], asset: AssetStateStore, asset_id: int, store: StateStore
) -> None:
    """In pages, by name; one by its number."""
    store.asset("customers").set("k", 1)
    api = AssetApi(airflow())
    found = api.get_assets()
    assert [(one.name, one.uri) for one in found.assets] == [
        ("customers", "customers"),
        ("orders", "s3://orders"),
    ]
    assert found.total_entries == 2
    assert [one.name for one in api.get_assets(limit=1, offset=1).assets] == ["orders"]
    assert api.get_asset(asset_id).uri == "s3://orders"
    with pytest.raises(NotFoundException):
        api.get_asset(asset_id + 1000)


def test_filters_that_would_do_nothing_are_refused(airflow: Callable[..., ApiClient], runs: None) -> None:
    """A list that had ignored one would be another list than was asked for."""
    with pytest.raises(UnprocessableEntityException, match="keepstate does not have this parameter"):
        DagRunApi(airflow()).get_dag_runs(DAG, state=["failed"])
    with pytest.raises(UnprocessableEntityException):
        DAGApi(airflow()).get_dags(dag_id_pattern="e%")


def test_version_and_health(airflow: Callable[..., ApiClient]) -> None:
    """What keepstate lacks, it does not claim to have."""
    assert VersionApi(airflow("viewer")).get_version().version == version("keepstate")
    health = MonitorApi(airflow("viewer")).get_health()
    assert health.metadatabase.status == "healthy"
    assert health.scheduler.status is None


def test_ids_are_the_scope_s(airflow: Callable[..., ApiClient], runs: None) -> None:
    """A task instance's id is made of what it is, so it is the same in every store."""
    one = TaskInstanceApi(airflow()).get_task_instance(DAG, RUN, TASK)
    digest = TaskScope(DAG, RUN, TASK).digest
    assert one.id.bytes[:6] == digest[:6]
