"""The stores in the context of real Airflow's tasks, whatever shape a task has."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.airflow import environment, keeping_out

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.slow

DAG_FILE = Path(__file__).parent / "dags" / "contexts.py"
VERSIONS = ["2.11.2", "3.0.6", "3.1.8", "3.2.2"]

TWO_ATTEMPTS = [(1, "pages", 1), (1, "callback", 1), (2, "pages", 2), (2, "callback", 2)]

EXPECTED: dict[str, list[tuple[int, str, Any]]] = {
    **dict.fromkeys(
        (
            "without_default",
            "with_default",
            "from_current_context",
            "python_operator",
            "extended_operator",
            "asynchronous",
        ),
        TWO_ATTEMPTS,
    ),
    "reader": [
        (1, "template", "nothing"),
        (1, "pages", 1),
        (1, "callback", 1),
        (2, "template", "1"),
        (2, "pages", 2),
        (2, "callback", 2),
    ],
    "deferring": [(1, "resumed", 7), (1, "callback", 7)],
    "job": [
        (1, "submitted", "remote_job_id"),
        (1, "waiting", "job-1"),
        (1, "callback", None),
        (2, "waiting", "job-1"),
        (2, "callback", None),
    ],
    "by_twins": [(1, "twins", ["2", "3", "4", "5", "x"]), (1, "callback", None)],
    **{
        f"over_items[{index}]": [
            (1, "pages", 1),
            (1, "callback", 1),
            (2, "pages", 2),
            (2, "item", item),
            (2, "callback", 2),
        ]
        for index, item in enumerate("pq")
    },
    "with_assets": [
        (1, "orders before", 0),
        (1, "orders", [10, "task", "with_assets", 1]),
        (
            1,
            "another",
            (
                "asset another is neither inlet nor outlet of this task, which has orders, stock; "
                "add it to the task's inlets=[...] or outlets=[...]"
            ),
        ),
        (1, "callback", None),
    ],
    "with_one_asset": [(1, "stock", 20), (1, "callback", None)],
    "without_assets": [
        (
            1,
            "no assets",
            "asset_state_store: this task has no assets; name them with inlets=[...] or outlets=[...]",
        ),
        (1, "callback", None),
    ],
    "with_all_verbs": [
        (1, "values", [{"text": "ü", "list": [1, 2.5, None, True]}, str(2**70), "default"]),
        (1, "expiry", [True, True]),
        (1, "keys", ["a", "b", "y"]),
        (1, "history", ["delete", "set"]),
        (1, "cleared", None),
        (1, "callback", None),
    ],
    "with_throttled_checkpoint": [
        (1, "read", ["p", "q", "r"]),
        (1, "callback", None),
        (2, "read", ["r"]),
        (2, "callback", None),
    ],
    "by_names_of_3_3": [
        (1, "never", True),
        (1, "mixin", True),
        (1, "variable", "other"),
        (1, "scopes", [-1, "a"]),
        (1, "base", ["aclear", "adelete", "aget", "aset", "clear", "delete", "get", "set"]),
        (1, "callback", None),
    ],
}


def run_contexts(version: str, home: Path, **more: str) -> Mapping[str, list[tuple[int, str, Any]]]:
    """Run the DAG in that Airflow, and return what its tasks noted."""
    airflow = environment(version)
    environ = airflow.environ(
        home,
        AIRFLOW__CORE__DAGS_FOLDER=str(DAG_FILE.parent),
        NOTES=str(home / "notes.jsonl"),
        **more,
    )
    airflow.migrate(environ)
    airflow.dags_test(environ, DAG_FILE, "contexts")
    noted: dict[str, list[tuple[int, str, Any]]] = {}
    for line in (home / "notes.jsonl").read_text().splitlines():
        name, number, where, what = json.loads(line)
        noted.setdefault(name, []).append((number, where, what))
    return noted


@pytest.mark.parametrize("way", ["KEEPSTATE_URL", "nothing configured"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_shape_of_a_task_meets_the_stores(version: str, way: str, tmp_path: Path) -> None:
    """A DAG file written for 3.3 runs unchanged, and its retries find what the first attempts left, on either way."""
    direct = {"KEEPSTATE_URL": f"sqlite:///{tmp_path / 'keepstate.db'}"}
    noted = run_contexts(version, tmp_path, **(direct if way == "KEEPSTATE_URL" else {}))
    # 2.11 has no assets, and so the DAG leaves these tasks out
    left_out = {"with_assets", "with_one_asset"} if version.startswith("2.") else set()
    assert noted == {name: calls for name, calls in EXPECTED.items() if name not in left_out}
    with closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        tables = database.execute(
            "SELECT COUNT(*) FROM sqlite_master WHERE name = 'keepstate_entry'"
        ).fetchone()
    assert tables[0] == (way == "nothing configured"), (
        "state lives in Airflow's metadata database, or it doesn't"
    )


@pytest.mark.parametrize("version", ["2.11.2", "3.0.6", "3.1.8", "3.2.2"])
def test_a_task_is_tried_by_itself(version: str, tmp_path: Path) -> None:
    """`airflow tasks test` carries a task out that no scheduler has counted a try of, and it has its store."""
    airflow = environment(version)
    notes = tmp_path / "notes.jsonl"
    environ = airflow.environ(tmp_path, AIRFLOW__CORE__DAGS_FOLDER=str(DAG_FILE.parent), NOTES=str(notes))
    airflow.migrate(environ)
    commands = (["dags", "reserialize"], ["tasks", "test", "contexts", "with_all_verbs", "2026-11-29"])
    airflow.in_turn(environ, *commands)
    noted = [json.loads(line) for line in notes.read_text().splitlines()]
    expected = [list(what) for _, *what in EXPECTED["with_all_verbs"]]
    assert [what for _, _, *what in noted if what[0] != "callback"] == expected[:-1]


RESOLVE = """
import json
from airflow.providers.common.compat import sdk
import airflow.settings
found = {}
for name in sorted(sdk.__all__):
    try:
        one = getattr(sdk, name)
        found[name] = f"{one.__module__}:{one.__qualname__}"
    except Exception as exc:
        found[name] = type(one).__name__ if isinstance(exc, AttributeError) and "one" in dir() else type(exc).__name__
print(json.dumps(found))
"""


def test_providers_find_on_2_11_what_they_found_without_keepstate(tmp_path: Path) -> None:
    """That keepstate supplies airflow.sdk on 2.11 changes nothing that providers ask for, but for the mixin."""
    airflow = environment("2.11.2")

    def resolved(**more: str) -> Any:
        environ = airflow.environ(tmp_path, **more)
        return json.loads(airflow.run([str(airflow.python), "-c", RESOLVE], environ).splitlines()[-1])

    with_keepstate = resolved()
    without = resolved(PYTHONPATH=str(keeping_out(tmp_path)))
    changed = {name for name, home in with_keepstate.items() if without[name] != home}
    # the standard provider has a copy of the second, which reads the same contexts
    assert changed == {"ResumableJobMixin", "get_current_context"}
    assert with_keepstate["ResumableJobMixin"] == "keepstate.jobs:ResumableJobMixin"
    assert len(with_keepstate) > 50
