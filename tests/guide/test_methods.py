"""What the guide says of the four methods and the contract suite, which tests what they do, does not."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import keepstate
from keepstate import TaskStateStore

if TYPE_CHECKING:
    from keepstate import StateStore


def test_several_entries_are_kept_apart_and_updated(store: StateStore) -> None:
    """One task instance holds several pieces of state, and each is written over as the task goes on."""
    tss = store.task("etl", "2026-11-29", "load", try_number=1)
    tss.set("status", "reading")
    tss.set("rows", 10)
    tss.set("rows", 20)
    tss.set("status", "writing")
    again = store.task("etl", "2026-11-29", "load", try_number=2)
    assert dict(again.items()) == {"rows": 20, "status": "writing"}


def test_signatures_are_the_guides() -> None:
    """The four methods take what the guide says, retention by keyword alone; what is beyond it is by keyword too."""
    verbs = {
        verb: inspect.signature(getattr(TaskStateStore, verb)).parameters
        for verb in ("get", "set", "delete", "clear")
    }
    by_keyword = inspect.Parameter.KEYWORD_ONLY
    positional = {
        verb: [
            name
            for name, parameter in parameters.items()
            if name != "self" and parameter.kind is not by_keyword
        ]
        for verb, parameters in verbs.items()
    }
    assert positional == {"get": ["key", "default"], "set": ["key", "value"], "delete": ["key"], "clear": []}
    assert verbs["get"]["default"].default is None
    assert verbs["set"]["retention"].kind is by_keyword
    assert verbs["set"]["retention"].default is None


def test_the_names_of_the_guide_are_importable() -> None:
    """A DAG file's imports from `airflow.sdk` have their counterparts in `keepstate`."""
    names = {
        "task",
        "BaseOperator",
        "PythonOperator",
        "ResumableJobMixin",
        "NEVER_EXPIRE",
        "Asset",
        "get_current_context",
    }
    assert names <= set(keepstate.__all__)
    assert all(getattr(keepstate, name) is not None for name in names)
