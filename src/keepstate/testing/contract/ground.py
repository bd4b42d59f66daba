"""What every topic of the contract stands on: the fixtures, and names for the attempts that tests tell about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from keepstate.backends.custom import BaseStoreBackend, CustomBackend
from keepstate.backends.memory import MemoryBackend
from keepstate.scope import TaskScope
from keepstate.settings import Settings
from keepstate.store import StateStore
from keepstate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.accessors import TaskStateStore
    from keepstate.backends.base import Backend

DAG, RUN, TASK = "etl", "2026-11-29", "load"
SCOPE = TaskScope(DAG, RUN, TASK)


class Ground:
    """The fixtures of a contract. A binding overrides `backend`, and `clock` if its backend needs one of its own."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        """Time, which stands still until a test moves it."""
        return ManualClock()

    @pytest.fixture
    def backend(self) -> Backend | BaseStoreBackend:
        """The backend under test: fresh and empty for each test. The binding overrides this."""
        raise NotImplementedError("a binding of the contract overrides the fixture `backend`")

    @pytest.fixture
    def make_store(
        self, backend: Backend | BaseStoreBackend, clock: ManualClock
    ) -> Callable[..., StateStore]:
        """A function that makes stores over the same backend, with the settings it is given."""
        wrapped: Any = backend
        if isinstance(backend, BaseStoreBackend):
            wrapped = CustomBackend(backend, keeper=MemoryBackend)

        def make(**settings: Any) -> StateStore:
            return StateStore(wrapped, settings=Settings(**settings), clock=clock)

        return make

    @pytest.fixture
    def store(self, make_store: Callable[..., StateStore]) -> StateStore:
        """The store over the backend under test, with default settings."""
        return make_store()


def attempt_id(order: int) -> str:
    """Return a UUIDv7 that was made later than those of lower ``order``."""
    return f"01900000-0000-7000-8000-{order:012x}"


def attempt(
    store: StateStore,
    try_number: int | None = None,
    order: int | None = None,
    *,
    item: str | None = None,
    map_index: int = -1,
) -> TaskStateStore:
    """Return the accessor of an attempt of the one task instance, with the id of that ``order``; or a person's."""
    return store.task(
        DAG,
        RUN,
        TASK,
        map_index=map_index,
        try_number=try_number,
        attempt_id=None if order is None else attempt_id(order),
        item=item,
    )


def contents(store: StateStore) -> dict[str, Any]:
    """Return what a person sees in the one task instance."""
    return dict(attempt(store).items())


def short(value: object) -> str:
    """Return a test id for a parameter of any kind and length, the same in every process."""
    try:
        text = ascii(value)[:40]
    except (RecursionError, ValueError):
        # nested too deep, or an integer of too many digits
        return type(value).__name__
    return type(value).__name__ if " at 0x" in text else text
