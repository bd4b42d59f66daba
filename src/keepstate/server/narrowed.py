"""Lists as a caller sees them: what its token's pattern does not admit is not there, and not counted."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

from keepstate.backends.answers import KeyOfAsset
from keepstate.patterns import fits
from keepstate.scope import AssetInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keepstate.backends.answers import GridRun, KeyOfTask
    from keepstate.scope import DagInfo, RunInfo
    from keepstate.server.roles import Caller
    from keepstate.store import StateStore

_PAGE = 1000

_COUNTED = {"count_dags": "dags", "count_runs": "runs", "count_assets": "assets"}


def listed(store: StateStore, caller: Caller, verb: str, arguments: dict[str, Any]) -> Any:
    """Return what a list, or a count, comes to for a caller."""
    own = caller.assets if verb.endswith("assets") else caller.dags
    asked = arguments.get("pattern")
    if own is None or asked is None:
        return getattr(store.backend, verb)(**{**arguments, "pattern": asked if own is None else own})
    # the backend takes one pattern: it gets the caller's, and the other one is applied to what it lists
    arguments = {**arguments, "pattern": own}
    if verb in _IN_PARTS:
        return _IN_PARTS[verb](store, asked, **arguments)
    return _filtered(store, verb, arguments, lambda one: _fits(asked, one))


def _fits(pattern: str, one: str | DagInfo | RunInfo | AssetInfo | KeyOfAsset) -> bool:
    names: tuple[str, ...]
    if isinstance(one, str):
        names = (one,)
    else:
        names = (one.name, one.uri) if isinstance(one, (AssetInfo, KeyOfAsset)) else (one.dag_id,)
    return any(fits(pattern, name) for name in names)


def _filtered(store: StateStore, verb: str, arguments: dict[str, Any], admits: Callable[[Any], bool]) -> Any:
    if verb == "count_assets":
        arguments = {**arguments, "now": store.clock()}
    found = (one for one in _all(store.backend, _COUNTED.get(verb, verb), arguments) if admits(one))
    if verb in _COUNTED:
        return sum(1 for _ in found)
    offset = arguments.get("offset", 0)
    limit = arguments.get("limit", 50 if verb == "runs" else None)
    window = []
    for place, one in enumerate(found):
        if limit is not None and place >= offset + limit:
            break
        if place >= offset:
            window.append(one)
    return window


def _all(backend: Any, verb: str, arguments: dict[str, Any]) -> Iterator[Any]:
    offset = 0
    while True:
        page = getattr(backend, verb)(**{**arguments, "limit": _PAGE, "offset": offset})
        yield from page
        if len(page) < _PAGE:
            return
        offset += _PAGE


# ------------------------------------------------------------------------------------------- lists in parts
# What can't be listed from any place on is asked for dag by dag, once the runs are known.


def _grid(
    store: StateStore,
    asked: str,
    *,
    now: int,
    pattern: str,
    dag_id: str | None = None,
    limit: int = 20,
    offset: int = 0,
) -> list[GridRun]:
    runs = _runs(store, asked, {"pattern": pattern, "dag_id": dag_id, "limit": offset + limit})
    before = Counter(run.dag_id for run in runs[:offset])
    found = {
        (one.run.dag_id, one.run.run_id): one
        for its, count in Counter(run.dag_id for run in runs[offset:]).items()
        for one in store.backend.grid(its, now=now, limit=count, offset=before[its])
    }
    places = ((run.dag_id, run.run_id) for run in runs[offset:])
    return [found[place] for place in places if place in found]


def _keys(
    store: StateStore, asked: str, *, now: int, pattern: str, runs: int = 40, limit: int = 10_000
) -> list[KeyOfTask]:
    newest = _runs(store, asked, {"pattern": pattern, "limit": runs})
    found: dict[tuple[str, str], list[KeyOfTask]] = {(run.dag_id, run.run_id): [] for run in newest}
    for its, count in Counter(run.dag_id for run in newest).items():
        # a star in an id is any one character here
        for one in store.backend.keys(now=now, pattern=its.replace("*", "?"), runs=count, limit=limit):
            found.get((one.dag_id, one.scope.run_id), []).append(one)
    return list(chain.from_iterable(found.values()))[:limit]


def _keys_of_assets(
    store: StateStore, asked: str, *, now: int, pattern: str, limit: int = 10_000
) -> list[KeyOfAsset]:
    most = max(limit, _PAGE)
    while True:
        found = store.backend.keys_of_assets(now=now, pattern=pattern, limit=most)
        fitting = [one for one in found if _fits(asked, one)]
        if len(fitting) >= limit or len(found) < most:
            return fitting[:limit]
        most *= 4


def _runs(store: StateStore, asked: str, arguments: dict[str, Any]) -> list[RunInfo]:
    found: list[RunInfo] = _filtered(store, "runs", arguments, lambda run: fits(asked, run.dag_id))
    return found


_IN_PARTS: dict[str, Callable[..., Any]] = {"grid": _grid, "keys": _keys, "keys_of_assets": _keys_of_assets}
LISTS = frozenset({*_COUNTED, *_COUNTED.values(), *_IN_PARTS, "dag_ids"})
"""The verbs that list what a pattern admits, or count it."""
