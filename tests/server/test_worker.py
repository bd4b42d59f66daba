"""The worker API: who may ask what, what a limited token can learn, and what becomes of requests that are none."""

from __future__ import annotations

import gzip
import json
import logging
import re
import socket
import zlib
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepstate.backends.http import channel
from keepstate.backends.requests import (
    Batch,
    Begin,
    Behalf,
    Clear,
    End,
    Fence,
    HistoryPolicy,
    Holder,
    Put,
    Session,
)
from keepstate.connect import connect
from keepstate.errors import AccessDeniedError, BackendError, StaleAttemptError
from keepstate.scope import AssetScope, RunScope, TaskScope, Writer
from keepstate.server import worker, worker_document
from keepstate.server.admission import VERBS_ADMITTED
from keepstate.server.roles import ROLES, Right, Role
from keepstate.settings import Settings
from keepstate.wire import VERBS, encode_request
from tests.docs.pages import DOCS
from tests.support.served import serving_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from keepstate.store import StateStore
    from keepstate.testing import ManualClock
    from tests.support.served import Served

MINE = TaskScope("etl_a", "r", "t")
OTHERS = TaskScope("sales", "r", "t")
NOWHERE = TaskScope("nowhere", "r", "t")
WRITER = Writer("api")
ID = "01900000-0000-7000-8000-000000000001"
HOLDER = Holder("h", 1, "then")


def change(scope: Any = MINE, **more: Any) -> Batch:
    """Return a small batch."""
    return Batch(scope, (Put("k", "1", None),), 0, **{"writer": WRITER, **more})


def requests_of(scope: TaskScope) -> list[tuple[str, dict[str, Any]]]:
    """Return a request of each verb that is about one dag."""
    run = RunScope(scope.dag_id, scope.run_id)
    ids = {"dag_id": scope.dag_id, "run_id": scope.run_id}
    return [
        ("read", {"scope": scope, "keys": None}),
        ("apply", {"batch": change(scope)}),
        ("clear", {"request": Clear(scope, 0, WRITER)}),
        ("history", {"scope": scope, "key": "k"}),
        ("changes", {"scope": scope, "after": 0}),
        ("begin", {"request": Begin(scope, ID, HOLDER, 0, 0)}),
        ("beat", {"scope": scope, "fence": Fence(1, ID)}),
        ("end", {"request": End(scope, Fence(1, ID), "success", 0)}),
        ("attempts", {"scope": run}),
        ("outcome", {"scope": scope}),
        ("runs", {"dag_id": scope.dag_id}),
        ("count_runs", {"dag_id": scope.dag_id}),
        ("grid", {"dag_id": scope.dag_id}),
        ("run", {"scope": run}),
        ("task_instance", {"scope": scope}),
        ("count_task_instances", ids),
        ("task_instances", ids),
        ("delete_run", ids),
    ]


def requests_of_asset(scope: AssetScope) -> list[tuple[str, dict[str, Any]]]:
    """Return a request of each verb that is about one asset."""
    return [
        ("read", {"scope": scope, "keys": None}),
        ("apply", {"batch": change(scope)}),
        ("clear", {"request": Clear(scope, 0, WRITER)}),
        ("history", {"scope": scope, "key": "k"}),
        ("changes", {"scope": scope, "after": 0}),
        ("asset", {"which": scope}),
        ("delete_asset", {"scope": scope}),
    ]


OF_ALL: list[tuple[str, dict[str, Any]]] = [
    ("dags", {}),
    ("dag_ids", {}),
    ("count_dags", {}),
    ("keys", {}),
    ("keys_of_assets", {}),
    ("assets", {}),
    ("count_assets", {}),
    ("purge", {"batch_size": 1, "idle": None, "history": HistoryPolicy()}),
    ("check_writable", {}),
]
EVERY = [*requests_of(MINE), *requests_of_asset(AssetScope("orders"))[5:], *OF_ALL]


@pytest.fixture
def ask(served: Served, http: httpx.Client) -> Callable[..., httpx.Response]:
    """Ask a verb with the token of a role; tokens are made once."""
    tokens: dict[Any, dict[str, str]] = {}

    def asking(verb: str, arguments: Any = None, role: str = "admin", **limits: Any) -> httpx.Response:
        key = (role, *limits.items())
        if key not in tokens:
            tokens[key] = served.headers(role, **limits)
        body = encode_request(verb, arguments or {})
        return http.post(f"/api/keepstate/v1/{verb}", json=body, headers=tokens[key])

    return asking


@pytest.fixture
def post(served: Served, http: httpx.Client) -> Callable[..., httpx.Response]:
    """Post a raw body, as an administrator."""
    token = served.headers()

    def posting(verb: str, body: bytes | Iterator[bytes], **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return http.post(f"/api/keepstate/v1/{verb}", content=body, headers={**token, **named})

    return posting


# --------------------------------------------------------------------------------------------------- rights


def test_every_verb_has_its_right() -> None:
    """None is left out, and these tests ask every one."""
    assert set(VERBS_ADMITTED) == set(VERBS) == {verb for verb, _ in EVERY}


@pytest.mark.parametrize("role", [role.value for role in Role])
def test_a_role_may_ask_what_its_rights_are_for(ask: Callable[..., httpx.Response], role: str) -> None:
    """And nothing else: each verb, with a token of each role."""
    for verb, arguments in EVERY:
        answer = ask(verb, arguments, role)
        allowed = VERBS_ADMITTED[verb][0] in ROLES[Role(role)]
        assert (answer.status_code != 403) == allowed, (verb, answer.text)
        if not allowed:
            assert answer.json()["kind"] == "AccessDeniedError"
            assert f"the role {role} does not have" in answer.json()["detail"]
        elif verb != "beat":
            assert answer.status_code in {200, 409}, (verb, answer.text)


def test_the_reference_has_every_verb_with_its_right() -> None:
    """And no other."""
    page = (DOCS / "reference" / "worker-api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z_`, ]+) \| (\w+) \|", page, re.MULTILINE)
    listed = {verb: right for verbs, right in rows for verb in re.findall(r"`(\w+)`", verbs)}
    assert listed == {verb: right.name.lower() for verb, (right, _) in VERBS_ADMITTED.items()}


def test_the_rights_are_these() -> None:
    """Whatever else changes: only reading takes no more than the right to read."""
    assert {verb for verb, (right, _) in VERBS_ADMITTED.items() if right is not Right.READ} == {
        "apply", "clear", "begin", "beat", "end", "delete_run", "delete_asset", "purge",
    }  # fmt: skip
    assert {right for right, _ in VERBS_ADMITTED.values()} == set(Right)


def test_who_may_not_run_attempts_begins_none_by_reading(ask: Callable[..., httpx.Response]) -> None:
    """The first use of a fence registers its attempt, and would end the one that runs: so it takes the right to."""
    fence = Fence(9, ID)
    for role in ("viewer", "editor"):
        answer = ask("read", {"scope": MINE, "keys": None, "fence": fence}, role)
        assert answer.status_code == 403
    for verb, request in (
        ("apply", {"batch": change(fence=fence)}),
        ("clear", {"request": Clear(MINE, 0, WRITER, fence)}),
        ("apply", {"batch": change(AssetScope("orders"), behalf=Behalf(MINE, fence))}),
    ):
        assert ask(verb, request, "editor").status_code == 403
        assert ask(verb, request, "worker").status_code == 200
    assert ask("attempts", {"scope": MINE}).json()["answer"][0]["try_number"] == 9


def test_nobody_known_gets_nothing(http: httpx.Client, served: Served) -> None:
    """Without a token, with a wrong one, with another scheme: 401 for every verb, known or not, before the body is read."""
    for headers in ({}, {"Authorization": "Bearer kst_x"}, {"Authorization": "Basic abc"}):
        for verb in ("read", "nonsense"):
            answer = http.post(f"/api/keepstate/v1/{verb}", content=b"{", headers=headers)
            assert answer.status_code == 401
            assert set(answer.json()) == {"detail"}


# ------------------------------------------------------------------------------------------------- patterns


def test_a_limited_token_reaches_its_dags_only(ask: Callable[..., httpx.Response]) -> None:
    """Those of others look like those that are not there, whatever is asked of them; nothing is changed."""
    limits = {"dags": "etl_*"}
    ask("apply", {"batch": change(OTHERS)})
    for scope in (MINE, OTHERS, NOWHERE):
        refusals = {}
        for verb, arguments in requests_of(scope):
            role = "editor" if verb == "delete_run" else "worker"
            answer = ask(verb, arguments, role, **limits)
            if scope is MINE:
                assert answer.status_code == 200, (verb, answer.text)
            else:
                assert answer.status_code == 403, (verb, answer.text)
                refusals[verb] = answer.text.replace(scope.dag_id, "DAG")
        assert len(set(refusals.values())) <= 1
        if refusals:
            assert "this token does not reach the dag 'DAG', if there is one" in refusals["read"]
    assert ask("read", {"scope": OTHERS, "keys": None}).json()["answer"]["version"] == 1
    assert ask("run", {"scope": RunScope("nowhere", "r")}).json() == {"answer": None}


def test_lists_show_a_limited_token_what_it_reaches(ask: Callable[..., httpx.Response]) -> None:
    """Counts too, and a pattern that is asked for besides narrows it further."""
    for dag_id in ("etl_a", "etl_b", "sales", "other"):
        ask("apply", {"batch": change(TaskScope(dag_id, "r", "t"))})
    worker_of = {"role": "worker", "dags": "etl_*"}

    def listed(verb: str, **arguments: Any) -> Any:
        answer = ask(verb, arguments, **worker_of).json()["answer"]
        return (
            answer
            if isinstance(answer, int)
            else [one if isinstance(one, str) else one["dag_id"] for one in answer]
        )

    assert listed("dags") == listed("dag_ids") == ["etl_a", "etl_b"]
    assert listed("count_dags") == 2
    assert sorted(listed("runs")) == ["etl_a", "etl_b"]
    assert listed("count_runs") == 2
    for pattern, fitting in {
        "*": ["etl_a", "etl_b"],
        "*_b": ["etl_b"],
        "sales": [],
        "s*": [],
        "etl_a": ["etl_a"],
    }.items():
        assert listed("dags", pattern=pattern) == listed("dag_ids", pattern=pattern) == fitting
        assert sorted(listed("runs", pattern=pattern)) == fitting
        assert listed("count_dags", pattern=pattern) == listed("count_runs", pattern=pattern) == len(fitting)
    assert listed("dags", pattern="*", limit=1, offset=1) == ["etl_b"]
    assert listed("dags", limit=1) == ["etl_a"]
    assert (
        listed("dag_ids", pattern="*", limit=1, offset=1) == listed("dag_ids", limit=1, offset=1) == ["etl_b"]
    )
    assert listed("dags", pattern="*", limit=0) == []


def test_a_page_of_what_both_patterns_admit_is_full(ask: Callable[..., httpx.Response]) -> None:
    """The token's and the request's: what one of them leaves out takes no place of what is shown."""
    for run in "rstuv":
        for dag_id in ("etl_b", "etl_c", "sales_b", "etl_a"):
            ask("apply", {"batch": change(TaskScope(dag_id, run, "t"))})
    for name in ("a_sales", "b_sales", "c_other", "d_sales"):
        ask("apply", {"batch": change(AssetScope(f"etl_{name}"))})

    def listed(verb: str, **arguments: Any) -> Any:
        return ask(verb, arguments, "worker", dags="etl_*", assets="etl_*").json()["answer"]

    everything = ask("grid", {"limit": 50}).json()["answer"]
    reached = [one for one in everything if one["run"]["dag_id"] != "sales_b"]
    for limit, offset in ((1, 0), (1, 1), (3, 2), (4, 7), (20, 14), (20, 15), (20, 0)):
        page = listed("grid", pattern="*_?", limit=limit, offset=offset)
        assert page == reached[offset : offset + limit]
    of_b = [one for one in everything if one["run"]["dag_id"] == "etl_b"]
    assert listed("grid", pattern="*_b", limit=2) == of_b[:2]
    assert listed("grid", pattern="*_b", limit=2, offset=3) == of_b[3:]
    assert listed("grid", pattern="*_b", dag_id="etl_b", limit=2) == of_b[:2]
    assert listed("grid", pattern="*_b", dag_id="etl_a") == listed("grid", pattern="sales_b") == []
    keys = [one for one in ask("keys", {}).json()["answer"] if one["scope"]["dag_id"] == "etl_b"]
    assert listed("keys", pattern="*_b") == keys
    assert listed("keys", pattern="*_b", limit=3) == keys[:3]
    assert listed("keys", pattern="*_b", runs=1) == keys[:1]
    names = [one["name"] for one in listed("keys_of_assets", pattern="*_sales", limit=3)]
    assert names == ["etl_a_sales", "etl_b_sales", "etl_d_sales"]
    assert [one["name"] for one in listed("keys_of_assets", pattern="*_sales", limit=1)] == names[:1]


def test_a_limited_token_reaches_its_assets_only(ask: Callable[..., httpx.Response]) -> None:
    """By the name or the uri that an asset has here; half a name that fits does not open another one's asset."""
    limits = {"dags": "etl_*", "assets": "s3://mine/*"}
    ask("apply", {"batch": change(AssetScope("orders", "s3://mine/orders"))})
    ask("apply", {"batch": change(AssetScope("sales", "s3://others/sales"))})
    reached = [
        AssetScope("orders"),
        AssetScope(uri="s3://mine/orders"),
        AssetScope("orders", "s3://mine/orders"),
    ]
    denied = [
        AssetScope("sales"),
        AssetScope(uri="s3://others/sales"),
        AssetScope("s3://mine/trick", "s3://others/sales"),
        AssetScope("sales", "s3://mine/trick"),
        # each half is known, of two assets
        AssetScope("orders", "s3://others/sales"),
        AssetScope("sales", "s3://mine/orders"),
        AssetScope("nobody's"),
        # one that is not there yet is reached by each half that is given
        AssetScope("new", "s3://mine/new"),
    ]
    refusals = set()
    for scope in [*reached, *denied]:
        for verb, arguments in requests_of_asset(scope):
            if verb == "delete_asset":
                continue
            answer = ask(verb, arguments, "worker", **limits)
            assert answer.status_code == (200 if scope in reached else 403), (verb, scope, answer.text)
            if scope in denied:
                refusals.add(answer.text)
    assert len(refusals) == 1
    for scope in denied:
        assert ask("delete_asset", {"scope": scope}, "editor", **limits).status_code == 403
    listed = ask("assets", {}, "worker", **limits).json()["answer"]
    assert [one["name"] for one in listed] == ["orders"]
    assert ask("count_assets", {}, "worker", **limits).json() == {"answer": 1}
    assert ask("count_assets", {"pattern": "s*"}, "worker", **limits).json() == {"answer": 1}
    assert ask("assets", {"pattern": "sales"}, "worker", **limits).json() == {"answer": []}
    everything = ask("assets").json()["answer"]
    for one in everything:
        answer = ask("asset", {"which": one["id"]}, "worker", **limits).json()["answer"]
        assert (answer is not None) == (one["name"] == "orders")
    assert ask("asset", {"which": 10**6}, "worker", **limits).json() == {"answer": None}
    made = AssetScope("s3://mine/new", "s3://mine/new-too")
    assert ask("apply", {"batch": change(made)}, "worker", **limits).status_code == 200
    assert ask("delete_asset", {"scope": made}, "editor", **limits).json() == {"answer": True}


def test_a_token_for_dags_reaches_no_assets(ask: Callable[..., httpx.Response]) -> None:
    """Unless it says which."""
    ask("apply", {"batch": change(AssetScope("orders"))})
    for verb, arguments in requests_of_asset(AssetScope("orders"))[:-1]:
        assert ask(verb, arguments, "worker", dags="etl_*").status_code == 403
    assert ask("assets", {}, "worker", dags="*").json() == {"answer": []}


@pytest.mark.parametrize(
    "writer", [Writer("cli", name="root"), Writer("watcher", name="root"), Writer("api")]
)
def test_whoever_says_who_they_are_leaves_their_tokens_name(
    ask: Callable[..., httpx.Response], served: Served, writer: Writer
) -> None:
    """The kind and the name are the client's, and the token's name stands beside; nobody can name another token."""
    for number, role in enumerate(("worker", "editor"), start=1):
        said = replace(writer, token="somebody-else's")
        assert ask("apply", {"batch": change(writer=said)}, role).status_code == 200
        (entry,) = served.service.store.backend.read(MINE, ["k"], now=0).entries
        stored = Writer.from_text(entry.writer or "")
        assert stored == writer
        assert (stored.token or "").startswith(role), number
    ask("apply", {"batch": change(writer=Writer("task", try_number=1, token="x"))}, "worker")
    (entry,) = served.service.store.backend.read(MINE, ["k"], now=0).entries
    assert "token" not in (entry.writer or "")


def test_nobody_writes_in_the_name_of_a_dag_out_of_reach(ask: Callable[..., httpx.Response]) -> None:
    """Neither as its task's attempt nor as its writer."""
    limits = {"dags": "etl_*", "assets": "*"}
    asset = AssetScope("orders")
    behalf = Behalf(OTHERS, Fence(1))
    assert ask("apply", {"batch": change(asset, behalf=behalf)}, "worker", **limits).status_code == 403
    writer = Writer("task", OTHERS.dag_id, "r", "t", -1, 1)
    assert ask("apply", {"batch": change(asset, writer=writer)}, "worker", **limits).status_code == 403
    assert ask("attempts", {"scope": OTHERS}).json() == {"answer": []}
    assert (
        ask("apply", {"batch": change(asset, behalf=Behalf(MINE, Fence(1)))}, "worker", **limits).status_code
        == 200
    )


def test_a_cleanup_is_for_tokens_without_limits(ask: Callable[..., httpx.Response]) -> None:
    """It is of everything."""
    bounds = {"batch_size": 1, "idle": None, "history": HistoryPolicy()}
    assert ask("purge", bounds, "admin", dags="*").status_code == 403
    assert ask("purge", bounds, "admin", assets="*").status_code == 403
    assert ask("purge", bounds).json() == {"answer": None}


def test_sessions_of_different_tokens_are_apart(ask: Callable[..., httpx.Response]) -> None:
    """Nobody gets the answer of another one's request, nor makes it look repeated, whatever number it takes."""
    batch = change(session=Session("s", 1))
    for role in ("worker", "editor", "admin"):
        assert "repeated" not in ask("apply", {"batch": batch}, role).json()["answer"]
        assert ask("apply", {"batch": batch}, role).json()["answer"]["repeated"] is True
    assert ask("apply", {"batch": change(session=Session("s", 5))}).status_code == 200
    late = ask("apply", {"batch": change(session=Session("s", 4))})
    assert (late.status_code, late.json()["kind"]) == (409, "BackendError")


# ---------------------------------------------------------------------------------------- the server's own


def test_who_may_write_is_told_what_their_token_is(served: Served) -> None:
    """In the head of that answer alone; a pattern that no header could hold is percent-encoded."""
    for role, dags, told in (("viewer", None, None), ("worker", "étl_*", "%C3%A9tl_*")):
        headers = {"Authorization": f"Bearer {served.token(role, dags)}"}
        with httpx.Client(base_url=f"{served.url}/api/keepstate/v1/", headers=headers) as client:
            answer = client.post("check_writable", json={})
            assert answer.headers["Keepstate-Role"] == role
            assert answer.headers.get("Keepstate-Dags") == told
            assert "Keepstate-Role" not in client.post("count_dags", json={}).headers


def test_time_is_the_servers(ask: Callable[..., httpx.Response], clock: ManualClock) -> None:
    """Every answer tells it; entries carry it, and expire by it."""
    answer = ask("apply", {"batch": Batch(MINE, (Put("k", "1", clock() + 5_000_000),), 0, WRITER)})
    assert answer.headers["Keepstate-Time"] == str(clock())
    assert answer.headers["Keepstate-Protocol"] == "1"
    found = ask("read", {"scope": MINE, "keys": None}).json()["answer"]["entries"]
    assert found[0]["updated_at"] == clock()
    clock.advance(timedelta(seconds=5))
    assert "entries" not in ask("read", {"scope": MINE, "keys": None}).json()["answer"]
    assert ask("read", {"scope": OTHERS}).headers["Keepstate-Time"] == str(clock())


@pytest.mark.parametrize(
    ("asked", "own", "kept"),
    [
        ((5, 5, 500), (20, 7, 65_535), (5, 5, 500)),
        ((50, 50, 100_000), (20, 7, 65_535), (20, 7, 65_535)),
        ((50, 50, 0), (20, 7, 100), (20, 7, 100)),
        ((50, 50, 100), (20, 7, 0), (20, 7, 100)),
        ((0, 0, 0), (20, 7, 0), (0, 0, 0)),
        ((5, 5, 5), (0, 0, 5), (0, 0, 5)),
    ],
)
def test_of_each_bound_on_history_the_tighter_counts(
    tmp_path: Path, asked: tuple[int, int, int], own: tuple[int, int, int], kept: tuple[int, int, int]
) -> None:
    """Where 0 is no history, it is the tighter one; where it is no bound on the size, it is the wider one."""
    from keepstate.server.admission import Gate
    from keepstate.server.roles import Caller

    limits = dict(zip(("history_limit", "history_days", "max_value_storage_bytes"), own, strict=True))
    with connect(f"sqlite:///{tmp_path / 'k.db'}", settings=Settings(**limits)) as store:
        gate = Gate(store, Caller("id", "name", Role.WORKER))
        assert gate.history(HistoryPolicy(*asked)) == HistoryPolicy(*kept)


def test_a_workers_history_is_bounded_by_the_server(tmp_path: Path, clock: ManualClock) -> None:
    """For every verb that writes to the log."""
    server_settings = Settings(history_limit=2, history_days=1)
    with (
        connect(f"sqlite:///{tmp_path / 'k.db'}", settings=server_settings, clock=clock) as behind,
        serving_store(behind) as served,
        connect(
            served.url, settings=Settings(token=served.token("worker"), history_limit=9), clock=clock
        ) as store,
    ):
        tss = store.task("etl", "r", "t", try_number=1)
        for value in range(10):
            tss.set("k", value)
        assert len(behind.task("etl", "r", "t").history("k")) == len(tss.history("k")) == 2
        tss.delete("k")
        clock.advance(timedelta(days=1))
        assert tss.history("k") == []


# ----------------------------------------------------------------------------------------------- malformed


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        (b"", {}, 400, "no JSON"),
        (b"{", {}, 400, "no JSON"),
        (b"\xff\xfe", {}, 400, "no JSON"),
        (b"[" * 100_000, {}, 400, "no JSON"),
        (b"1" * 5000, {}, 400, "no JSON"),
        (b'{"scope": NaN}', {}, 400, "NaN is no JSON"),
        (b"null", {}, 422, "request: must be an object"),
        (b"[]", {}, 422, "request: must be an object"),
        (b"{}", {}, 422, "request: lacks 'scope'"),
        (b'{"scope": {"task": {}}, "keys": null}', {}, 422, "request.scope.task: lacks 'dag_id'"),
        (
            b'{"scope": {"task": {"dag_id": "d", "run_id": "r", "task_id": "t", "x": 1}}, "keys": null}',
            {},
            422,
            "'x'",
        ),
        (b"{}", {"content_encoding": "br"}, 415, "gzip"),
        (b"{}", {"content_encoding": "gzip"}, 400, "not packed by gzip"),
        (gzip.compress(b"{}", mtime=0)[:-3], {"content_encoding": "gzip"}, 400, "as a whole"),
        (gzip.compress(b"{}", mtime=0) * 2, {"content_encoding": "gzip"}, 400, "as a whole"),
        (zlib.compress(b"{}"), {"content_encoding": "gzip"}, 400, "not packed by gzip"),
        (gzip.compress(b"{}", mtime=0), {"content_encoding": "gzip"}, 422, "lacks 'scope'"),
        (b"{}", {"content_encoding": "identity"}, 422, "lacks 'scope'"),
    ],
)
def test_what_is_no_request_is_refused(
    post: Callable[..., httpx.Response], body: bytes, headers: dict[str, str], status: int, words: str
) -> None:
    """With JSON that says what is the matter, and where; never a fault of the server's."""
    answer = post("read", body, **headers)
    assert answer.status_code == status
    assert words in answer.json()["detail"]
    assert answer.json()["kind"] == "InvalidInputError"
    assert answer.headers["Keepstate-Protocol"] == "1"


def test_an_unknown_verb_is_told_apart_from_a_stranger(
    post: Callable[..., httpx.Response], http: httpx.Client
) -> None:
    """So is another version of the API, and a method that is none of it."""
    answer = post("fly", b"{}")
    assert (answer.status_code, answer.json()["kind"]) == (404, "UnsupportedError")
    for path in ("/api/keepstate/v2/read", "/api/keepstate/", "/api/keepstate/v1/read/more"):
        answer = http.post(path)
        assert (answer.status_code, answer.json()["kind"]) == (404, "UnsupportedError")
        assert answer.headers["Keepstate-Protocol"] == "1"
    assert http.get("/api/keepstate/v1/read").status_code == 405


@pytest.mark.parametrize("packed", [False, True])
def test_a_body_has_a_bound(
    post: Callable[..., httpx.Response], monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    """However it comes: declared, in pieces, or as a few bytes that unpack to many."""
    monkeypatch.setattr(worker, "LARGEST_BODY", 2_000_000)
    for verb, bound in (
        ("apply", 2_000_000),
        ("end", 2_000_000),
        ("read", 2**20),
        ("begin", 2**20),
        ("purge", 2**20),
    ):
        body = b" " * (bound + 1)
        if packed:
            answer = post(verb, gzip.compress(body), content_encoding="gzip")
        else:
            answer = post(verb, iter([body[:500_000], body[500_000:]]))
        assert (answer.status_code, answer.json()["kind"]) == (413, "ValueTooLargeError")
        assert answer.json()["facts"]["limit"] == bound
        fine = post(verb, gzip.compress(b" " * (bound - 2) + b"{}"), content_encoding="gzip")
        assert fine.status_code == 422


def test_a_request_is_about_so_many_keys(ask: Callable[..., httpx.Response]) -> None:
    """Ten thousand of them at once, read or changed; more are refused before the store is asked."""
    keys = [f"k{n}" for n in range(10_001)]
    puts = tuple(Put(key, "1", None) for key in keys)
    for verb, arguments in (
        ("read", {"scope": MINE, "keys": keys}),
        ("apply", {"batch": Batch(MINE, puts, 0, WRITER)}),
    ):
        answer = ask(verb, arguments)
        assert (answer.status_code, answer.json()["kind"]) == (422, "InvalidInputError")
        assert "at most 10,000" in answer.json()["detail"]
    assert ask("apply", {"batch": Batch(MINE, puts[1:], 0, WRITER)}).status_code == 200
    found = ask("read", {"scope": MINE, "keys": keys[1:]})
    assert len(found.json()["answer"]["entries"]) == 10_000


def test_both_sides_know_the_same_bound() -> None:
    """So that a request which no server takes is not sent."""
    assert worker.LARGEST_BODY == channel.LARGEST_BODY


def test_a_declared_body_that_is_too_large_is_not_waited_for(served: Served) -> None:
    """It is refused by its length alone."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    head = (
        f"POST /api/keepstate/v1/read HTTP/1.1\r\nHost: {host}\r\n"
        f"Authorization: {served.headers()['Authorization']}\r\n"
        f"Content-Length: {worker.LARGEST_BODY + 1}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_bomb_is_not_unpacked(post: Callable[..., httpx.Response]) -> None:
    """A gigabyte in a megabyte is refused at the bound, within its time."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join([*(packer.compress(b" " * 2**20) for _ in range(1024)), packer.flush()])
    assert len(bomb) < 2_000_000
    answer = post("read", bomb, content_encoding="gzip")
    assert answer.status_code == 413


def test_large_answers_are_packed(
    ask: Callable[..., httpx.Response], post: Callable[..., httpx.Response]
) -> None:
    """Where the client takes that; small ones never are."""
    value = json.dumps("x" * 100_000)
    ask("apply", {"batch": Batch(MINE, (Put("k", value, None),), 0, WRITER)})
    body = json.dumps(encode_request("read", {"scope": MINE, "keys": ["k"]})).encode()
    packed = post("read", body, accept_encoding="gzip")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert int(packed.headers["Content-Length"]) < 5_000
    for refusal in ("identity", "br, gzip;q=0", "gzip; q=0.000"):
        plain = post("read", body, accept_encoding=refusal)
        assert "Content-Encoding" not in plain.headers, refusal
    for wish in ("br, gzip;q=0.5", "GZIP"):
        assert "Content-Encoding" in post("read", body, accept_encoding=wish).headers, wish
    assert packed.json() == plain.json()
    assert plain.json()["answer"]["entries"][0]["text"] == value
    assert "Content-Encoding" not in ask("count_dags").headers


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_no_body_is_the_servers_fault(post: Callable[..., httpx.Response], data: st.DataObject) -> None:
    """Of requests in which one thing is replaced, whatever by."""
    verb, arguments = data.draw(st.sampled_from(EVERY))
    body = encode_request(verb, arguments)
    places = list(_places(body))
    if places:
        holder, name = data.draw(st.sampled_from(places))
        holder[name] = data.draw(values)
    answer = post(verb, json.dumps(body).encode())
    assert answer.status_code < 500, (verb, body, answer.text)
    assert isinstance(answer.json(), dict)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    names = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for name in names:
        yield value, name
        yield from _places(value[name])


# -------------------------------------------------------------------------------------------------- failing


def test_errors_come_out_as_raised(served: Served, clock: ManualClock) -> None:
    """Of the same class with the same facts, over the backend that speaks this API."""
    with connect(served.url, settings=Settings(token=served.token("worker")), clock=clock) as store:
        store.task("etl", "r", "t", try_number=2).set("k", 1)
        with pytest.raises(StaleAttemptError) as caught:
            store.task("etl", "r", "t", try_number=1).set("k", 1)
        assert (caught.value.try_number, caught.value.current_try_number) == (1, 2)
        with pytest.raises(AccessDeniedError) as denied:
            store.delete_run("etl", "r")
        assert denied.value.address == served.url


def test_a_missing_token_is_told_of_once(served: Served) -> None:
    """With where it comes from, and the setting that it belongs into."""
    with (
        connect(served.url, settings=Settings(retry_timeout=0)) as store,
        pytest.raises(AccessDeniedError, match=r"create` makes one; set KEEPSTATE_TOKEN to it$") as denied,
    ):
        store.task("d", "r", "t").get("k")
    assert str(denied.value).count("keepstate token create") == 1


def test_the_database_is_nobodys_business(
    served: Served, store: StateStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is stands in the server's log, not in what clients are told; nor what broke in the code."""
    caplog.set_level(logging.ERROR)
    address = store.backend.address
    secret_failure = "the secret failure"

    def fail(*_: Any, **__: Any) -> None:
        raise BackendError(f"the store {address} is on fire", address=address)

    def break_down(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError(secret_failure)

    client = Settings(token=served.token("worker"), retry_timeout=0)
    with connect(served.url, settings=client) as other:
        monkeypatch.setattr(store.backend, "outcome", fail)
        with pytest.raises(BackendError, match="the database behind the server failed") as caught:
            other.backend.outcome(MINE)
        assert caught.value.address == served.url
        monkeypatch.setattr(store.backend, "outcome", break_down)
        with pytest.raises(BackendError, match="which its log describes") as caught:
            other.backend.outcome(MINE)
        assert secret_failure not in str(vars(caught.value)) + str(caught.value)
    assert address in caplog.text
    assert secret_failure in caplog.text


def test_the_document_describes_every_verb() -> None:
    """With references that lead somewhere, and each status that the API answers with."""
    document: dict[str, Any] = {"paths": {}}
    worker_document.describe(document)
    assert {path.rpartition("/")[2] for path in document["paths"]} == set(VERBS)
    text = json.dumps(document)
    named = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= set(document["components"]["schemas"])
    assert "$defs" not in text
