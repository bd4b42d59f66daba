"""pytest fixtures for tests of tasks: a store in memory, and its accessors. Nothing is installed or started.

In ``conftest.py``::

    pytest_plugins = ["keepstate.testing.fixtures"]

and in a test::

    def test_a_retry_reconnects(task_state_store, next_attempt):
        with pytest.raises(WorkerDied):
            run_job(task_state_store)  # attempt 1
        run_job(next_attempt())  # attempt 2 finds what attempt 1 stored
        assert jobs_started() == 1
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from keepstate.connect import connect
from keepstate.settings import Settings
from keepstate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore

__all__ = ["keepstate_clock", "keepstate_store", "next_attempt", "task_state_store"]


@pytest.fixture
def keepstate_clock() -> ManualClock:
    """The clock of `keepstate_store`: advance it to see entries expire."""
    return ManualClock()


@pytest.fixture
def keepstate_store(keepstate_clock: ManualClock) -> Iterator[StateStore]:
    """An empty store in memory, with keepstate's default settings whatever the environment says."""
    with connect("memory:", settings=Settings(), clock=keepstate_clock) as store:
        yield store


@pytest.fixture
def next_attempt(keepstate_store: StateStore) -> Callable[[], TaskStateStore]:
    """A function that begins the next attempt of the one task instance under test; earlier ones are stale then."""
    numbers = itertools.count(1)

    def begin() -> TaskStateStore:
        accessor = keepstate_store.task("test_dag", "test_run", "test_task", try_number=next(numbers))
        # reading registers the attempt
        accessor.entries()
        return accessor

    return begin


@pytest.fixture
def task_state_store(next_attempt: Callable[[], TaskStateStore]) -> TaskStateStore:
    """The task state store of the first attempt, to be handed to the function under test."""
    return next_attempt()
