"""Paths and queries as no well-behaved client sends them."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.server.rest.places import BASE, DAG, RUN, TASK, TASK_PATH

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from keepstate.accessors import AssetStateStore, TaskStateStore
    from keepstate.store import StateStore
    from tests.support.served import Served

    Raw = Callable[..., tuple[int, dict[str, str], bytes]]

VERBS = {"GET": None, "PUT": b'{"value": 9}', "PATCH": b'{"value": 9}', "DELETE": None}

KEYS = {
    "a/b": "a/b",
    "a%2Fb": "a/b",
    "a%2fb": "a/b",
    "a//b": "a//b",
    "/a": "/a",
    "%2F": "/",
    "a/": "a/",
    "a%2F": "a/",
    "a%3Fb%23c": "a?b#c",
    "%25": "%",
    "%252F": "%2F",
    "%252E%252E": "%2E%2E",
    "...": "...",
    ".a": ".a",
    "a..b/c.": "a..b/c.",
    "a+b": "a+b",
    "a%20b": "a b",
    "%C3%A9": "é",
    "%F0%9F%A6%86": "🦆",
    "e%CC%81": "e\u0301",
    "%EF%BF%BD": "\ufffd",
    "a;b=c,d": "a;b=c,d",
    "taskInstances/x/state-store/y": "taskInstances/x/state-store/y",
    "%0A": "\n",
    "a%0A": "a\n",
    "a%0Ab%0D%0A": "a\nb\r\n",
    "x" * 512: "x" * 512,
}


@pytest.mark.parametrize("path", KEYS, ids=lambda path: path[:20])
def test_a_key_is_what_the_path_says(raw: Raw, task: TaskStateStore, path: str) -> None:
    """Percent-encoded or not, to the letter: it is written, read, patched and deleted under that key."""
    where, key = f"{BASE}/{path}", KEYS[path]
    assert raw("PUT", where, b'{"value": 1}')[0] == 204
    assert [entry.key for entry in task.entries()] == [key]
    status, _, body = raw("GET", where)
    assert (status, json.loads(body)["key"]) == (200, key)
    assert raw("PATCH", where, b'{"value": 2}')[0] == 200
    assert task.get(key) == 2
    assert raw("DELETE", where)[0] == 204
    assert task.get(key) is None


REFUSED = [
    "",
    ".",
    "..",
    "%2E",
    "%2e%2E",
    "./",
    "../",
    "a/.",
    "a/..",
    "a/../b",
    "a/%2e%2e/b",
    "a%2F..%2Fb",
    "..%2F",
    "%2F.",
    "%00",
    "a%00b",
    "x" * 513,
    "%FF",
    "%C3",
    "a%ED%A0%80",
    "?map_index=-1",
]


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path[:20])
def test_what_is_no_key_is_refused_by_every_verb(raw: Raw, task: TaskStateStore, path: str) -> None:
    """With 422: nothing after the slash is never the call without the slash, and never a redirect."""
    task.set_many({"a": 1, "b": 2, "\ufffd": 3})
    for verb, body in VERBS.items():
        status, headers, answer = raw(verb, f"{BASE}/{path}", body)
        assert status == 422, (verb, path)
        assert "location" not in {name.lower() for name in headers}
        (problem,) = json.loads(answer)["detail"]
        assert problem["loc"] == ["path", "key"]
    assert dict(task.items()) == {"a": 1, "b": 2, "\ufffd": 3}


@pytest.mark.parametrize("path", ["", ".", "%2E%2e", "a/..", "%00", "%FF", "x" * 513])
def test_an_asset_s_keys_are_refused_alike(
    raw: Raw, asset: AssetStateStore, asset_id: int, path: str
) -> None:
    """By every verb that there is."""
    for verb in ("GET", "PUT", "DELETE"):
        assert raw(verb, f"/api/v2/assets/{asset_id}/state-store/{path}", VERBS[verb])[0] == 422
    assert dict(asset.items()) == {"watermark": "2026-11-28"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (BASE.replace(f"/{DAG}/", "/%2E%2E/"), 422),
        (BASE.replace(f"/{DAG}/", "/./"), 422),
        (BASE.replace(f"/{DAG}/", "//"), 404),
        (BASE.replace(f"/{DAG}/", "/a%2Fb/"), 404),
        (BASE.replace(f"/{TASK}/", "/%FF/"), 422),
        (BASE.replace(f"/{TASK}/", "/%00/"), 422),
        (BASE.replace(f"/{TASK}/", f"/{'x' * 251}/"), 422),
        ("/api/v2/assets/1.0/state-store", 422),
        ("/api/v2/assets/%D9%A1/state-store", 422),
        ("/api/v2/assets/+1/state-store", 422),
        ("/api/v2/assets/one/state-store", 422),
        ("/api/v2/assets//state-store", 404),
        ("/api/v2/nothing", 404),
        ("/api/v2/dags/", 404),
        ("/api/v2/dags%0A", 404),
        (f"{BASE}%0A", 404),
    ],
)
def test_other_parts_of_a_path(raw: Raw, asset: AssetStateStore, path: str, status: int) -> None:
    """What can't be an id is refused; what is no path is not found; nothing is redirected."""
    assert raw("GET", path)[0] == status


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1",
        "offset=-1",
        "limit=x",
        "limit=",
        "limit=1.5",
        "limit=1e3",
        "limit=%D9%A1",
        "limit=+1",
        "limit=1&limit=2",
        f"limit={'9' * 5000}",
        "map_index=-2",
        "map_index=x",
        f"map_index={2**31}",
        f"map_index={10**30}",
        "mapindex=0",
        "LIMIT=1",
        "order_by=key",
        "%FF=1",
    ],
)
def test_a_query_that_can_t_be_is_refused(raw: Raw, task: TaskStateStore, query: str) -> None:
    """With 422 and the name of the parameter; a mistyped one too."""
    status, _, body = raw("GET", f"{BASE}?{query}")
    assert status == 422
    (problem,) = json.loads(body)["detail"]
    assert problem["loc"][0] == "query"


@pytest.mark.parametrize(
    "query", ["limit=0", f"limit={10**30}", f"offset={10**30}", "limit=007", "map_index=-1"]
)
def test_a_query_that_can_be_is_answered(raw: Raw, task: TaskStateStore, query: str) -> None:
    """However large a limit is, or an offset."""
    task.set("k", 1)
    status, _, body = raw("GET", f"{BASE}?{query}")
    assert (status, json.loads(body)["total_entries"]) == (200, 1)


def test_a_line_break_is_no_end_of_a_path(raw: Raw, task: TaskStateStore) -> None:
    """`DELETE state-store%0A` is not the call that clears."""
    task.set("k", 1)
    assert raw("DELETE", f"{BASE}%0A")[0] == 404
    assert raw("DELETE", f"{BASE}/k%0A")[0] == 204
    assert task.get("k") == 1


def test_flags(raw: Raw, task: TaskStateStore, store: StateStore) -> None:
    """Are true or false; what is neither removes nothing."""
    task.set("k", 1)
    for flag in ("maybe", "", "2", "null"):
        assert raw("DELETE", f"{BASE}?all_map_indices={flag}")[0] == 422
        assert raw("DELETE", f"{BASE}?forget={flag}")[0] == 422
    assert task.get("k") == 1
    assert raw("DELETE", f"{BASE}?all_map_indices=false&forget=False")[0] == 204
    assert len(task.history("k")) == 2
    assert raw("DELETE", f"{BASE}?forget=true")[0] == 204
    assert task.history("k") == []


def test_methods_that_are_not_there(rest: httpx.Client, task: TaskStateStore) -> None:
    """Are 405, and say which are."""
    for path in (BASE, f"{BASE}/k", "/api/v2/dags", TASK_PATH):
        found = rest.post(path, json={})
        assert found.status_code == 405
        assert "GET" in found.headers["allow"]


def test_bytes_that_are_no_ascii(served: Served, task: TaskStateStore) -> None:
    """In the request line, where only ASCII may be: the connection gets an answer or its end, and the server lives."""
    place = urlsplit(served.url)
    for target in (f"{BASE}/\u00e9".encode(), b"/\xff\xfe", b"//", b"*"):
        with socket.create_connection((place.hostname, place.port), 10) as connection:
            connection.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            received = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert b" 500 " not in received.split(b"\r\n")[0]


def test_answers_are_json(rest: httpx.Client, task: TaskStateStore) -> None:
    """Errors too: `{"detail": …}`."""
    task.set("k", 1)
    for path in (BASE, f"{BASE}/k", f"{BASE}/absent", f"{BASE}/", "/api/v2/nothing"):
        found = rest.get(path)
        assert found.headers["content-type"] == "application/json"
        data: Any = found.json()
        assert found.is_success or set(data) == {"detail"}


def test_a_run_whose_id_needs_encoding(rest: httpx.Client, store: StateStore) -> None:
    """Plus signs, colons, spaces and umlauts."""
    for run in (RUN, "a b", "ü:1", "100%", "~"):
        store.task(DAG, run, TASK).set("k", run)
        found = rest.get(f"/api/v2/dags/{DAG}/dagRuns/{_quoted(run)}/taskInstances/{TASK}/state-store/k")
        assert found.json()["value"] == run


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())
