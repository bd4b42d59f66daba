"""`ETag`, `If-Match` and `If-None-Match`: changing an entry only as it was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server.rest.places import BASE, TASK_PATH

if TYPE_CHECKING:
    import httpx

    from keepstate.accessors import AssetStateStore, TaskStateStore
    from keepstate.store import StateStore


@pytest.fixture(params=["task", "asset"])
def where(request: pytest.FixtureRequest, task: TaskStateStore, asset: AssetStateStore, asset_id: int) -> str:
    """The path of a key that is absent."""
    return f"{BASE}/x" if request.param == "task" else f"/api/v2/assets/{asset_id}/state-store/x"


def test_reading_and_writing_tell_the_version(rest: httpx.Client, where: str) -> None:
    """As an `ETag`: each write answers the one that it made."""
    first = rest.put(where, json={"value": 1}).headers["etag"]
    second = rest.put(where, json={"value": 2}).headers["etag"]
    assert first != second
    assert rest.get(where).headers["etag"] == second
    assert "etag" not in rest.delete(where).headers


def test_what_stands_as_it_was_read_is_changed(rest: httpx.Client, where: str) -> None:
    """And what does not is left alone: 412."""
    first = rest.put(where, json={"value": 1}).headers["etag"]
    second = rest.put(where, json={"value": 2}, headers={"If-Match": first})
    assert second.status_code == 204
    for headers in ({"If-Match": first}, {"If-None-Match": "*"}):
        refused = rest.put(where, json={"value": 3}, headers=headers)
        assert refused.status_code == 412
        assert "does not meet the condition" in refused.json()["detail"]
        assert rest.delete(where, headers=headers).status_code == 412
    assert rest.get(where).json()["value"] == 2
    assert rest.delete(where, headers={"If-Match": second.headers["etag"]}).status_code == 204
    assert rest.get(where).status_code == 404


def test_only_if_there_is_none(rest: httpx.Client, where: str) -> None:
    """`If-None-Match: *` creates, and never writes over."""
    new = {"If-None-Match": "*"}
    assert rest.put(where, json={"value": 1}, headers=new).status_code == 204
    assert rest.put(where, json={"value": 2}, headers=new).status_code == 412
    rest.delete(where)
    assert rest.put(where, json={"value": 3}, headers=new).status_code == 204
    assert rest.get(where).json()["value"] == 3


def test_only_if_there_is_one(rest: httpx.Client, where: str) -> None:
    """`If-Match: *` writes over, and never creates."""
    some = {"If-Match": "*"}
    assert rest.put(where, json={"value": 1}, headers=some).status_code == 412
    assert rest.delete(where, headers=some).status_code == 412
    rest.put(where, json={"value": 1})
    assert rest.put(where, json={"value": 2}, headers=some).status_code == 204
    assert rest.delete(where, headers=some).status_code == 204


def test_one_of_several(rest: httpx.Client, where: str) -> None:
    """A list of versions holds if the entry stands at one of them."""
    rest.put(where, json={"value": 1})
    tag = rest.put(where, json={"value": 2}).headers["etag"]
    assert rest.put(where, json={"value": 3}, headers={"If-Match": '"98", "99"'}).status_code == 412
    assert rest.put(where, json={"value": 3}, headers={"If-Match": f'"98",{tag}'}).status_code == 204
    tag = rest.get(where).headers["etag"]
    lines = [("If-Match", '"98"'), ("If-Match", tag)]
    assert rest.put(where, json={"value": 4}, headers=lines).status_code == 204


@pytest.mark.parametrize("tag", ['"0"', '"-1"', '"01"', 'W/"1"', '""', '"x"', '"99999999999999999999"'])
def test_what_is_no_version_of_ours_holds_never(rest: httpx.Client, where: str, tag: str) -> None:
    """`"0"` is no way to say absent, and a weak tag never matches."""
    for headers in ({"If-Match": tag.encode()}, {b"If-Match": tag.encode()}):
        assert rest.put(where, json={"value": 9}, headers=headers).status_code == 412
    rest.put(where, json={"value": 1})
    assert rest.put(where, json={"value": 9}, headers={"If-Match": tag.encode()}).status_code == 412
    assert rest.get(where).json()["value"] == 1


def test_a_version_may_come_without_its_quotes(rest: httpx.Client, where: str) -> None:
    """To answer that the entry has changed would have its sender read it again for ever."""
    tag = rest.put(where, json={"value": 1}).headers["etag"]
    assert rest.put(where, json={"value": 2}, headers={"If-Match": tag.strip('"')}).status_code == 204
    assert rest.put(where, json={"value": 3}, headers={"If-Match": tag.strip('"')}).status_code == 412


def test_other_conditions_are_refused(rest: httpx.Client, where: str) -> None:
    """`If-None-Match` with a version would be no condition that anybody means."""
    found = rest.put(where, json={"value": 1}, headers={"If-None-Match": '"1"'})
    assert found.status_code == 422
    assert found.json()["detail"][0]["loc"] == ["header", "If-None-Match"]


def test_both_conditions_hold_never(rest: httpx.Client, where: str) -> None:
    """There can't be one and none."""
    tag = rest.put(where, json={"value": 1}).headers["etag"]
    for match in (tag, "*", f'{tag}, "9"'):
        headers = {"If-Match": match, "If-None-Match": "*"}
        assert rest.put(where, json={"value": 2}, headers=headers).status_code == 412
    assert rest.get(where).json()["value"] == 1


def test_patching_under_a_condition(rest: httpx.Client, task: TaskStateStore) -> None:
    """404 where there is none, 412 where it is another."""
    for headers in ({"If-Match": '"1"'}, {"If-Match": "*"}, {"If-None-Match": "*"}):
        assert rest.patch(f"{BASE}/k", json={"value": 1}, headers=headers).status_code == 404
    tag = rest.put(f"{BASE}/k", json={"value": 1}).headers["etag"]
    assert rest.patch(f"{BASE}/k", json={"value": 2}, headers={"If-None-Match": "*"}).status_code == 412
    found = rest.patch(f"{BASE}/k", json={"value": 2}, headers={"If-Match": tag})
    assert found.status_code == 200
    assert rest.patch(f"{BASE}/k", json={"value": 3}, headers={"If-Match": tag}).status_code == 412
    assert rest.patch(f"{BASE}/k", json={"value": 3}, headers={"If-Match": "*"}).status_code == 200
    assert task.get("k") == 3
    assert found.headers["etag"] == f'"{task.history("k")[1].version}"'


def test_an_unknown_task_instance_is_404_under_any_condition(rest: httpx.Client, store: StateStore) -> None:
    """And not made."""
    for headers in ({"If-Match": '"1"'}, {"If-Match": "*"}, {"If-None-Match": "*"}, {"If-Match": '"1","2"'}):
        assert rest.put(f"{BASE}/k", json={"value": 1}, headers=headers).status_code == 404
        assert rest.delete(f"{BASE}/k", headers=headers).status_code == 404
    assert store.runs() == []


def test_what_a_task_writes_counts(rest: httpx.Client, task: TaskStateStore) -> None:
    """Versions are those of the store, whoever writes."""
    task.set("k", 1)
    tag = rest.get(f"{BASE}/k").headers["etag"]
    task.set("other", 1)
    assert rest.put(f"{BASE}/k", json={"value": 2}, headers={"If-Match": tag}).status_code == 204
    task.set("k", 3)
    assert rest.put(f"{BASE}/k", json={"value": 4}, headers={"If-Match": tag}).status_code == 412


def test_restoring_under_a_condition(rest: httpx.Client, task: TaskStateStore) -> None:
    """As any other change."""
    task.set("k", 1)
    task.set("k", 2)
    restore = f"{TASK_PATH}/state-store-restore/k"
    assert rest.post(restore, json={"version": 1}, headers={"If-Match": '"1"'}).status_code == 412
    done = rest.post(restore, json={"version": 1}, headers={"If-Match": '"2"'})
    assert (done.status_code, done.headers["etag"]) == (204, '"3"')
    assert task.get("k") == 1
