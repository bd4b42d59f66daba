"""A store that is served, and a client for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from keepstate.connect import connect
from keepstate.settings import Settings
from keepstate.testing import ManualClock
from tests.support.served import serving_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from keepstate.store import StateStore
    from tests.support.served import Served


@pytest.fixture
def clock() -> ManualClock:
    """The time of the store and its server."""
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[StateStore]:
    """An embedded store."""
    with connect(f"sqlite:///{tmp_path / 'keepstate.db'}", settings=Settings(), clock=clock) as opened:
        yield opened


@pytest.fixture
def served(store: StateStore) -> Iterator[Served]:
    """The store, served."""
    with serving_store(store) as server:
        yield server


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    """A client of the server that has no token."""
    with httpx.Client(base_url=served.url, timeout=20) as client:
        yield client
