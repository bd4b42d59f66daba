"""A run is deleted while somebody writes to a task instance that is new in it: the run has both, or none."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.backends.sql import entries, removal
from tests.backends.servers import KINDS, waiters
from tests.backends.stores import open_url, task

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.backends.servers import Kind

RUN = ("etl", "2026-11-29")
kinds = pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])


def beside(
    monkeypatch: pytest.MonkeyPatch,
    step: tuple[ModuleType, str],
    other: Callable[[], object],
    waits: Callable[[], bool],
) -> threading.Thread:
    """Have ``other`` come when the next change has come to a step of it, and go on when that one waits or is done."""
    second = threading.Thread(target=other)
    do_it = getattr(*step)

    def then_the_other(*given: Any) -> Any:
        monkeypatch.undo()
        second.start()
        while second.is_alive() and not waits():
            time.sleep(0.01)
        return do_it(*given)

    monkeypatch.setattr(*step, then_the_other)
    return second


@kinds
@pytest.mark.parametrize("deleted_before", [False, True])
def test_a_task_instance_that_comes_while_its_run_is_deleted_is_in_a_run_again(
    kind: Kind, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, deleted_before: bool
) -> None:
    """It waits until the run is gone, and begins it again: lists show it."""
    url: str = request.getfixturevalue(f"{kind.name}_url")
    with open_url(url) as store, open_url(url) as other:
        if deleted_before:
            task(other, "late").set("k", 0)
            store.delete_run(*RUN)
        task(store, "early").set("k", 1)
        second = beside(
            monkeypatch,
            (removal, "find_repeated"),
            lambda: task(other, "late").set("k", 2),
            lambda: waiters(kind, request) > 0,
        )
        assert store.delete_run(*RUN) == 1
        second.join()
        assert [run.run_id for run in store.runs()] == [RUN[1]]
        assert [found.scope.task_id for found in store.task_instances(*RUN)] == ["late"]
        assert task(store, "late").get("k") == 2


@kinds
@pytest.mark.parametrize("deleted_before", [False, True])
def test_a_run_that_is_deleted_while_a_task_instance_comes_goes_with_it(
    kind: Kind, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, deleted_before: bool
) -> None:
    """The deletion waits for who writes, and finds what was written."""
    url: str = request.getfixturevalue(f"{kind.name}_url")
    with open_url(url) as store, open_url(url) as other:
        if deleted_before:
            task(store, "late", try_number=1).set("k", 0)
            store.delete_run(*RUN)
        task(store, "early").set("k", 1)
        counts: list[int] = []
        second = beside(
            monkeypatch,
            (entries, "change"),
            lambda: counts.append(other.delete_run(*RUN)),
            lambda: waiters(kind, request) > 0,
        )
        task(store, "late", try_number=1).set("k", 2)
        second.join()
        assert counts == [2]
        assert store.runs() == []
        assert store.task_instances(*RUN) == []
        assert task(store, "late").get("k") is None
