"""``asset_state_store`` in tasks: by subscript, directly for a single asset, and a clear error otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from keepstate import (
    Asset,
    BaseOperator,
    InvalidInputError,
    InvalidTypeError,
    StaleAttemptError,
    StateStore,
    dag_run,
    task,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS = Asset("orders", "s3://lake/orders")
USERS = Asset("users")


@pytest.fixture(autouse=True)
def run(store: StateStore) -> Iterator[Any]:
    """A run that is open for the test."""
    with dag_run("nightly", "1", store=store) as run:
        yield run


def test_a_single_asset_needs_no_subscript(store: StateStore) -> None:
    """With exactly one inlet or outlet, the verbs may be called directly; the same asset as both is one."""

    @task(outlets=[ORDERS], inlets=ORDERS)
    def load(asset_state_store: Any = None) -> Any:
        asset_state_store.set("watermark", 7)
        return [asset_state_store.get("watermark"), asset_state_store[ORDERS].get("watermark")]

    assert load() == [7, 7]
    entry = store.asset("orders").entry("watermark")
    assert entry is not None
    assert entry.writer is not None
    assert vars(entry.writer) == {
        "kind": "task",
        "dag_id": "nightly",
        "run_id": "1",
        "task_id": "load",
        "map_index": -1,
        "try_number": 1,
        "name": None,
        "token": None,
    }


def test_several_assets_are_subscripted(store: StateStore) -> None:
    """By asset, by name, by Airflow's own asset; each has entries of its own."""

    @dataclass
    class AirflowAsset:
        name: str
        uri: str

    @task(inlets=["users", ORDERS], outlets=[AirflowAsset("report", "file:///report")])
    def load(asset_state_store: Any = None) -> Any:
        asset_state_store[ORDERS].set("k", 1)
        asset_state_store["users"].set("k", 2)
        asset_state_store[AirflowAsset("report", "file:///report")].set("k", 3)
        return [asset_state_store[one].get("k") for one in ("orders", USERS, "report")]

    assert load() == [1, 2, 3]
    assert store.asset(uri="file:///report").get("k") == 3


def test_with_several_it_must_be_said_which() -> None:
    """Neither reads nor writes guess."""

    @task(inlets=[ORDERS, USERS])
    def load(asset_state_store: Any = None) -> None:
        asset_state_store.get("k")

    with pytest.raises(
        InvalidInputError, match=r"2 assets \(orders, users\).*asset_state_store\[ASSET\]\.get"
    ):
        load()


def test_a_task_without_assets_may_name_it() -> None:
    """It is made lazily: only using it is an error, which says how."""

    @task
    def harmless(asset_state_store: Any = None) -> str:
        return repr(asset_state_store)

    @task
    def user(asset_state_store: Any = None) -> None:
        asset_state_store.set("k", 1)

    assert "no asset" in harmless()
    with pytest.raises(InvalidInputError, match=r"no assets; name them with inlets=\[...\]"):
        user()


def test_what_was_not_named_is_not_touched(store: StateStore) -> None:
    """A task reaches the assets of its inlets and outlets, and no other."""

    class Load(BaseOperator):
        def execute(self, context: Any) -> None:
            context["asset_state_store"]["users"].set("k", 1)

    with pytest.raises(
        InvalidInputError, match=r"asset users is neither inlet nor outlet .* which has orders"
    ):
        Load(task_id="load", outlets=[ORDERS])
    assert store.assets() == []

    @task(inlets=[ORDERS])
    def wrong(asset_state_store: Any = None) -> None:
        asset_state_store[7]

    with pytest.raises(InvalidTypeError, match="7 is neither"):
        wrong()


def test_a_held_back_checkpoint_over_an_asset_is_written_at_the_end(store: StateStore) -> None:
    """As for a task's own checkpoints, also when the attempt fails."""
    kept = []

    @task(outlets=[ORDERS])
    def load(asset_state_store: Any = None) -> None:
        rows = asset_state_store.checkpoint(range(9), every=100)
        kept.append(rows)
        for row in rows:
            if row == 5:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        load()
    assert store.asset("orders").get("position")["position"] == 5


def test_trouble_with_the_tasks_own_checkpoint_does_not_keep_that_of_an_asset_back(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are tried before the attempt fails."""
    real = store.backend.apply

    def apply(batch: Any) -> Any:
        if batch.behalf is None:
            raise RuntimeError("this row only")
        return real(batch)

    @task(outlets=["orders", "lines"])
    def work(task_state_store: Any, asset_state_store: Any) -> None:
        stores = (task_state_store, asset_state_store["orders"], asset_state_store["lines"])
        loops = [one.checkpoint(range(10), every=100) for one in stores]
        monkeypatch.setattr(store.backend, "apply", apply)
        for loop in loops:
            assert [next(loop) for _ in range(4)] == [0, 1, 2, 3]
        kept.extend(loops)

    kept: list[Any] = []
    with pytest.raises(RuntimeError, match="this row only"):
        work()
    monkeypatch.undo()
    for name in ("orders", "lines"):
        assert store.asset(name).get("position")["position"] == 3


def test_an_overtaken_task_may_not_change_an_asset(store: StateStore) -> None:
    """Every write is fenced by its attempt, at an asset too; reading goes on, and the successor writes."""
    orders = Asset("orders")
    seen: list[str] = []

    @task(outlets=[orders])
    def load(ti: Any = None, asset_state_store: Any = None) -> None:
        asset_state_store.set("watermark", 1)
        successor = store.task(ti.dag_id, ti.run_id, ti.task_id, try_number=ti.try_number + 1)
        successor.get("anything")
        for change in (
            lambda: asset_state_store.set("watermark", 2),
            lambda: asset_state_store.delete("watermark"),
            asset_state_store.clear,
            lambda: asset_state_store.increment("watermark"),
        ):
            with pytest.raises(StaleAttemptError):
                change()
        seen.append(asset_state_store.get("watermark"))
        raise RuntimeError("over")

    with pytest.raises((RuntimeError, StaleAttemptError)):
        load()
    assert seen == [1]
    assert store.asset("orders").get("watermark") == 1
