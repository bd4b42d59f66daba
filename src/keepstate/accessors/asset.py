"""The accessor of one asset."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from keepstate.accessors.accessor import Accessor, checked_version
from keepstate.awaitable import twin
from keepstate.backends.answers import Applied

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keepstate.backends.answers import Reading
    from keepstate.backends.requests import Behalf
    from keepstate.scope import AssetScope, Writer
    from keepstate.store import StateStore
    from keepstate.values import JsonInput


class AssetStateStore(Accessor):
    """The entries of one asset: no retention, they last until cleared or the asset is deleted. Writes name their writer."""

    _expires = False
    _scope: AssetScope

    def __init__(
        self, store: StateStore, scope: AssetScope, writer: Writer, behalf: Behalf | None = None
    ) -> None:
        super().__init__(store, scope, None, writer)
        self._behalf = behalf

    def set(self, key: str, value: JsonInput, *, if_version: int | None = None) -> None:
        """Write or overwrite the value under ``key``; when this returns, it survives a crash.

        ``if_version``: write only over that version of the entry (0: only if it is absent), else ``VersionConflictError``.
        Raises as `TaskStateStore.set` does.
        """
        now = self._store.clock()
        self._apply(now, self._put(now, key, value, None, checked_version(if_version)))

    def set_many(self, values: Mapping[str, JsonInput]) -> None:
        """Write several values in one transaction: all or none."""
        self._write(values, None)

    def update(
        self,
        key: str,
        fn: Callable[[Any], JsonInput],
        default: Any = None,
    ) -> Any:
        """Replace the value under ``key`` by ``fn(value)``, and return the new one; concurrent callers lose nothing.

        ``fn`` gets ``default`` where the key is absent. It may run more than once, so it should do nothing else. An
        expiry that the entry has stays. Raises ``InvalidValueError`` when ``fn`` returns ``None``.
        """
        return self._update(key, fn, default, None)

    def increment(self, key: str, by: float = 1) -> Any:
        """Add ``by`` to the number under ``key`` (0 where it is absent), and return the sum; no increment is lost.

        Raises ``InvalidTypeError`` when the value or ``by`` is no number. An expiry that the entry has stays.
        """
        return self._increment(key, by, None)

    def _learn(self, answer: Applied | Reading) -> None:
        super()._learn(answer)
        behalf = self._behalf
        known = answer.behalf if isinstance(answer, Applied) else None
        if behalf is not None and behalf.fence.incarnation is None and known is not None:
            self._behalf = replace(behalf, fence=replace(behalf.fence, incarnation=known))

    aset = twin(set)  # noqa: A003 - this class's own method is meant
    aset_many = twin(set_many)
    aupdate = twin(update)
    aincrement = twin(increment)
