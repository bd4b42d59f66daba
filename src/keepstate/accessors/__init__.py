"""What task code holds: the accessors of one task instance, or of one asset."""

from __future__ import annotations

from keepstate.accessors.asset import AssetStateStore
from keepstate.accessors.task import TaskStateStore

__all__ = ["AssetStateStore", "TaskStateStore"]
