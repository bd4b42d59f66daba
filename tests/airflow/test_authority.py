"""What a task's token reaches of assets, without Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepstate.integrations.airflow import authority
from keepstate.scope import AssetScope

if TYPE_CHECKING:
    import pytest

STOCK = {"__type": "asset", "__var": {"name": "stock", "uri": "s3://stock"}}


def test_assets_are_looked_up_until_their_dag_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DAG that Airflow has not serialized yet is asked for again; one version is asked for once, the latest each time."""
    asked: list[tuple[str, str | None]] = []
    known: dict[str | None, Any] = {}

    def serialized(dag_id: str, dag_version_id: str | None) -> Any:
        asked.append((dag_id, dag_version_id))
        return known.get(dag_version_id)

    monkeypatch.setattr(authority, "_serialized", serialized)
    authority.assets_in_version.cache_clear()
    for version in ("v1", None):
        asked.clear()
        assert authority.assets_of("etl", "load", version) == ()
        known[version] = {"dag": {"tasks": [{"task_id": "load", "inlets": [STOCK]}]}}
        for _ in range(2):
            assert authority.assets_of("etl", "load", version) == (AssetScope("stock", "s3://stock"),)
        assert len(asked) == (2 if version else 3)
