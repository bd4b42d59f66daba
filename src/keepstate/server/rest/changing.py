"""Changing an entry under a condition: in one transaction with whatever it was decided by."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from keepstate.backends.answers import Applied, StoredEntry
from keepstate.backends.requests import Batch, Change, Delete, Put
from keepstate.errors import VersionConflictError
from keepstate.race import Race
from keepstate.server.rest.conditions import NO_VERSION, Condition, failed

if TYPE_CHECKING:
    from keepstate.backends.requests import EntryScope
    from keepstate.scope import Writer
    from keepstate.store import StateStore

Decide = Callable[[StoredEntry | None], Change]
"""Makes the change of the entry that stands there, if one does; may raise instead."""


def change(
    store: StateStore, scope: EntryScope, writer: Writer, one: Change, condition: Condition, *, now: int
) -> Applied:
    """Make one change to a scope that has to be known, if the condition holds: else 412, with nothing changed."""
    if condition.at_once:
        try:
            return _apply(store, scope, writer, _expecting(one, condition.expected), now)
        except VersionConflictError:
            raise failed(one.key) from None
    return change_what_stands(store, scope, writer, one.key, lambda _: one, condition)


def change_what_stands(
    store: StateStore, scope: EntryScope, writer: Writer, key: str, decide: Decide, condition: Condition
) -> Applied:
    """Make the change that is decided on by what stands there, and again if somebody came between."""
    race = Race()
    while True:
        now = store.clock()
        found = store.backend.read(scope, (key,), now=now).entries
        entry = found[0] if found else None
        version = entry.version if entry else 0
        one = decide(entry)
        if not condition.holds(version):
            version = NO_VERSION
        try:
            return _apply(store, scope, writer, _expecting(one, version), now)
        except VersionConflictError:
            if version == NO_VERSION:
                raise failed(key) from None
        race.lost()


def _expecting(one: Change, version: int | None) -> Change:
    if isinstance(one, Put):
        return Put(one.key, one.text, one.expires_at, version)
    return Delete(one.key, version)


def _apply(store: StateStore, scope: EntryScope, writer: Writer, one: Change, now: int) -> Applied:
    return store.backend.apply(
        Batch(
            scope=scope,
            changes=(one,),
            now=now,
            writer=writer,
            history=store.history_policy,
            known=True,
        )
    )
