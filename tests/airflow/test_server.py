"""A keepstate server as the store of Airflow's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import keepstate
from tests.airflow.test_contexts import EXPECTED, run_contexts
from tests.support.served import serving_store

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", ["3.1.8"])
def test_tasks_reach_a_keepstate_server(version: str, tmp_path: Path) -> None:
    """KEEPSTATE_URL may be a server's, with a worker's token: every shape of a task meets the stores there."""
    with (
        keepstate.connect(f"sqlite:///{tmp_path / 'keepstate.db'}") as store,
        serving_store(store) as server,
    ):
        noted = run_contexts(
            version, tmp_path, KEEPSTATE_URL=server.url, KEEPSTATE_TOKEN=server.token("worker")
        )
        assert noted == EXPECTED
        assert [run.dag_id for run in store.runs()] == ["contexts"]
