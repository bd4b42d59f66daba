"""The accessor of one task instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepstate.accessors.accessor import Accessor, checked_version
from keepstate.awaitable import twin
from keepstate.backends.requests import Change, Delete
from keepstate.values import JsonInput, check_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from keepstate.scope import TaskScope


class TaskStateStore(Accessor):
    """The entries of one task instance, for one of its attempts or for a person."""

    _scope: TaskScope

    def set(
        self, key: str, value: JsonInput, *, retention: timedelta | None = None, if_version: int | None = None
    ) -> None:
        """Write or overwrite the value under ``key``; when this returns, it survives a crash.

        ``retention``: a positive ``timedelta`` from now, ``NEVER_EXPIRE``, or ``None`` for the configured default.
        ``if_version``: write only over that version of the entry (0: only if it is absent or expired), else
        ``VersionConflictError``.

        Raises ``InvalidValueError`` (a ``ValueError``) for ``None`` and what JSON can't hold, ``InvalidTypeError`` (a
        ``TypeError``) for other types than ``str, int, float, bool, list, dict``, each naming the path in the value;
        ``StaleAttemptError`` when a later attempt has begun.
        """
        now = self._store.clock()
        self._apply(now, self._put(now, key, value, retention, checked_version(if_version)))

    def set_many(self, values: Mapping[str, JsonInput], *, retention: timedelta | None = None) -> None:
        """Write several values in one transaction: all or none."""
        self._write(values, retention)

    def update(
        self,
        key: str,
        fn: Callable[[Any], JsonInput],
        default: Any = None,
        *,
        retention: timedelta | None = None,
    ) -> Any:
        """Replace the value under ``key`` by ``fn(value)``, and return the new one; concurrent callers lose nothing.

        ``fn`` gets ``default`` where the key is absent. It may run more than once, so it should do nothing else. An
        expiry that the entry has stays; ``retention`` counts when the key is created. Raises ``InvalidValueError`` when
        ``fn`` returns ``None``.
        """
        return self._update(key, fn, default, retention)

    def increment(self, key: str, by: float = 1, *, retention: timedelta | None = None) -> Any:
        """Add ``by`` to the number under ``key`` (0 where it is absent), and return the sum; no increment is lost.

        An expiry that the entry has stays; ``retention`` counts when the key is created. Raises ``InvalidTypeError`` when
        the value or ``by`` is no number.
        """
        return self._increment(key, by, retention)

    aset = twin(set)  # noqa: A003 - this class's own method is meant
    aset_many = twin(set_many)
    aupdate = twin(update)
    aincrement = twin(increment)

    def peek(self, keys: Sequence[str]) -> dict[str, Any]:
        """Like `get_many`; a custom class is asked for one key after another."""
        if not self._store.backend.guide_only:
            return self.get_many(keys)
        nothing = object()
        found = {key: self.get(key, nothing) for key in keys}
        return {key: value for key, value in found.items() if value is not nothing}

    def swap(self, values: Mapping[str, JsonInput], drop: Sequence[str] = ()) -> None:
        """Write some keys and delete others in one transaction; a custom class gets them one after another."""
        now = self._store.clock()
        changes: list[Change] = [self._put(now, key, value, None) for key, value in values.items()]
        changes += [Delete(check_key(key)) for key in drop]
        if self._store.backend.guide_only:
            for change in changes:
                self._apply(now, change)
        elif changes:
            self._apply(now, *changes)
