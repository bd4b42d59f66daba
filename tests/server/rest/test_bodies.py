"""Bodies as they have to be, and all that they may not be."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.rest.places import BASE

if TYPE_CHECKING:
    import httpx

    from keepstate.accessors import AssetStateStore, TaskStateStore
    from keepstate.testing import ManualClock

REFUSED = {
    "nothing": b"",
    "no JSON": b"{",
    "two": b'{"value": 1} {"value": 2}',
    "a comment": b'{"value": 1 /* one */}',
    "null": b"null",
    "a list": b'[{"value": 1}]',
    "a text": b'"value"',
    "no value": b"{}",
    "value null": b'{"value": null}',
    "unknown field": b'{"value": 1, "ttl": 5}',
    "twice": b'{"value": 1, "value": 2}',
    "twice inside": b'{"value": {"a": [{"b": 1, "c": 2, "b": 1}]}}',
    "twice, escaped": b'{"value": {"a": 1, "\\u0061": 2}}',
    "misspelt": b'{"Value": 1}',
    "NaN": b'{"value": NaN}',
    "NaN inside": b'{"value": {"a": [1, NaN]}}',
    "Infinity": b'{"value": Infinity}',
    "too large a float": b'{"value": 1e400}',
    "-Infinity inside": b'{"value": [-Infinity]}',
    "deep": b'{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "rather deep": b'{"value": ' + b"[" * 201 + b"]" * 201 + b"}",
    "deep, but elsewhere": b'{"other": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "endless integer": b'{"value": ' + b"9" * 4301 + b"}",
    "huge integer": b'{"value": ' + b"9" * 50_000 + b"}",
    "surrogate": b'{"value": "\\ud800"}',
    "surrogate in a name": b'{"value": {"\\udc00": 1}}',
    "surrogate field": b'{"\\udc00": 1, "value": 1}',
    "no UTF-8": b'{"value": "\xff"}',
    "UTF-16": '{"value": 1}'.encode("utf-16"),
    "BOM": b'\xef\xbb\xbf{"value": 1}',
    "too large": b'{"value": "' + b"x" * 65_534 + b'"}',
    "too large in bytes": b'{"value": "' + "é".encode() * 32_767 + b'"}',
    "form": b"value=1",
    "binary": bytes(range(256)),
}


@pytest.mark.parametrize("body", REFUSED, ids=list(REFUSED))
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_what_a_body_may_not_be(rest: httpx.Client, task: TaskStateStore, method: str, body: str) -> None:
    """422 with the place and the reason, and nothing is written."""
    task.set("k", "before")
    found = rest.request(method, f"{BASE}/k", content=REFUSED[body])
    assert found.status_code == 422
    for problem in found.json()["detail"]:
        assert problem["loc"][0] == "body"
        assert problem["msg"]
        assert problem["type"]
    assert dict(task.items()) == {"k": "before"}
    assert len(task.history("k")) == 1


def test_an_asset_s_bodies_are_refused_alike(
    rest: httpx.Client, asset: AssetStateStore, asset_id: int
) -> None:
    """And an expiry too: they have none."""
    where = f"/api/v2/assets/{asset_id}/state-store/k"
    for body in (*REFUSED.values(), b'{"value": 1, "expires_at": null}'):
        assert rest.put(where, content=body).status_code == 422
    assert dict(asset.items()) == {"watermark": "2026-11-28"}


TAKEN: list[Any] = [
    "",
    "é🦆\u0000\u2028",
    0,
    -0.0,
    2**64,
    10**4299,
    5e-324,
    1.7976931348623157e308,
    True,
    [],
    {},
    {"": {"": []}},
    [[None]],
    "x" * 65_533,
]


def test_what_a_body_may_be(rest: httpx.Client, task: TaskStateStore) -> None:
    """Every JSON value but null, exactly, at any depth up to 200, and up to the limit in bytes."""
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    for value in (*TAKEN, deep):
        assert rest.put(f"{BASE}/k", content=json.dumps({"value": value})).status_code == 204
        found = rest.get(f"{BASE}/k").json()["value"]
        assert repr(found) == repr(value)
        assert repr(task.get("k")) == repr(value)


def test_the_content_type_does_not_matter(rest: httpx.Client, task: TaskStateStore) -> None:
    """What counts is that it is JSON: `curl -d` sends another type unless told."""
    for kind in ("application/json", "application/x-www-form-urlencoded", "text/plain", "nonsense"):
        headers = {"content-type": kind}
        found = rest.put(f"{BASE}/k", content=json.dumps({"value": kind}), headers=headers)
        assert found.status_code == 204
        assert task.get("k") == kind


NO_TIMES = [
    "2030-01-01T00:00:00",
    "2030-01-01",
    "2030-02-30T00:00:00Z",
    "2030-01-01T25:00:00Z",
    "2030-01-01T00:00:00+99:99",
    "9999-12-31T23:59:59-01:00",
    "10000-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "never",
    "DEFAULT",
    "",
    "1893456000",
    1893456000,
    1893456000.5,
    True,
    [],
    {},
    ["default"],
]


@pytest.mark.parametrize("moment", NO_TIMES)
def test_what_is_no_time_is_refused(rest: httpx.Client, task: TaskStateStore, moment: Any) -> None:
    """Above all one without its offset from UTC: nobody knows when that is."""
    found = rest.put(f"{BASE}/k", json={"value": 1, "expires_at": moment})
    assert found.status_code == 422
    assert found.json()["detail"][0]["loc"] == ["body", "expires_at"]
    assert dict(task.items()) == {}


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        ("2030-01-01T00:00:00Z", "2030-01-01T00:00:00.000000Z"),
        ("2030-01-01T00:00:00.123456789Z", "2030-01-01T00:00:00.123456Z"),
        ("2030-01-01T02:00:00.5+02:00", "2030-01-01T00:00:00.500000Z"),
        ("2030-01-01t00:00:00z", "2030-01-01T00:00:00.000000Z"),
        ("2030-01-01 00:00:00-00:30", "2030-01-01T00:30:00.000000Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
        (None, None),
    ],
)
def test_what_is_a_time_is_taken(
    rest: httpx.Client, task: TaskStateStore, moment: str | None, shown: str | None
) -> None:
    """To the microsecond, and shown in UTC."""
    assert rest.put(f"{BASE}/k", json={"value": 1, "expires_at": moment}).status_code == 204
    assert rest.get(f"{BASE}/k").json()["expires_at"] == shown


@pytest.mark.parametrize(
    "moment", ["1969-12-31T23:59:59Z", "0001-01-01T00:00:00+00:00", "0001-01-01T00:00:00+14:00"]
)
def test_a_time_long_past_is_gone_at_once(
    rest: httpx.Client, task: TaskStateStore, clock: ManualClock, moment: str
) -> None:
    """It is taken, and leaves nothing to be read; the next write begins anew."""
    task.set("k", 1)
    assert rest.put(f"{BASE}/k", json={"value": 2, "expires_at": moment}).status_code == 204
    assert rest.get(f"{BASE}/k").status_code == 404
    assert rest.get(BASE).json() == {"task_state_store": [], "total_entries": 0}
    clock.advance(timedelta(seconds=1))
    assert rest.put(f"{BASE}/k", json={"value": 3}).status_code == 204
    assert task.get("k") == 3
