"""What entries hang on, as the pages see it: a task instance or an asset. All that is done with entries is done alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.errors import InvalidKeyError
from keepstate.scope import AssetScope, TaskScope
from keepstate.values import check_key
from keepstate.web.asked import not_found
from keepstate.web.frame import Crumb

if TYPE_CHECKING:
    from keepstate.backends.answers import StoredEntry
    from keepstate.backends.requests import EntryScope
    from keepstate.scope import AssetInfo, TaskInstanceInfo
    from keepstate.web.asked import Asked

_MOST_DIGITS = 10

LATEST = 2**62
"""A version that no scope has: what changed after it is nothing, and only the scope's own version is told."""


@dataclass(frozen=True)
class Place:
    """A scope that exists and that the caller reaches.

    ``base`` is the address of its page, ``store`` what its entries are called together, ``reader`` who will miss them.
    """

    scope: EntryScope
    base: str
    title: str
    store: str
    reader: str
    crumbs: tuple[Crumb, ...]
    task_instance: TaskInstanceInfo | None = None
    asset: AssetInfo | None = None

    @property
    def expires(self) -> bool:
        """Whether its entries have an expiry at all."""
        return self.task_instance is not None


def standing(asked: Asked, place: Place, key: str) -> StoredEntry | None:
    """Return the entry under a key, or ``None`` where there is none; under what can be no key there never is."""
    try:
        check_key(key)
    except InvalidKeyError:
        return None
    found = asked.backend.read(place.scope, (key,), now=asked.store.clock()).entries
    return found[0] if found else None


def place_of(asked: Asked) -> Place:
    """Return the place that the path names. Answers 404 for one that is not there, as far as the caller can know."""
    return (
        _asset(asked) if "asset_id" in asked.request.path_params else _task_instance(asked, task_scope(asked))
    )


def task_scope(asked: Asked) -> TaskScope:
    """Return the task instance that the path names, known or not."""
    path = asked.request.path_params
    index = _index(path["map_index"]) if "map_index" in path else -1
    return TaskScope(asked.path("dag_id"), asked.path("run_id"), asked.path("task_id"), index)


def _index(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise not_found("task instance")
    return int(text)


def _task_instance(asked: Asked, scope: TaskScope) -> Place:
    info = (
        asked.backend.task_instance(scope, now=asked.store.clock())
        if asked.caller.reaches_dag(scope.dag_id)
        else None
    )
    if info is None:
        raise not_found("task instance")
    title = scope.name_in_run
    return Place(
        scope,
        asked.addresses.task_instance(scope),
        title,
        "Task State Store",
        "the next attempt",
        (*crumbs_to_run(asked, scope), Crumb(title, asked.addresses.task_instance(scope))),
        task_instance=info,
    )


def crumbs_to_run(asked: Asked, scope: TaskScope) -> tuple[Crumb, ...]:
    """Return the way from the front door to a run; a host's pages have one of their own."""
    if asked.host:
        return ()
    addresses = asked.addresses
    return (
        Crumb("Dags", addresses.dags()),
        Crumb(scope.dag_id, addresses.dag(scope.dag_id)),
        Crumb(scope.run_id, addresses.run(scope.dag_id, scope.run_id)),
    )


def _asset(asked: Asked) -> Place:
    text = asked.path("asset_id")
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS * 2 else 0
    info = asked.backend.asset(number, now=asked.store.clock())
    if info is None or not asked.caller.reaches_asset(info.name, info.uri):
        raise not_found("asset")
    addresses = asked.addresses
    return Place(
        # by its name alone: with the uri as well, a write would rename an asset that got another one meanwhile
        AssetScope(info.name),
        addresses.asset(info.id),
        info.name,
        "Asset State Store",
        "the next task that reads them",
        (Crumb("Assets", addresses.assets()), Crumb(info.name, addresses.asset(info.id))),
        asset=info,
    )


def watch(asked: Asked) -> object:
    """Return what changes when anything of the place does: its version, its state, and what expires."""
    place = place_of(asked)
    info = place.task_instance
    version, _ = asked.backend.changes(place.scope, after=LATEST, now=asked.store.clock())
    if info is None:
        return version, place.asset and place.asset.entries
    return version, info.state, info.try_number, info.entries, info.updated_at
