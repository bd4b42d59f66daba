"""A task's accessors, made when they are first used."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from keepstate.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable


class Lazy:
    """Stands in a context for an accessor that is made at its first use.

    Contexts are also made by Airflow's scheduler and DAG processor, of half a task instance, and for tasks that use no
    store: making one must cost nothing, and can't fail.
    """

    __slots__ = ("_kind", "_made", "_make")

    def __init__(self, kind: str, make: Callable[[], Any]) -> None:
        self._kind = kind
        self._make = make
        self._made: Any = None

    def __repr__(self) -> str:
        return f"<{self._kind}, not used yet>" if self._made is None else repr(self._made)

    def __reduce__(self) -> tuple[Any, ...]:
        # a task instance may be pickled with what it keeps; its store stays where it is
        return Lazy, (self._kind, functools.partial(_elsewhere, self._kind))

    def __getattr__(self, verb: str) -> Any:
        # Jinja, copy and pickle ask for names like these, and mean no store by it
        if verb.startswith("_"):
            raise AttributeError(f"{self._kind} has no attribute {verb!r}")
        return getattr(self._real(), verb)

    def __getitem__(self, asset: Any) -> Any:
        return self._real()[asset]

    def _real(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made


def _elsewhere(kind: str) -> Any:
    raise UnsupportedError(
        f"this {kind} was pickled, and works only in the process of its task; use it there"
    )
