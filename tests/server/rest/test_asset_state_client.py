"""Airflow's own client at the asset state store: every call, good and bad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow_client.client import AssetStateStoreApi
from airflow_client.client.exceptions import (
    ForbiddenException,
    NotFoundException,
    UnprocessableEntityException,
)
from airflow_client.client.models.asset_state_store_body import AssetStateStoreBody

from keepstate.backends.requests import Behalf, Fence
from keepstate.scope import TaskScope, Writer
from tests.server.rest.places import DAG, RUN, TASK

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_client.client import ApiClient

    from keepstate.accessors import AssetStateStore
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock


@pytest.fixture
def api(airflow: Callable[..., ApiClient]) -> AssetStateStoreApi:
    """The API for a token that may do all."""
    return AssetStateStoreApi(airflow())


def put(api: AssetStateStoreApi, number: int, key: str, value: Any) -> None:
    """Write an entry."""
    api.set_asset_state_store(key, number, AssetStateStoreBody(value=value))


def test_entries_are_listed_and_read(
    api: AssetStateStoreApi, asset: AssetStateStore, asset_id: int, clock: ManualClock
) -> None:
    """By key, in pages, with their total; they never expire."""
    asset.set("another", [1, {"a": None}])
    found = api.list_asset_state_store(asset_id)
    assert [entry.key for entry in found.asset_state_store] == ["another", "watermark"]
    assert found.total_entries == 2
    found = api.list_asset_state_store(asset_id, limit=1, offset=1)
    assert ([entry.key for entry in found.asset_state_store], found.total_entries) == (["watermark"], 2)
    entry = api.get_asset_state_store("another", asset_id)
    assert (entry.key, entry.value, entry.updated_at) == ("another", [1, {"a": None}], clock.now)


def test_who_wrote_an_entry_is_told(
    api: AssetStateStoreApi, store: StateStore, asset: AssetStateStore, asset_id: int
) -> None:
    """A task with its ids, a watcher, or the API, which stands for every person."""
    scope = TaskScope(DAG, RUN, TASK, 3)
    writers = {
        "task": Writer("task", DAG, RUN, TASK, 3, try_number=2),
        "watcher": Writer("watcher"),
        "cli": Writer("cli", name="somebody"),
    }
    for key, writer in writers.items():
        behalf = Behalf(scope, Fence(2)) if key == "task" else None
        store.asset("orders", writer=writer, behalf=behalf).set(key, 1)
    put(api, asset_id, "api", 1)
    told = {
        key: api.get_asset_state_store(key, asset_id).last_updated_by
        for key in ("task", "watcher", "cli", "api")
    }
    assert all(told.values())
    assert {key: by.kind.value for key, by in told.items() if by} == {
        "task": "task",
        "watcher": "watcher",
        "cli": "api",
        "api": "api",
    }
    by = told["task"]
    assert by is not None
    assert (by.dag_id, by.run_id, by.task_id, by.map_index) == (DAG, RUN, TASK, 3)
    assert told["api"] is not None
    assert told["api"].dag_id is None


@pytest.mark.parametrize("key", ["watermark", "a/b", "/", "a b?#%/", "🦆"])
def test_an_entry_is_written_and_deleted(
    api: AssetStateStoreApi, asset: AssetStateStore, asset_id: int, key: str
) -> None:
    """Whatever its key is named; deleting an absent one is no error."""
    for value in ({"a": [1.5]}, 0, "", 2**70):
        put(api, asset_id, key, value)
        assert asset.get(key) == value
        assert api.get_asset_state_store(key, asset_id).value == value
    api.delete_asset_state_store(key, asset_id)
    api.delete_asset_state_store(key, asset_id)
    assert asset.get(key) is None


def test_all_entries_are_cleared(api: AssetStateStoreApi, asset: AssetStateStore, asset_id: int) -> None:
    """The asset stays, and so does its history."""
    api.clear_asset_state_store(asset_id)
    api.clear_asset_state_store(asset_id)
    assert api.list_asset_state_store(asset_id).total_entries == 0
    assert [version.action for version in asset.history("watermark")] == ["clear", "set"]


def test_what_the_body_may_not_be(api: AssetStateStoreApi, asset: AssetStateStore, asset_id: int) -> None:
    """Null, or above the limit."""
    for value in (None, "x" * 65_534, "é" * 32_767):
        with pytest.raises(UnprocessableEntityException):
            put(api, asset_id, "k", value)
    put(api, asset_id, "k", "é" * 32_766)


@pytest.mark.parametrize("number", [0, -1, 10_000, 2**31, 2**63, -(2**70), 10**400])
def test_an_unknown_number_is_not_found(
    api: AssetStateStoreApi, asset: AssetStateStore, store: StateStore, number: int
) -> None:
    """However large it is; and no asset is made."""
    calls: list[Callable[[], object]] = [
        lambda: api.list_asset_state_store(number),
        lambda: api.get_asset_state_store("k", number),
        lambda: put(api, number, "k", 1),
        lambda: api.delete_asset_state_store("k", number),
        lambda: api.clear_asset_state_store(number),
    ]
    for call in calls:
        with pytest.raises(NotFoundException, match=rf"asset {number} was not found"):
            call()
    assert len(store.assets()) == 1


def test_a_deleted_asset_is_not_found(
    api: AssetStateStoreApi, store: StateStore, asset: AssetStateStore, asset_id: int
) -> None:
    """Nor made again; one of the same name has another number."""
    store.delete_asset("orders")
    with pytest.raises(NotFoundException):
        put(api, asset_id, "k", 1)
    store.asset("orders").set("k", 2)
    assert store.assets()[0].id != asset_id
    with pytest.raises(NotFoundException):
        api.get_asset_state_store("k", asset_id)


def test_writing_by_number_renames_nothing(
    api: AssetStateStoreApi, store: StateStore, asset: AssetStateStore, asset_id: int
) -> None:
    """Name and uri are the asset's own."""
    put(api, asset_id, "k", 1)
    store.asset("sales", uri="s3://orders").set("k", 2)
    put(api, asset_id, "k", 3)
    (info,) = store.assets()
    assert (info.name, info.uri) == ("sales", "s3://orders")
    assert store.asset("sales").get("k") == 3


def test_a_viewer_only_reads(
    airflow: Callable[..., ApiClient], asset: AssetStateStore, asset_id: int
) -> None:
    """And an editor writes too."""
    viewer = AssetStateStoreApi(airflow("viewer"))
    assert viewer.get_asset_state_store("watermark", asset_id).value == "2026-11-28"
    with pytest.raises(ForbiddenException):
        put(viewer, asset_id, "k", 1)
    put(AssetStateStoreApi(airflow("editor")), asset_id, "k", 1)
