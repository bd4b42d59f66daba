"""A store and a clean environment for each test of the runtime."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from keepstate import StateStore, connect
from tests.support.programs import Programs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No setting of keepstate's but a home of this test's own."""
    for name in list(os.environ):
        if name.startswith(("KEEPSTATE_", "AIRFLOW__STATE_STORE__")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KEEPSTATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Iterator[StateStore]:
    """The embedded store in that home."""
    with connect() as store:
        yield store


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """A folder for programs; their store is the one of the fixture ``store``."""
    return Programs(tmp_path)
