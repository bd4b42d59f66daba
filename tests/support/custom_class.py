"""A custom class as a user writes one for ``[state_store] backend``: a dict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepstate import AssetScope, BaseStoreBackend, TaskScope

if TYPE_CHECKING:
    from datetime import datetime

Scope = TaskScope | AssetScope


class DictStore(BaseStoreBackend):
    """Entries by scope and key, with the expiry that came with each."""

    def __init__(self) -> None:
        self.entries: dict[tuple[Scope, str], tuple[str, datetime | None]] = {}
        self.cleanups = 0

    def get(self, scope: Scope, key: str, *, session: Any = None) -> str | None:
        """Return the text."""
        return self.entries.get((scope, key), (None, None))[0]

    def set(
        self, scope: Scope, key: str, value: str, *, expires_at: datetime | None = None, session: Any = None
    ) -> None:
        """Write it."""
        self.entries[scope, key] = (value, expires_at)

    def delete(self, scope: Scope, key: str, *, session: Any = None) -> None:
        """Delete it."""
        self.entries.pop((scope, key), None)

    def clear(self, scope: Scope, *, all_map_indices: bool = False, session: Any = None) -> None:
        """Delete all of the scope."""
        for found, key in list(self.entries):
            if found == scope:
                del self.entries[found, key]

    async def aget(self, scope: Scope, key: str, *, session: Any = None) -> str | None:
        """Return the text."""
        return self.get(scope, key)

    async def aset(
        self, scope: Scope, key: str, value: str, *, expires_at: datetime | None = None, session: Any = None
    ) -> None:
        """Write it."""
        self.set(scope, key, value, expires_at=expires_at)

    async def adelete(self, scope: Scope, key: str, *, session: Any = None) -> None:
        """Delete it."""
        self.delete(scope, key)

    async def aclear(self, scope: Scope, *, all_map_indices: bool = False, session: Any = None) -> None:
        """Delete all of the scope."""
        self.clear(scope, all_map_indices=all_map_indices)

    def cleanup(self) -> None:
        """Note that somebody asked."""
        self.cleanups += 1
