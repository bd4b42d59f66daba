"""The OpenAPI document is whole and true, and its page needs nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.server.rest import airflow_models, attempts, models
from tests.docs.pages import DOCS
from tests.server.rest.places import BASE, DAG, RUN_PATH, TASK_PATH

if TYPE_CHECKING:
    import httpx
    from pydantic import BaseModel

    from keepstate.accessors import AssetStateStore, TaskStateStore

PAGE = (DOCS / "reference" / "rest.md").read_text(encoding="utf-8")


@pytest.fixture
def document(rest: httpx.Client) -> dict[str, Any]:
    """The document."""
    found: dict[str, Any] = rest.get("/openapi.json").json()
    return found


def _operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


def test_every_operation_is_in_the_reference(document: dict[str, Any]) -> None:
    """By method and path, and the reference has no other."""
    listed = set(re.findall(r"^\| `(GET|PUT|PATCH|POST|DELETE) (/api/v2/[^`]*)` \|", PAGE, re.MULTILINE))
    assert listed == {place for place in _operations(document) if place[1].startswith("/api/v2/")}


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    """With a summary, the parameters of its path, and what can be the matter."""
    for (method, path), operation in _operations(document).items():
        assert operation["summary"], path
        in_path = {one["name"] for one in operation.get("parameters", []) if one["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path)), path
        if operation.get("security"):
            assert {"401", "403", "422", "503"} <= set(operation["responses"]), (method, path)


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    """So that generated clients do."""
    names = [operation["operationId"] for operation in _operations(document).values()]
    assert len(set(names)) == len(names)


def test_the_document_is_for_those_with_a_token(http: httpx.Client) -> None:
    """Of any role; its looks are for all."""
    assert [http.get(path).status_code for path in ("/openapi.json", "/docs", "/docs/style.css")] == [
        401,
        401,
        200,
    ]


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"script", "style"}
        for name, value in attrs:
            assert not name.startswith("on")
            assert name != "style"
            if name in {"href", "src"} and value:
                self.found.append(value)


def test_the_page_needs_nothing_from_elsewhere(rest: httpx.Client, document: dict[str, Any]) -> None:
    """No script, no font, no picture: it works without internet, and under the strictest policy of a browser."""
    page = rest.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    links = _Links()
    links.feed(page.text)
    assert sorted(set(links.found)) == ["data:,", "docs/style.css", "openapi.json"]
    for link in set(links.found) - {"data:,"}:
        assert rest.get(f"/{link}").status_code == 200
    for _, path in _operations(document):
        assert path in page.text


def _answers(rest: httpx.Client, asset_id: int) -> dict[str, tuple[type[BaseModel], str]]:
    asset = f"/api/v2/assets/{asset_id}"
    wanted = {
        BASE: models.TaskStateStoreCollectionResponse,
        f"{BASE}/k": models.TaskStateStoreResponse,
        f"{TASK_PATH}/state-store-history/k": models.HistoryResponse,
        f"{asset}/state-store": models.AssetStateStoreCollectionResponse,
        f"{asset}/state-store/watermark": models.AssetStateStoreResponse,
        f"{asset}/state-store-history/watermark": models.HistoryResponse,
        "/api/v2/dags": airflow_models.DagCollectionResponse,
        f"/api/v2/dags/{DAG}": airflow_models.DagResponse,
        f"/api/v2/dags/{DAG}/dagRuns": airflow_models.DagRunCollectionResponse,
        RUN_PATH: airflow_models.DagRunResponse,
        f"{RUN_PATH}/taskInstances": airflow_models.TaskInstanceCollectionResponse,
        TASK_PATH: airflow_models.TaskInstanceResponse,
        f"{TASK_PATH}/attempts": attempts.AttemptCollectionResponse,
        f"{TASK_PATH}/tries": attempts.TryCollectionResponse,
        f"{TASK_PATH}/tries/1": attempts.TryResponse,
        f"/api/v2/dags/{DAG}/details": airflow_models.DagDetailsResponse,
        "/api/v2/assets": airflow_models.AssetCollectionResponse,
        asset: airflow_models.AssetResponse,
        "/api/v2/version": airflow_models.VersionResponse,
        "/api/v2/monitor/health": airflow_models.HealthResponse,
    }
    return {path: (model, rest.get(path).text) for path, model in wanted.items()}


def test_answers_are_as_described(
    rest: httpx.Client, task: TaskStateStore, asset: AssetStateStore, asset_id: int
) -> None:
    """Each is what its model says, with no field more: answers are written as text, and the model only describes them."""
    task.set("k", {"a": [1, None]})
    task.set("k", 2)
    for path, (model, text) in _answers(rest, asset_id).items():
        assert model.model_validate_json(text), path
