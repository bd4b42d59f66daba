"""What all tests share: a real PostgreSQL, and an environment that names no store of the developer's."""

from __future__ import annotations

import os

import pytest

pytest_plugins = ["tests.support.postgres"]


@pytest.fixture(autouse=True, scope="session")
def _no_settings_from_outside() -> None:
    """A developer's own settings don't reach the tests, nor the processes that they start."""
    for name in list(os.environ):
        if name.startswith(("KEEPSTATE_", "AIRFLOW__STATE_STORE__")):
            del os.environ[name]
