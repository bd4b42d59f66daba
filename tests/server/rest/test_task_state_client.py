"""Airflow's own client at the task state store: every call, good and bad."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from airflow_client.client import ApiException, TaskStateStoreApi
from airflow_client.client.exceptions import (
    ForbiddenException,
    NotFoundException,
    UnauthorizedException,
    UnprocessableEntityException,
)
from airflow_client.client.models.expires_at import ExpiresAt
from airflow_client.client.models.task_state_store_body import TaskStateStoreBody
from airflow_client.client.models.task_state_store_patch_body import TaskStateStorePatchBody

from keepstate.retention import NEVER_EXPIRE
from tests.server.rest.places import DAG, RUN, TASK

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_client.client import ApiClient

    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

IDS = (DAG, RUN, TASK)


@pytest.fixture
def api(airflow: Callable[..., ApiClient]) -> TaskStateStoreApi:
    """The API for a token that may do all."""
    return TaskStateStoreApi(airflow())


def put(api: TaskStateStoreApi, key: str, value: Any, **more: Any) -> None:
    """Write an entry."""
    ids = more.pop("ids", IDS)
    query = {name: more.pop(name) for name in ("map_index",) if name in more}
    api.set_task_state_store(*_placed(ids, key), TaskStateStoreBody(value=value, **more), **query)


def _placed(ids: tuple[str, str, str], key: str) -> tuple[str, str, str, str]:
    # the client's order: dag, run, task, key
    return (key, *ids)


class TestReading:
    def test_a_list_has_all_entries_by_key(self, api: TaskStateStoreApi, task: TaskStateStore) -> None:
        """With their total, in pages of 50 unless told otherwise."""
        task.set_many({f"k{number:03}": number for number in range(60)})
        found = api.list_task_state_store(*IDS)
        assert found.total_entries == 60
        assert [entry.key for entry in found.task_state_store] == [f"k{number:03}" for number in range(50)]
        found = api.list_task_state_store(*IDS, limit=7, offset=55)
        assert [entry.value for entry in found.task_state_store] == [55, 56, 57, 58, 59]
        assert found.total_entries == 60
        assert api.list_task_state_store(*IDS, limit=0).task_state_store == []
        assert api.list_task_state_store(*IDS, offset=60).total_entries == 60
        assert len(api.list_task_state_store(*IDS, limit=100_000).task_state_store) == 60

    def test_an_entry_has_its_times(
        self, api: TaskStateStoreApi, task: TaskStateStore, clock: ManualClock
    ) -> None:
        """When it was written, and when it expires: never is null."""
        task.set("pid", 239, retention=timedelta(days=28))
        task.set("kept", [None, {"a": "é🦆"}], retention=NEVER_EXPIRE)
        entry = api.get_task_state_store("pid", *IDS)
        assert (entry.key, entry.value) == ("pid", 239)
        assert (entry.updated_at, entry.expires_at) == (clock.now, clock.now + timedelta(days=28))
        entry = api.get_task_state_store("kept", *IDS)
        assert (entry.value, entry.expires_at) == ([None, {"a": "é🦆"}], None)

    def test_what_has_expired_is_in_no_answer(
        self, api: TaskStateStoreApi, task: TaskStateStore, clock: ManualClock
    ) -> None:
        """Neither in a list, nor in its total, nor by its key; nor can it be patched."""
        task.set("gone", 1, retention=timedelta(hours=1))
        task.set("there", 1, retention=timedelta(hours=2))
        clock.advance(timedelta(hours=1))
        found = api.list_task_state_store(*IDS)
        assert ([entry.key for entry in found.task_state_store], found.total_entries) == (["there"], 1)
        with pytest.raises(NotFoundException):
            api.get_task_state_store("gone", *IDS)
        with pytest.raises(NotFoundException):
            api.patch_task_state_store("gone", *IDS, TaskStateStorePatchBody(value=2))

    def test_an_unknown_key_is_not_found(self, api: TaskStateStoreApi, task: TaskStateStore) -> None:
        """And nor is any of an unknown task instance, whose list is empty."""
        for ids in (IDS, ("no", "such", "task")):
            with pytest.raises(NotFoundException, match="was not found"):
                api.get_task_state_store("absent", *ids)
        found = api.list_task_state_store("no", "such", "task")
        assert (found.task_state_store, found.total_entries) == ([], 0)

    def test_map_indices_are_apart(self, api: TaskStateStoreApi, store: StateStore) -> None:
        """Each has entries of its own; the one that is not mapped is -1."""
        for index in (-1, 0, 7):
            store.task(*IDS, map_index=index).set("k", index)
        assert api.get_task_state_store("k", *IDS).value == -1
        assert api.get_task_state_store("k", *IDS, map_index=7).value == 7
        assert api.list_task_state_store(*IDS, map_index=0).task_state_store[0].value == 0
        with pytest.raises(NotFoundException):
            api.get_task_state_store("k", *IDS, map_index=1)


class TestWriting:
    @pytest.mark.parametrize(
        "value", ["x", "", 0, -1, 2**70, 1.5, 1e300, True, False, [], {}, [1, [None]], {"a": {"b": []}}, "🦆"]
    )
    def test_a_value_comes_back_as_it_was_sent(
        self, api: TaskStateStoreApi, task: TaskStateStore, value: Any
    ) -> None:
        """In value and in type, over REST and to the task."""
        put(api, "k", value)
        for found in (api.get_task_state_store("k", *IDS).value, task.get("k")):
            assert found == value
            assert type(found) is type(value)

    def test_expiry_is_default_never_or_a_time(
        self, api: TaskStateStoreApi, task: TaskStateStore, clock: ManualClock
    ) -> None:
        """Left out, it is the default of 30 days. A time may be in any zone."""

        def expiry(**more: Any) -> datetime | None:
            put(api, "k", 1, **more)
            found: datetime | None = api.get_task_state_store("k", *IDS).expires_at
            return found

        moment = clock.now + timedelta(days=3)
        assert expiry() == clock.now + timedelta(days=30)
        assert expiry(expires_at=ExpiresAt("default")) == clock.now + timedelta(days=30)
        assert expiry(expires_at=None) is None
        assert expiry(expires_at=ExpiresAt(moment)) == moment
        assert expiry(expires_at=ExpiresAt(moment.astimezone(timezone(timedelta(hours=5.5))))) == moment

    def test_a_time_in_the_past_is_gone_at_once(
        self, api: TaskStateStoreApi, task: TaskStateStore, clock: ManualClock
    ) -> None:
        """As in Airflow it is no error; but here it is not read any more."""
        put(api, "k", 1)
        put(api, "k", 2, expires_at=ExpiresAt(clock.now - timedelta(seconds=1)))
        with pytest.raises(NotFoundException):
            api.get_task_state_store("k", *IDS)
        assert api.list_task_state_store(*IDS).total_entries == 0
        assert task.get("k") is None

    def test_patching_leaves_the_expiry(
        self, api: TaskStateStoreApi, task: TaskStateStore, clock: ManualClock
    ) -> None:
        """Whichever it is; and it says when."""
        task.set("k", 1, retention=timedelta(days=2))
        task.set("never", 1, retention=NEVER_EXPIRE)
        before = clock.now
        clock.advance(timedelta(days=1))
        for key in ("k", "never"):
            api.patch_task_state_store(key, *IDS, TaskStateStorePatchBody(value={"new": 2}))
        entry = api.get_task_state_store("k", *IDS)
        assert (entry.value, entry.updated_at) == ({"new": 2}, clock.now)
        assert entry.expires_at == before + timedelta(days=2)
        assert api.get_task_state_store("never", *IDS).expires_at is None

    def test_an_unknown_key_is_not_patched(self, api: TaskStateStoreApi, task: TaskStateStore) -> None:
        """Nor one of an unknown task instance; and neither is made."""
        for ids in (IDS, ("no", "such", "task")):
            with pytest.raises(NotFoundException):
                api.patch_task_state_store("absent", *ids, TaskStateStorePatchBody(value=2))
        assert api.list_task_state_store(*IDS).total_entries == 0

    def test_an_unknown_task_instance_is_not_made(
        self, api: TaskStateStoreApi, task: TaskStateStore, store: StateStore
    ) -> None:
        """By no call: a mistyped id, or another map index, is not found."""
        for ids, index in (
            (("other", RUN, TASK), -1),
            ((DAG, "other", TASK), -1),
            ((DAG, RUN, "lood"), -1),
            (IDS, 0),
        ):
            with pytest.raises(NotFoundException, match="no such task instance"):
                put(api, "k", 1, ids=ids, map_index=index)
            with pytest.raises(NotFoundException, match="no such task instance"):
                api.delete_task_state_store("k", *ids, map_index=index)
            with pytest.raises(NotFoundException, match="no such task instance"):
                api.clear_task_state_store(*ids, map_index=index)
        assert [info.scope.map_index for info in store.task_instances(DAG, RUN)] == [-1]
        assert len(store.runs()) == 1

    def test_a_deleted_run_is_unknown(
        self, api: TaskStateStoreApi, task: TaskStateStore, store: StateStore
    ) -> None:
        """And stays deleted."""
        task.set("k", 1)
        store.delete_run(DAG, RUN)
        with pytest.raises(NotFoundException):
            put(api, "k", 2)
        with pytest.raises(NotFoundException):
            api.clear_task_state_store(*IDS)
        assert store.runs() == []

    def test_what_the_body_may_not_be(self, api: TaskStateStoreApi, task: TaskStateStore) -> None:
        """Null, too large, or a time without its offset from UTC."""
        for value in (None, "x" * 65_534, "é" * 32_767):
            with pytest.raises(UnprocessableEntityException):
                put(api, "k", value)
            with pytest.raises(UnprocessableEntityException):
                api.patch_task_state_store("k", *IDS, TaskStateStorePatchBody(value=value))
        naive = datetime(2030, 1, 1)  # noqa: DTZ001 - it is the case
        with pytest.raises(UnprocessableEntityException):
            put(api, "k", 1, expires_at=ExpiresAt(naive))
        assert api.list_task_state_store(*IDS).total_entries == 0
        put(api, "k", "x" * 65_533)
        put(api, "k", "é" * 32_766)

    def test_who_wrote_is_known(
        self, api: TaskStateStoreApi, task: TaskStateStore, store: StateStore
    ) -> None:
        """By the name of the token."""
        put(api, "k", 1)
        entry = task.entry("k")
        assert entry is not None
        assert entry.writer is not None
        assert (entry.writer.kind, entry.writer.name) == ("api", "admin-0")


class TestRemoving:
    def test_a_key_is_deleted_and_may_be_absent(self, api: TaskStateStoreApi, task: TaskStateStore) -> None:
        """One, and no other."""
        task.set_many({"k": 1, "l": 2})
        api.delete_task_state_store("k", *IDS)
        api.delete_task_state_store("k", *IDS)
        assert dict(task.items()) == {"l": 2}

    def test_clearing_removes_all_of_one_task_instance(
        self, api: TaskStateStoreApi, task: TaskStateStore, store: StateStore
    ) -> None:
        """Of one map index; the history stays."""
        task.set_many({"k": 1, "l": 2})
        store.task(*IDS, map_index=0).set("k", 0)
        api.clear_task_state_store(*IDS)
        api.clear_task_state_store(*IDS)
        assert dict(task.items()) == {}
        assert [version.action for version in task.history("k")] == ["clear", "set"]
        assert store.task(*IDS, map_index=0).get("k") == 0

    def test_all_map_indices_may_be_cleared(self, api: TaskStateStoreApi, store: StateStore) -> None:
        """One of them being known is enough; the one that is not mapped is not made."""
        for index in (0, 1):
            store.task(*IDS, map_index=index).set("k", index)
        with pytest.raises(NotFoundException):
            api.clear_task_state_store(*IDS)
        api.clear_task_state_store(*IDS, all_map_indices=True)
        assert [info.entries for info in store.task_instances(DAG, RUN)] == [0, 0]
        with pytest.raises(NotFoundException):
            api.clear_task_state_store(DAG, RUN, "other", all_map_indices=True)


KEYS = [
    "a/b",
    "/a",
    "a//b",
    "a/",
    "//",
    "ä b",
    "50%",
    "a?b",
    "a#b",
    "a+b",
    "a&b=c",
    "%2F",
    "...",
    ".a",
    "a/.b/c.",
    "🦆",
    "\\",
    "a;b",
    ":~",
]


@pytest.mark.parametrize("key", KEYS)
def test_any_key_goes(api: TaskStateStoreApi, task: TaskStateStore, key: str) -> None:
    """With slashes, spaces and signs that mean something in an address: it is read, changed and deleted as it was named."""
    put(api, key, 1)
    assert [entry.key for entry in task.entries()] == [key]
    assert api.get_task_state_store(key, *IDS).value == 1
    api.patch_task_state_store(key, *IDS, TaskStateStorePatchBody(value=2))
    assert task.get(key) == 2
    api.delete_task_state_store(key, *IDS)
    assert task.get(key) is None


@pytest.mark.parametrize("key", [".", "..", "a/../b", "a/.", "./a", "../state-store/a"])
def test_keys_that_clients_would_collapse_are_refused(
    api: TaskStateStoreApi, task: TaskStateStore, key: str
) -> None:
    """The client sends another path than it was given: never is that another call that succeeds, least of all a clear."""
    task.set_many({"a": 1, "b": 2, "a/b": 3})
    body = TaskStateStoreBody(value=9)
    calls: list[Callable[[], object]] = [
        lambda: api.delete_task_state_store(".", *IDS),
        lambda: api.set_task_state_store(".", *IDS, body),
        lambda: api.get_task_state_store(".", *IDS),
        lambda: api.patch_task_state_store(".", *IDS, TaskStateStorePatchBody(value=9)),
    ]
    for call in calls:
        with pytest.raises(UnprocessableEntityException):
            call()
    with pytest.raises(ApiException) as caught:
        api.get_task_state_store(key, *IDS)
    assert caught.value.status in {404, 405, 422}
    assert dict(task.items()) == {"a": 1, "a/b": 3, "b": 2}


def test_nobody_and_the_wrong_role(
    airflow: Callable[..., ApiClient], task: TaskStateStore, served: Any
) -> None:
    """Are told apart: 401 and 403."""
    task.set("k", 1)
    viewer = TaskStateStoreApi(airflow("viewer"))
    assert viewer.get_task_state_store("k", *IDS).value == 1
    with pytest.raises(ForbiddenException):
        put(viewer, "k", 2)
    nobody = airflow("viewer")
    nobody.configuration.access_token = "kst_0123456789abcdef_" + "x" * 43
    with pytest.raises(UnauthorizedException):
        TaskStateStoreApi(nobody).get_task_state_store("k", *IDS)
