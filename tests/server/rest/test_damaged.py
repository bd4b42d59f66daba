"""Answers where somebody else has written into the tables: whole JSON documents, which say what is no value of keepstate's."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.rest.places import BASE, TASK_PATH

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from keepstate.accessors import AssetStateStore, TaskStateStore
    from keepstate.store import StateStore
    from tests.support.served import Served

HISTORY = f"{TASK_PATH}/state-store-history"
RESTORE = f"{TASK_PATH}/state-store-restore"

# what is stored, and how an answer tells it
DAMAGED: dict[str | bytes, str] = {
    "{": "{",
    "": "",
    '"cut sh': '"cut sh',
    "NaN": "NaN",
    "[-Infinity]": "[-Infinity]",
    "1e999": "1e999",
    "null": "null",
    r'"\ud800"': r'"\ud800"',
    '"\0"': '"\0"',
    '1,"key":"other"': '1,"key":"other"',
    "[" * 100_000: "[" * 100_000,
    b"1": "b'1'",
    b"\xff\x00": r"b'\xff\x00'",
}


@pytest.fixture
def spoil(shared: tuple[Path, StateStore, Served]) -> Any:
    """A function that writes into the tables, past keepstate, what an entry has in a column."""

    def write(column: str, value: str | bytes, key: str = "bad", tables: str = "entry log") -> None:
        connection = sqlite3.connect(shared[0])
        with connection:
            for table in tables.split():
                done = connection.execute(
                    f"UPDATE keepstate_{table} SET {column} = ? WHERE entry_key = ?", [value, key]
                )
                assert done.rowcount
        connection.close()

    return write


def strictly(answer: httpx.Response) -> Any:
    """Return the document of an answer, as a parser takes it that follows RFC 8259 to the letter."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(answer.content.decode(), parse_constant=refuse)


@pytest.mark.parametrize("stored", DAMAGED, ids=lambda stored: ascii(stored[:20]))
def test_a_damaged_value_is_told_beside_its_neighbours(
    rest: httpx.Client, task: TaskStateStore, spoil: Any, stored: str | bytes
) -> None:
    """In lists and in the history: null, which is no value, and what is stored. By itself it is refused with 500."""
    task.set_many({"bad": 1, "good": {"n": [2]}})
    task.set("bad", 2)
    spoil("value", stored, tables="entry")
    page = rest.get(BASE)
    assert page.status_code == 200
    bad, good = strictly(page)["task_state_store"]
    assert (bad["key"], bad["value"], bad["damaged"]) == ("bad", None, DAMAGED[stored])
    assert (good["value"], "damaged" in good) == ({"n": [2]}, False)
    only = rest.get(f"{BASE}/bad")
    assert only.status_code == 500
    assert strictly(only)["detail"].startswith("the value under the key 'bad' of etl / ")
    assert only.json()["detail"].endswith("; write it anew, or delete it")
    assert rest.get(f"{BASE}/good").json()["value"] == {"n": [2]}


@pytest.mark.parametrize("stored", DAMAGED, ids=lambda stored: ascii(stored[:20]))
def test_a_damaged_version_is_told_and_not_written_again(
    rest: httpx.Client, task: TaskStateStore, spoil: Any, stored: str | bytes
) -> None:
    """Those before and after it are there, and can be restored."""
    task.set("bad", 1)
    spoil("value", stored, tables="log")
    task.set("bad", 2)
    found = rest.get(f"{HISTORY}/bad")
    assert found.status_code == 200
    newer, older = strictly(found)["history"]
    assert (newer["value"], "damaged" in newer) == (2, False)
    assert (older["value"], older["damaged"]) == (None, DAMAGED[stored])
    refused = rest.post(f"{RESTORE}/bad", json={"version": older["version"]})
    assert (refused.status_code, task.get("bad")) == (404, 2)
    assert refused.json()["detail"].endswith("or it is damaged")
    assert rest.post(f"{RESTORE}/bad", json={"version": newer["version"]}).status_code == 204


def test_a_damaged_value_can_be_written_anew_and_deleted(
    rest: httpx.Client, task: TaskStateStore, spoil: Any
) -> None:
    """As it is said to be."""
    for change in (
        lambda: rest.put(f"{BASE}/bad", json={"value": 3}),
        lambda: rest.patch(f"{BASE}/bad", json={"value": 3}),
        lambda: rest.delete(f"{BASE}/bad"),
    ):
        task.set("bad", 1)
        spoil("value", "{", tables="entry")
        assert rest.get(f"{BASE}/bad").status_code == 500
        assert change().status_code in {200, 204}
        assert rest.get(f"{BASE}/bad").status_code in {200, 404}


def test_a_damaged_value_of_an_asset_is_told_too(
    rest: httpx.Client, asset: AssetStateStore, asset_id: int, spoil: Any
) -> None:
    """As that of a task instance."""
    asset.set("a", 1)
    spoil("value", "{", key="watermark")
    good, bad = strictly(rest.get(f"/api/v2/assets/{asset_id}/state-store"))["asset_state_store"]
    assert (good["value"], bad["value"], bad["damaged"]) == (1, None, "{")
    only = rest.get(f"/api/v2/assets/{asset_id}/state-store/watermark")
    assert only.status_code == 500
    assert "the key 'watermark' of asset orders is damaged" in strictly(only)["detail"]
    (version,) = strictly(rest.get(f"/api/v2/assets/{asset_id}/state-store-history/watermark"))["history"]
    assert version["damaged"] == "{"


@pytest.mark.parametrize(
    ("column", "stored"),
    [
        ("action", '"'),
        ("size", "1,"),
        ("writer", "{"),
        ("writer", b"\xff"),
        ("written_at", "x"),
        ("sha256", '"'),
    ],
)
def test_whatever_else_is_in_the_log_the_answer_is_json(
    rest: httpx.Client, task: TaskStateStore, spoil: Any, column: str, stored: str | bytes
) -> None:
    """Told as it is, or refused: half a document is nobody's."""
    task.set("bad", 1)
    spoil(column, stored, tables="log")
    answer = rest.get(f"{HISTORY}/bad")
    assert answer.status_code in {200, 500}
    assert strictly(answer)
