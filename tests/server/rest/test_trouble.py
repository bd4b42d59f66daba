"""What is answered when the store is in trouble: a status that says whose turn it is, and never a trace."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

import pytest

from keepstate import errors
from keepstate.errors import BackendError
from keepstate.server import answers
from tests.server.rest.places import BASE, RUN_PATH, TASK_PATH

if TYPE_CHECKING:
    import httpx

    from keepstate.accessors import AssetStateStore, TaskStateStore
    from keepstate.store import StateStore

RESTORE = f"{TASK_PATH}/state-store-restore"

_TREE = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, errors.KeepstateError)
]

STATUSES = {
    errors.BackendUnavailableError: 503,
    errors.StoreReadOnlyError: 503,
    errors.StoreFullError: 507,
    errors.StoreCorruptedError: 500,
    errors.StoreVersionError: 500,
    errors.BackendError: 503,
    errors.UnsupportedError: 501,
    errors.StaleAttemptError: 409,
    errors.AlreadyRunningError: 409,
    errors.ScopeNotFoundError: 404,
    errors.InvalidKeyError: 422,
    errors.ValueTooLargeError: 422,
    errors.InvalidTypeError: 422,
    RuntimeError: 500,
}


@pytest.mark.parametrize("error", STATUSES, ids=lambda error: error.__name__)
def test_trouble_has_a_status(
    monkeypatch: pytest.MonkeyPatch,
    raw: Any,
    store: StateStore,
    task: TaskStateStore,
    asset: AssetStateStore,
    asset_id: int,
    error: type[Exception],
) -> None:
    """In reading and in writing, of tasks and of assets; what may work later says when."""

    def fail(*_args: object, **_kwargs: object) -> None:
        raise error("the cause, in wörds")

    for verb in (
        "read",
        "apply",
        "clear",
        "history",
        "dag_ids",
        "runs",
        "run",
        "task_instance",
        "assets",
        "asset",
    ):
        monkeypatch.setattr(store.backend, verb, fail)
    for method, path in (
        ("GET", BASE),
        ("GET", f"{BASE}/k"),
        ("PUT", f"{BASE}/k"),
        ("PATCH", f"{BASE}/k"),
        ("DELETE", f"{BASE}/k"),
        ("DELETE", BASE),
        ("GET", f"/api/v2/assets/{asset_id}/state-store"),
        ("GET", "/api/v2/dags"),
        ("GET", "/api/v2/assets"),
        ("DELETE", RUN_PATH),
    ):
        status, headers, body = raw(method, path, b'{"value": 1}')
        assert status == STATUSES[error], (method, path)
        assert ("retry-after" in headers) == (status == 503)
        detail = json.loads(body)["detail"]
        message = detail[0]["msg"] if status == 422 else detail
        assert "Traceback" not in message
        # where the database is, and what is the matter with it, only the server's log says
        assert ("the cause" in message) == (error is not RuntimeError and not issubclass(error, BackendError))


def test_every_error_has_been_thought_of() -> None:
    """One that can come from a request is in the table; the rest are of tasks, and would be a fault of ours: 500."""
    of_tasks = {
        "KeepstateError",
        "ConfigurationError",
        "CheckpointMismatchError",
        "UnknownJobStatusError",
        "TaskFailedError",
        "TaskArgumentsChangedError",
    }
    unknown = {
        error.__name__ for error in _TREE if not any(issubclass(error, one) for one, _ in answers.STATUSES)
    }
    assert unknown == of_tasks


def test_a_full_disk_is_no_reason_to_stop_reading(
    monkeypatch: pytest.MonkeyPatch, rest: httpx.Client, store: StateStore, task: TaskStateStore
) -> None:
    """Writes are 507, reads go on, and when there is room again so do writes."""
    task.set("k", 1)

    def full(*_args: object) -> None:
        raise errors.StoreFullError("no room", address="x")

    with monkeypatch.context() as patched:
        patched.setattr(store.backend, "apply", full)
        assert rest.put(f"{BASE}/k", json={"value": 2}).status_code == 507
        assert rest.get(f"{BASE}/k").json()["value"] == 1
    assert rest.put(f"{BASE}/k", json={"value": 2}).status_code == 204


def test_a_body_far_too_large(rest: httpx.Client, raw: Any, task: TaskStateStore) -> None:
    """Is refused without being read to its end: with 422, as the guide has it, and with 413 where no value could be so large."""
    for size in (500_000, 1_000_000, 10_000_000):
        found = rest.put(f"{BASE}/k", content=b'{"value": "' + b"x" * size + b'"}')
        assert found.status_code == 422
        assert "a body of more than 458,746 bytes" in found.json()["detail"][0]["msg"]
        assert "max_value_storage_bytes is 65,535" in found.json()["detail"][0]["msg"]
    status, _, body = raw("PUT", f"{BASE}/k", b"{}", **{"Content-Length": str(200 * 1024**2)})
    assert (status, set(json.loads(body))) == (413, {"detail"})


def test_a_body_without_a_length_has_the_same_bound(rest: httpx.Client, task: TaskStateStore) -> None:
    """However it comes, no more than the bound is read of it."""
    large = b'{"value": ' + b" " * 500_000 + b"1}"
    for content in (large, iter([large])):
        found = rest.put(f"{BASE}/k", content=content)
        assert found.status_code == 422
        assert "a body of more than 458,746 bytes" in found.json()["detail"][0]["msg"]
    assert task.get("k") is None


def test_a_body_that_brings_no_value_is_small(rest: httpx.Client, task: TaskStateStore) -> None:
    """Nothing of a megabyte asks for a version to be restored."""
    task.set("k", 1)
    large = b'{"version": 1' + b" " * 1024 * 1024 + b"}"
    for content in (large, iter([large])):
        found = rest.post(f"{RESTORE}/k", content=content)
        assert found.status_code == 413
        assert found.json() == {"detail": "a body here may have up to 1048576 bytes"}
