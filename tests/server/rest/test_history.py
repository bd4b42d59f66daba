"""What an entry was before, how it becomes that again, and the attempts that wrote it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from keepstate.backends.requests import Begin, End, Fence, Holder
from keepstate.scope import RunScope
from tests.server.rest.places import BASE, DAG, RUN, RUN_PATH, TASK, TASK_PATH

if TYPE_CHECKING:
    import httpx

    from keepstate.accessors import AssetStateStore, TaskStateStore
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

HISTORY = f"{TASK_PATH}/state-store-history"
RESTORE = f"{TASK_PATH}/state-store-restore"
DAY = timedelta(days=1)


def test_versions_come_newest_first(rest: httpx.Client, task: TaskStateStore, clock: ManualClock) -> None:
    """With what was written, when, until when and by whom."""
    task.set("k", {"a": 1}, retention=DAY)
    rest.put(f"{BASE}/k", json={"value": 2**70, "expires_at": None})
    task.delete("k")
    found = rest.get(f"{HISTORY}/k").json()
    assert found["total_entries"] == 3
    assert [(one["version"], one["action"], one["value"]) for one in found["history"]] == [
        (3, "delete", None),
        (2, "set", 2**70),
        (1, "set", {"a": 1}),
    ]
    removed, by_person, by_task = found["history"]
    assert by_task["expires_at"] == (clock.now + DAY).isoformat(timespec="microseconds").replace(
        "+00:00", "Z"
    )
    assert by_person["expires_at"] is None
    assert by_task["writer"] == {
        "kind": "task",
        "dag_id": DAG,
        "run_id": RUN,
        "task_id": TASK,
        "map_index": -1,
        "try_number": 1,
        "name": None,
        "token": None,
    }
    assert (by_person["writer"]["kind"], by_person["writer"]["name"]) == ("api", "admin-0")
    assert (removed["size"], by_task["size"], by_task["sha256"]) == (0, 7, None)


def test_of_a_value_too_large_there_is_the_hash(rest: httpx.Client, task: TaskStateStore) -> None:
    """And it can't be restored."""
    task.set("k", "x" * 70_000)
    task.set("k", 1)
    past = rest.get(f"{HISTORY}/k").json()["history"][1]
    assert (past["value"], past["size"], len(past["sha256"])) == (None, 70_002, 64)
    assert rest.post(f"{RESTORE}/k", json={"version": 1}).status_code == 404


def test_an_unknown_key_has_no_history(rest: httpx.Client, task: TaskStateStore) -> None:
    """Nor has an unknown task instance."""
    for path in (f"{HISTORY}/absent", HISTORY.replace(TASK, "other") + "/k", f"{HISTORY}/k?map_index=3"):
        assert rest.get(path).json() == {"history": [], "total_entries": 0}


def test_a_version_is_restored(rest: httpx.Client, task: TaskStateStore, clock: ManualClock) -> None:
    """As a new one; the expiry that stands stays."""
    task.set("k", "old", retention=DAY)
    task.set("k", "new", retention=2 * DAY)
    done = rest.post(f"{RESTORE}/k", json={"version": 1})
    assert (done.status_code, done.headers["etag"]) == (204, '"3"')
    entry = task.entry("k")
    assert entry is not None
    assert (entry.value, entry.expires_at) == ("old", clock.now + 2 * DAY)
    task.delete("k")
    assert rest.post(f"{RESTORE}/k", json={"version": 1}).status_code == 204
    entry = task.entry("k")
    assert entry is not None
    assert (entry.value, entry.expires_at) == ("old", clock.now + DAY)
    assert entry.writer is not None
    assert entry.writer.name == "admin-0"


def test_what_can_t_be_restored(rest: httpx.Client, task: TaskStateStore, store: StateStore) -> None:
    """404 for a version that is not there or removed the key; 422 for what is no version."""
    task.set("k", 1)
    task.delete("k")
    for version in (2, 3, 2.0, 2**62):
        assert rest.post(f"{RESTORE}/k", json={"version": version}).status_code == 404
    for body in (
        {"version": 0},
        {"version": -1},
        {"version": 2**63},
        {"version": "1"},
        {"version": 1.5},
        {"version": True},
        {"version": 1, "x": 1},
        {},
        [],
    ):
        assert rest.post(f"{RESTORE}/k", json=body).status_code == 422
    other = RESTORE.replace(TASK, "other")
    assert rest.post(f"{other}/k", json={"version": 1}).status_code == 404
    store.delete_run(DAG, RUN)
    assert rest.post(f"{RESTORE}/k", json={"version": 1}).status_code == 404
    assert store.runs() == []


@pytest.mark.parametrize("key", ["a/b", "state-store/x", "history/k", "a\n", "."])
def test_keys_are_as_anywhere(rest: httpx.Client, task: TaskStateStore, key: str) -> None:
    """A key may be named like a path of ours: below `state-store/` everything is a key."""
    quoted = "".join(f"%{byte:02X}" for byte in key.encode())
    if key == ".":
        assert rest.get(f"{HISTORY}/{quoted}").status_code == 422
        assert rest.post(f"{RESTORE}/{quoted}", json={"version": 1}).status_code == 422
        return
    task.set(key, 1)
    assert rest.get(f"{HISTORY}/{quoted}").json()["total_entries"] == 1
    assert rest.post(f"{RESTORE}/{quoted}", json={"version": 1}).status_code == 204
    assert len(task.history(key)) == 2


def test_an_asset_has_a_history_too(rest: httpx.Client, asset: AssetStateStore, asset_id: int) -> None:
    """And its versions come back."""
    asset.set("watermark", "2026-11-29")
    base = f"/api/v2/assets/{asset_id}"
    found = rest.get(f"{base}/state-store-history/watermark").json()
    assert [one["value"] for one in found["history"]] == ["2026-11-29", "2026-11-28"]
    assert found["history"][0]["writer"]["kind"] == "api"
    first = found["history"][1]["version"]
    assert rest.post(f"{base}/state-store-restore/watermark", json={"version": first}).status_code == 204
    assert asset.get("watermark") == "2026-11-28"
    assert rest.delete(f"{base}/state-store?forget=true").status_code == 204
    assert rest.get(f"{base}/state-store-history/watermark").json()["total_entries"] == 0
    assert rest.get("/api/v2/assets/99999/state-store-history/k").status_code == 404


def test_attempts_of_a_task_instance(rest: httpx.Client, store: StateStore, clock: ManualClock) -> None:
    """Newest first, with what is known of each."""
    for number in (1, 2):
        store.task(DAG, RUN, TASK, try_number=number, attempt_id=f"id {number}").set("k", number)
    found = rest.get(f"{TASK_PATH}/attempts").json()
    assert found["total_entries"] == 2
    assert [(one["try_number"], one["attempt_id"], one["state"]) for one in found["attempts"]] == [
        (2, "id 2", "running"),
        (1, "id 1", "superseded"),
    ]
    assert found["attempts"][1]["reason"] == "superseded by attempt 2"
    assert rest.get(f"{TASK_PATH}/attempts?map_index=0").status_code == 404
    assert rest.get(f"{TASK_PATH.replace(TASK, 'other')}/attempts").status_code == 404


def test_attempts_of_a_run(rest: httpx.Client, store: StateStore, clock: ManualClock) -> None:
    """With host and process, where keepstate itself started it."""
    scope = RunScope(DAG, RUN)
    store.backend.begin(Begin(scope, "id", Holder("host", 17, "s"), clock(), lease=1))
    store.backend.end(End(scope, Fence(1, "id"), "success", clock()))
    (one,) = rest.get(f"{RUN_PATH}/attempts").json()["attempts"]
    assert (one["host"], one["pid"], one["state"], one["ended_at"] is None) == ("host", 17, "success", False)
    assert rest.get(f"/api/v2/dags/{DAG}/dagRuns/other/attempts").status_code == 404


def test_an_asset_is_deleted(
    rest: httpx.Client, store: StateStore, asset: AssetStateStore, asset_id: int
) -> None:
    """With everything of it; then it is not found."""
    assert rest.delete(f"/api/v2/assets/{asset_id}").status_code == 204
    assert store.assets() == []
    assert rest.delete(f"/api/v2/assets/{asset_id}").status_code == 404
