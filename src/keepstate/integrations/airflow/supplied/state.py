"""Stands in for ``airflow.sdk.state`` below Airflow 3.3."""

from keepstate import AssetScope, BaseStoreBackend, TaskScope

StoreScope = TaskScope | AssetScope

__all__ = ["AssetScope", "BaseStoreBackend", "StoreScope", "TaskScope"]
