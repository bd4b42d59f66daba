"""A store, an attempt on it, and a person who looks: what the tests of resumable jobs begin from."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.connect import connect
from keepstate.settings import Settings
from tests.jobs.attempts import Attempts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore


@pytest.fixture(scope="session")
def attempts() -> Iterator[Attempts]:
    """The process that attempts are forked from."""
    with Attempts() as running:
        yield running


@pytest.fixture
def store() -> Iterator[StateStore]:
    """A store of the test's own."""
    with connect("memory:", settings=Settings()) as opened:
        yield opened


@pytest.fixture
def attempt(store: StateStore) -> Callable[[int], dict[str, Any]]:
    """Make the context of an attempt."""
    return lambda number: {"task_state_store": store.task("dag", "run", "task", try_number=number)}


@pytest.fixture
def person(store: StateStore) -> TaskStateStore:
    """A person who looks at the task's entries, and changes them."""
    return store.task("dag", "run", "task")


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return the warnings logged so far."""
    return lambda: [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
