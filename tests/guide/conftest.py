"""The guide's promises are tested over the embedded store, as a user has it who configured nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import keepstate
from keepstate import Settings
from keepstate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from keepstate import StateStore


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("KEEPSTATE_", "AIRFLOW__STATE_STORE__")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KEEPSTATE_HOME", str(tmp_path / "home"))


@pytest.fixture
def clock() -> ManualClock:
    """Time, which a test moves."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[StateStore]:
    """The embedded store."""
    with keepstate.connect(clock=clock) as store:
        yield store


@pytest.fixture
def open_store(tmp_path: Path, clock: ManualClock) -> Callable[..., StateStore]:
    """A function that opens one and the same file with the settings that it is given."""

    def open_with(**settings: Any) -> StateStore:
        return keepstate.connect(
            f"sqlite:///{tmp_path / 'state.db'}", settings=Settings(**settings), clock=clock
        )

    return open_with
