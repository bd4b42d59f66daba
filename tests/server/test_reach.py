"""What a limited token reaches of assets, and who may sign what is written: in the worker API, REST and the pages alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from keepstate.backends.requests import Batch, Clear, Fence, Put
from keepstate.scope import AssetScope, TaskScope, Writer
from keepstate.wire import encode_request

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from keepstate.store import StateStore
    from tests.support.served import Served

    Ask = Callable[..., httpx.Response]

PUBLIC = {"dags": "etl_*", "assets": "pub*"}


@pytest.fixture
def ask(served: Served, http: httpx.Client) -> Ask:
    """Ask a verb with the token of a role; tokens are made once."""
    tokens: dict[Any, dict[str, str]] = {}

    def asking(verb: str, arguments: Any, role: str = "worker", **limits: Any) -> httpx.Response:
        key = (role, *limits.items())
        if key not in tokens:
            tokens[key] = served.headers(role, **limits)
        return http.post(
            f"/api/keepstate/v1/{verb}", json=encode_request(verb, arguments), headers=tokens[key]
        )

    return asking


def batch(scope: Any, writer: Writer) -> dict[str, Batch]:
    """Return the arguments of a small change."""
    return {"batch": Batch(scope, (Put("k", "1", None),), 0, writer)}


def asked_of(scope: AssetScope) -> list[tuple[str, dict[str, Any]]]:
    """Return a request of each verb that is about one asset."""
    return [
        ("read", {"scope": scope, "keys": None}),
        ("apply", batch(scope, Writer("cli"))),
        ("clear", {"request": Clear(scope, 0, Writer("cli"))}),
        ("history", {"scope": scope, "key": "k"}),
        ("changes", {"scope": scope, "after": 0}),
        ("asset", {"which": scope}),
    ]


# ---------------------------------------------------------------------------------------------------- assets


def test_nobody_makes_an_asset_whose_other_half_is_out_of_reach(ask: Ask, store: StateStore) -> None:
    """It would be read by its own half later, with what others wrote to it by theirs."""
    for scope in (AssetScope("finance", "pub_bait"), AssetScope("pub_squat", "s3://finance/next")):
        for verb, arguments in asked_of(scope):
            assert ask(verb, arguments, **PUBLIC).status_code == 403, (verb, scope)
    assert list(store.assets()) == []
    assert ask("apply", batch(AssetScope("pub_x", "pub_y"), Writer("cli")), **PUBLIC).status_code == 200
    assert ask("apply", batch(AssetScope("pub_z"), Writer("cli")), **PUBLIC).status_code == 200


def test_the_half_of_an_asset_is_no_oracle(ask: Ask, store: StateStore) -> None:
    """The same words for a name or uri out of reach, whether somebody's asset has it or nobody's."""
    store.asset("pub_x", uri="s3://team/x").set("k", 1)
    store.asset("secret", uri="s3://secret").set("k", 1)
    for there, absent in (
        (AssetScope("secret", "pub_new"), AssetScope("absent", "pub_new")),
        (AssetScope("pub_new", "s3://secret"), AssetScope("pub_new", "s3://absent")),
        (AssetScope("pub_x", "s3://secret"), AssetScope("pub_x", "s3://absent")),
        (AssetScope("secret", "s3://team/x"), AssetScope("absent", "s3://team/x")),
        (AssetScope("secret"), AssetScope("absent")),
        (AssetScope(uri="s3://secret"), AssetScope(uri="s3://absent")),
    ):
        for one, other in zip(asked_of(there), asked_of(absent), strict=True):
            first, second = ask(*one, **PUBLIC), ask(*other, **PUBLIC)
            assert (first.status_code, first.text) == (second.status_code, second.text), (one, other)
            assert first.status_code == 403
    # what it reaches by one half, it may call by the other too
    for scope in (AssetScope("pub_x"), AssetScope(uri="s3://team/x"), AssetScope("pub_x", "s3://team/x")):
        assert ask("read", {"scope": scope, "keys": None}, **PUBLIC).json()["answer"]["entries"]


# --------------------------------------------------------------------------------------------------- writers


@pytest.mark.parametrize("dag_id", ["etl_a/b", "..", "etl\n", "x" * 251, ""])
def test_nobody_signs_with_what_is_no_id(ask: Ask, dag_id: str) -> None:
    """Not with any of the three; it would lead nowhere on the pages."""
    for name in ("dag_id", "run_id", "task_id"):
        ids = {"dag_id": "etl_a", "run_id": "r", "task_id": "t", name: dag_id}
        answer = ask("apply", batch(AssetScope("orders"), Writer("task", **ids)))
        assert (answer.status_code, answer.json()["kind"]) == (422, "InvalidIdError")


def test_nobody_signs_for_the_pages_or_as_another_token(ask: Ask, store: StateStore) -> None:
    """What a client says of who it is counts for tasks, watchers and the command line."""
    scope = TaskScope("etl", "r", "t")
    for role in ("worker", "admin"):
        for verb, arguments in (
            ("apply", batch(scope, Writer("web", name="admin"))),
            ("clear", {"request": Clear(scope, 0, Writer("web"))}),
        ):
            answer = ask(verb, arguments, role)
            assert (answer.status_code, answer.json()["kind"]) == (403, "AccessDeniedError")
    begun = {"scope": scope, "keys": None, "fence": Fence(1), "writer": Writer("web")}
    assert ask("read", begun).status_code == 403
    for writer, recorded in (
        (Writer("api", name="admin"), Writer("api", name="worker-0")),
        (Writer("api"), Writer("api")),
        (Writer("cli", name="ada"), Writer("cli", name="ada")),
        (Writer("watcher", name="poller"), Writer("watcher", name="poller")),
    ):
        assert ask("apply", batch(scope, writer)).status_code == 200
        entry = store.task("etl", "r", "t").entry("k")
        assert entry is not None
        assert entry.writer == recorded


@pytest.fixture
def shared(store: StateStore) -> TaskScope:
    """An asset, and an entry of a task of ours, that a task of a dag out of reach wrote last."""
    for accessor in (
        store.asset("pub_x", writer=Writer("task", "secret_dag", "secret_run", "secret_task", 7, 3)),
        store.asset("pub_y", writer=Writer("task", "etl_a", "r", "t", -1, 1)),
    ):
        accessor.set("k", 1)
        accessor.set("gone", 1)
        accessor.delete("gone")
    return TaskScope("etl_a", "r", "t")


def test_of_a_writer_out_of_reach_only_its_kind_is_told(
    ask: Ask, served: Served, http: httpx.Client, shared: TaskScope
) -> None:
    """By every verb that tells of writers, by REST, and by the pages."""
    assert shared
    headers = served.headers("viewer", **PUBLIC)
    numbers = {one["name"]: one["id"] for one in ask("assets", {}).json()["answer"]}
    for name, words in (("pub_x", ("secret", 'index\\":7', 'index": 7')), ("pub_y", ())):
        scope = AssetScope(name)
        told = [
            ask(verb, arguments, **PUBLIC).text
            for verb, arguments in asked_of(scope)
            if verb in {"read", "history", "changes"}
        ]
        base = f"/api/v2/assets/{numbers[name]}"
        told += [
            http.get(f"{base}{path}", headers=headers).text
            for path in ("/state-store", "/state-store/k", "/state-store-history/k")
        ]
        page = f"/assets/{numbers[name]}"
        pages = [
            http.get(f"{page}{path}", headers=headers).text for path in ("", "?tab=removed", "/history?key=k")
        ]
        for text in told:
            assert "task" in text
            assert not any(word in text for word in words), text
            assert ("etl_a" in text) == (name == "pub_y")
        for text in pages:
            assert "secret" not in text
            assert ("etl_a / r / t" in text) == (name == "pub_y")
            assert ("A task" in text) == (name == "pub_x")
    # who reaches it is told all
    everything = ask("read", {"scope": AssetScope("pub_x"), "keys": None}).text
    assert "secret_task" in everything


@pytest.mark.parametrize(
    "text",
    [
        '{"kind":"task","dag_id":"etl_a/b","run_id":"x","task_id":"y"}',
        '{"kind":"task","dag_id":"..","run_id":"x","task_id":"y","map_index":"z"}',
        '{"kind":"task","dag_id":["x"],"run_id":5,"task_id":"y"}',
        '{"kind":["task"]}',
        "[]",
        "5",
        "{",
    ],
)
def test_a_writer_that_nobody_can_be_keeps_nothing_from_its_readers(
    served: Served, http: httpx.Client, store: StateStore, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it got into the store, the pages and REST go on showing what it wrote."""
    monkeypatch.setattr("keepstate.backends.sql.entries.writer_text", lambda _: text)
    store.task("etl_v", "r", "t").set("k", 1)
    store.asset("orders").set("k", 1)
    monkeypatch.undo()
    (info,) = store.assets()
    number = info.id
    for headers in (served.headers("viewer"), served.headers("viewer", "etl_*", assets="*")):
        for path in ("/dags/etl_v/runs/r/tasks/t", f"/assets/{number}"):
            for more in ("", "?tab=attempts", "/history?key=k"):
                answer = http.get(path + more, headers=headers)
                assert answer.status_code == 200, (path, more)
                assert 'href="/dags/etl_a' not in answer.text
        for path in (
            f"/api/v2/assets/{number}/state-store",
            f"/api/v2/assets/{number}/state-store-history/k",
        ):
            assert http.get(path, headers=headers).status_code == 200, path
