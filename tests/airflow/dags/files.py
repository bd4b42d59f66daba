"""A class for ``[state_store] backend`` as people have written one for 3.3: it keeps each entry in a file of ``FILES``."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk.state import BaseStoreBackend

if TYPE_CHECKING:
    from datetime import datetime


def folder(scope: Any) -> Path:
    return Path(os.environ["FILES"], scope.dag_id, scope.task_id, str(scope.map_index))


class FileStore(BaseStoreBackend):
    """Knows no expiry."""

    def get(self, scope: Any, key: str, *, session: Any = None) -> str | None:
        path = folder(scope) / quote(key, safe="")
        return path.read_text() if path.exists() else None

    def set(
        self, scope: Any, key: str, value: str, *, expires_at: datetime | None = None, session: Any = None
    ) -> None:
        folder(scope).mkdir(parents=True, exist_ok=True)
        (folder(scope) / quote(key, safe="")).write_text(value)

    def delete(self, scope: Any, key: str, *, session: Any = None) -> None:
        (folder(scope) / quote(key, safe="")).unlink(missing_ok=True)

    def clear(self, scope: Any, *, all_map_indices: bool = False, session: Any = None) -> None:
        shutil.rmtree(folder(scope), ignore_errors=True)

    async def aget(self, scope: Any, key: str, *, session: Any = None) -> str | None:
        return self.get(scope, key)

    async def aset(
        self, scope: Any, key: str, value: str, *, expires_at: datetime | None = None, session: Any = None
    ) -> None:
        self.set(scope, key, value)

    async def adelete(self, scope: Any, key: str, *, session: Any = None) -> None:
        self.delete(scope, key)

    async def aclear(self, scope: Any, *, all_map_indices: bool = False, session: Any = None) -> None:
        self.clear(scope)
