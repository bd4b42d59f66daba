"""All records, under one lock, and how one of them is changed: on a copy, which takes its place."""

from __future__ import annotations

import itertools
import secrets
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from keepstate.backends.memory.record import Record
from keepstate.backends.requests import HistoryPolicy
from keepstate.scope import AssetScope, RunScope, TaskScope, which_asset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.backends.requests import EntryScope
    from keepstate.scope import Scope


class Records:
    """The records by their scopes. Who holds ``lock`` is alone with them."""

    def __init__(self) -> None:
        """Begin empty."""
        # reentrant, as clearing all map indices changes several scopes
        self.lock = threading.RLock()
        self.kept: dict[Scope, Record] = {}
        self._ids = itertools.count(1)
        self.identity = secrets.token_hex(10)

    def copy(self) -> Records:
        """Return records of their own that stand as these do."""
        twin = Records()
        with self.lock:
            twin.kept = {scope: record.copy() for scope, record in self.kept.items()}
        return twin

    def next_id(self) -> int:
        """Return an id that no record has had."""
        return next(self._ids)

    def find(self, scope: Scope) -> Record | None:
        """Return the record of a scope, by either name of an asset."""
        if not isinstance(scope, AssetScope):
            return self.kept.get(scope)
        known = which_asset(scope, [asset for asset in self.kept if isinstance(asset, AssetScope)])
        return self.kept[known] if known else None

    def is_known(self, scope: EntryScope) -> bool:
        """Whether a scope is there, and was not deleted."""
        found = self.find(scope)
        return found is not None and not found.standing.deleted

    def of_run(self, dag_id: str, run_id: str) -> list[tuple[Scope, Record]]:
        """Return the scopes of a run that are there."""
        return [
            (scope, record)
            for scope, record in self.kept.items()
            if not isinstance(scope, AssetScope)
            and (scope.dag_id, scope.run_id) == (dag_id, run_id)
            and not record.standing.deleted
        ]

    @contextmanager
    def changing(self, scope: Scope, now: int, *, known: bool = False) -> Iterator[Record]:
        """Give a copy of a record to work on, or a new one; it takes its place when nothing was raised.

        Of what is ``known`` nothing is renamed.
        """
        with self.lock:
            found = self.find(scope)
            if known and found is not None:
                scope = found.scope
            elif isinstance(scope, AssetScope):
                scope = _full_name(scope, found)
            record = replace(found.copy(), scope=scope) if found else Record(next(self._ids), scope, now, now)
            yield record
            if found is not None:
                del self.kept[found.scope]
            self.kept[scope] = record
            if isinstance(scope, TaskScope) and not record.standing.deleted:
                self._ensure_run(RunScope(scope.dag_id, scope.run_id), now)

    def _ensure_run(self, run: RunScope, now: int) -> None:
        """Make a run appear in lists with its first task instance, after a deletion too."""
        record = self.kept.setdefault(run, Record(next(self._ids), run, now, now))
        record.admit(None, now, HistoryPolicy())


def _full_name(scope: AssetScope, found: Record | None) -> AssetScope:
    """Return name and uri of an asset as they are known from this request on."""
    if scope.name is not None and scope.uri is not None:
        return scope
    if found is not None and isinstance(found.scope, AssetScope):
        return found.scope
    half = scope.name if scope.name is not None else scope.uri
    return AssetScope(half, half)
