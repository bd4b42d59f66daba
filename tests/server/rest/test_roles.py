"""Who may do what: every role at every operation, and tokens that reach only some dags and assets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from keepstate.server.roles import ROLES, Right, Role
from tests.server.rest.places import DAG, RUN, TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keepstate.accessors import AssetStateStore, TaskStateStore
    from keepstate.store import StateStore
    from tests.support.served import Served

_TASK = "/api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}"
_RUN = "/api/v2/dags/{dag_id}/dagRuns/{dag_run_id}"
_ASSET = "/api/v2/assets/{asset_id}"

READ, WRITE, ERASE = Right.READ, Right.WRITE, Right.ERASE

# every operation and the right that it needs; None is none at all
RIGHTS: dict[tuple[str, str], Right | None] = {
    ("GET", f"{_TASK}/state-store"): READ,
    ("GET", f"{_TASK}/state-store/{{key}}"): READ,
    ("PUT", f"{_TASK}/state-store/{{key}}"): WRITE,
    ("PATCH", f"{_TASK}/state-store/{{key}}"): WRITE,
    ("DELETE", f"{_TASK}/state-store/{{key}}"): WRITE,
    ("DELETE", f"{_TASK}/state-store"): WRITE,
    ("GET", f"{_TASK}/state-store-history/{{key}}"): READ,
    ("POST", f"{_TASK}/state-store-restore/{{key}}"): WRITE,
    ("GET", f"{_ASSET}/state-store"): READ,
    ("GET", f"{_ASSET}/state-store/{{key}}"): READ,
    ("PUT", f"{_ASSET}/state-store/{{key}}"): WRITE,
    ("DELETE", f"{_ASSET}/state-store/{{key}}"): WRITE,
    ("DELETE", f"{_ASSET}/state-store"): WRITE,
    ("GET", f"{_ASSET}/state-store-history/{{key}}"): READ,
    ("POST", f"{_ASSET}/state-store-restore/{{key}}"): WRITE,
    ("GET", "/api/v2/dags"): READ,
    ("GET", "/api/v2/dags/{dag_id}"): READ,
    ("GET", "/api/v2/dags/{dag_id}/details"): READ,
    ("GET", "/api/v2/dags/{dag_id}/dagRuns"): READ,
    ("GET", _RUN): READ,
    ("DELETE", _RUN): ERASE,
    ("GET", f"{_RUN}/attempts"): READ,
    ("GET", f"{_RUN}/taskInstances"): READ,
    ("GET", _TASK): READ,
    ("GET", f"{_TASK}/{{map_index}}"): READ,
    ("GET", f"{_TASK}/attempts"): READ,
    ("GET", f"{_TASK}/listMapped"): READ,
    ("GET", f"{_TASK}/tries"): READ,
    ("GET", f"{_TASK}/tries/{{task_try_number}}"): READ,
    ("GET", f"{_TASK}/{{map_index}}/tries"): READ,
    ("GET", f"{_TASK}/{{map_index}}/tries/{{task_try_number}}"): READ,
    ("GET", "/api/v2/assets"): READ,
    ("GET", _ASSET): READ,
    ("DELETE", _ASSET): ERASE,
    ("GET", "/api/v2/version"): None,
    ("GET", "/api/v2/monitor/health"): None,
}
BODIES = {"PUT": {"value": 1}, "PATCH": {"value": 1}, "POST": {"version": 1}}


def _path(template: str, **ids: Any) -> str:
    known = {
        "dag_id": DAG,
        "dag_run_id": RUN,
        "task_id": TASK,
        "key": "k",
        "map_index": 0,
        "asset_id": 1,
        "task_try_number": 1,
    }
    return template.format(**{**known, **ids}).replace("+", "%2B")


def test_the_table_has_every_operation(rest: httpx.Client) -> None:
    """No operation comes without a decision on who may do it; and the document tells it."""
    document = rest.get("/openapi.json").json()
    found = {
        (method.upper(), path): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if path.startswith("/api/v2/")
    }
    assert set(found) == set(RIGHTS)
    for place, right in RIGHTS.items():
        said = found[place]["description"]
        assert f"Needs the right to {right.value}." in said if right else "Anybody may ask." in said
        assert found[place]["security"] == ([{"token": []}] if right else [])


@pytest.mark.parametrize("role", [*Role, None], ids=lambda role: role.value if role else "nobody")
def test_a_role_may_do_what_the_table_says(served: Served, store: StateStore, role: Role | None) -> None:
    """Else it gets 403 whatever exists, and nobody gets 401; neither is told anything more, nor changes anything."""
    headers = served.headers(role.value) if role else {}
    with httpx.Client(base_url=served.url, headers=headers, timeout=20) as client:
        for exists in (False, True):
            for (method, template), right in RIGHTS.items():
                if exists:
                    _make_all(store)
                ids = {"asset_id": store.assets()[0].id} if exists else {}
                before = _seen(store)
                body = _body(store, method, template, exists)
                found = client.request(method, _path(template, **ids), json=body)
                place = (method, template, exists)
                if right is None:
                    assert found.status_code == 200, place
                elif role is None:
                    assert found.status_code == 401, place
                    assert found.headers["www-authenticate"].startswith("Bearer"), place
                elif right not in ROLES[role]:
                    assert found.status_code == 403, place
                    assert DAG not in found.text, place
                else:
                    assert found.status_code in ({200, 204} if exists else {200, 404}), place
                    continue
                assert _seen(store) == before, place


def _make_all(store: StateStore) -> None:
    for accessor in (
        store.task(DAG, RUN, TASK, try_number=1),
        store.task(DAG, RUN, TASK, map_index=0, try_number=1),
        store.asset("orders"),
    ):
        accessor.set("k", 1)


def _body(store: StateStore, method: str, template: str, exists: bool) -> Any:
    if method != "POST" or not exists:
        return BODIES.get(method)
    accessor = store.asset("orders") if "{asset_id}" in template else store.task(DAG, RUN, TASK)
    return {"version": accessor.history("k")[0].version}


def _seen(store: StateStore) -> Any:
    return (
        [dict(store.task(DAG, RUN, TASK, map_index=index).items()) for index in (-1, 0)],
        [len(store.task(DAG, RUN, TASK, map_index=index).history("k")) for index in (-1, 0)],
        store.runs(),
        store.assets(),
    )


# ------------------------------------------------------------------------------------------------ patterns


@pytest.fixture
def limited(served: Served) -> Iterator[Callable[..., httpx.Client]]:
    """A function that makes a client whose token reaches only what a pattern admits."""
    made: list[httpx.Client] = []

    def make(dags: str | None = None, role: str = "admin", **more: Any) -> httpx.Client:
        headers = served.headers(role, dags, **more)
        made.append(httpx.Client(base_url=served.url, headers=headers, timeout=20))
        return made[-1]

    yield make
    for client in made:
        client.close()


def test_lists_and_totals_have_what_the_pattern_admits(
    store: StateStore, limited: Callable[..., httpx.Client]
) -> None:
    """And nothing tells that there is more."""
    for dag in ("etl_a", "etl_b", "ETL_c", "etlXd", "other", "e%", "etl"):
        for run in ("r1", "r2"):
            store.task(dag, run, TASK).set("k", 1)
    client = limited("etl_*")
    found = client.get("/api/v2/dags").json()
    assert ([dag["dag_id"] for dag in found["dags"]], found["total_entries"]) == (["etl_a", "etl_b"], 2)
    page = client.get("/api/v2/dags?limit=1&offset=1").json()
    assert ([dag["dag_id"] for dag in page["dags"]], page["total_entries"]) == (["etl_b"], 2)
    found = client.get("/api/v2/dags/~/dagRuns").json()
    assert {run["dag_id"] for run in found["dag_runs"]} == {"etl_a", "etl_b"}
    assert found["total_entries"] == 4
    assert client.get("/api/v2/dags/~/dagRuns?limit=0").json() == {"dag_runs": [], "total_entries": 4}
    assert limited("nothing").get("/api/v2/dags").json() == {"dags": [], "total_entries": 0}


def _answers(client: httpx.Client, **ids: Any) -> dict[str, tuple[int, str, dict[str, str]]]:
    """Return what each operation answers, good requests and bad ones, with the ids in it made alike."""
    found: dict[str, tuple[int, str, dict[str, str]]] = {}
    bad = {"PUT": b'{"value": null}', "PATCH": b"{", "POST": b'{"version": 0}'}
    for method, template in RIGHTS:
        if "{dag_id}" not in template:
            continue
        for body in (json.dumps(BODIES.get(method)).encode(), bad.get(method, b"")):
            for key, query in (
                ("k", ""),
                ("absent", ""),
                ("a/../b", ""),
                ("k", "?limit=x"),
                ("k", "?map_index=-9"),
            ):
                for headers in ({}, {"If-Match": '"1"'}, {"If-None-Match": "*"}):
                    target = _path(template, key=key.replace("..", "%2E%2E"), **ids) + query
                    answer = client.request(method, target, content=body, headers=headers)
                    text = answer.text
                    for name, value in ids.items():
                        text = text.replace(str(value), name)
                    told = {k: v for k, v in answer.headers.items() if k not in {"date", "content-length"}}
                    found[f"{method} {template} {key} {query} {body!r} {headers}"] = (
                        answer.status_code,
                        text,
                        told,
                    )
    return found


@pytest.mark.parametrize("role", ["viewer", "worker", "editor", "admin"])
def test_what_is_not_admitted_looks_like_what_is_not_there(
    store: StateStore, limited: Callable[..., httpx.Client], role: str
) -> None:
    """To the byte, for every operation, good requests and bad: neither by status nor by text can they be told apart."""
    store.task("secret", "run_1", "task_1", try_number=1).set("k", 1)
    store.task("secret", "run_1", "task_1", map_index=0).set("k", 1)
    client = limited("etl_*", role)
    ids = {"dag_run_id": "run_1", "task_id": "task_1"}
    forbidden = _answers(client, dag_id="secret", **ids)
    unknown = _answers(client, dag_id="hidden", **ids)
    # one that the pattern admits, and that is not there either
    admitted = _answers(client, dag_id="etl_xy", **ids)
    assert forbidden == unknown == admitted
    assert {status for status, _, _ in forbidden.values()} <= {200, 403, 404, 422}
    assert dict(store.task("secret", "run_1", "task_1").items()) == {"k": 1}
    assert len(store.task("secret", "run_1", "task_1").history("k")) == 1
    assert [info.dag_id for info in store.runs()] == ["secret"]


def test_what_is_admitted_works(store: StateStore, limited: Callable[..., httpx.Client]) -> None:
    """As with a token without a pattern."""
    store.task("etl_a", "r", "t").set("k", 1)
    client = limited("etl_*", "worker")
    base = "/api/v2/dags/etl_a/dagRuns/r/taskInstances/t/state-store"
    assert client.get(f"{base}/k").json()["value"] == 1
    assert client.put(f"{base}/k", json={"value": 2}).status_code == 204
    assert client.delete(base).status_code == 204
    assert client.get("/api/v2/dags/etl_a/dagRuns/r/taskInstances").json()["total_entries"] == 1


def test_assets_have_a_pattern_of_their_own(
    store: StateStore, asset: AssetStateStore, task: TaskStateStore, limited: Callable[..., httpx.Client]
) -> None:
    """By name or uri; one that is not admitted is not found, like one that is not there."""
    store.asset("secret", uri="gs://secret").set("k", 1)
    numbers = {info.name: info.id for info in store.assets()}
    for pattern in ("orders", "s3://*"):
        client = limited(assets=pattern)
        found = client.get("/api/v2/assets").json()
        assert ([one["name"] for one in found["assets"]], found["total_entries"]) == (["orders"], 1)
        assert client.get(f"/api/v2/assets/{numbers['orders']}/state-store/watermark").status_code == 200
        for method, template in RIGHTS:
            if "{asset_id}" not in template:
                continue
            answers = []
            for number in (numbers["secret"], 99_999):
                target = _path(template, asset_id=number)
                answer = client.request(method, target, json=BODIES.get(method))
                answers.append((answer.status_code, answer.text.replace(str(number), "n")))
            assert answers[0] == answers[1]
            assert answers[0][0] == 404
    assert store.asset("secret").get("k") == 1
