"""Lists as a caller sees them: what its token's pattern does not admit is not there, and not counted."""

from __future__ import annotations

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
_BOUNDED = frozenset({"grid", "keys", "keys_of_assets"})
LISTS = frozenset({*_COUNTED, *_COUNTED.values(), *_BOUNDED, "dag_ids"})
"""The verbs that list what a pattern admits, or count it."""


def listed(store: StateStore, caller: Caller, verb: str, arguments: dict[str, Any]) -> Any:
    """Return what a list, or a count, comes to for a caller."""
    own = caller.assets if verb.endswith("assets") else caller.dags
    asked = arguments.get("pattern")
    if own is None or asked is None:
        return getattr(store.backend, verb)(**{**arguments, "pattern": asked if own is None else own})
    # the backend takes one pattern: it gets the caller's, and the other one is applied to what it lists
    if verb in _BOUNDED:
        found = getattr(store.backend, verb)(**{**arguments, "pattern": own})
        return [one for one in found if _fits(asked, one)]
    return _filtered(store, verb, {**arguments, "pattern": own}, lambda one: _fits(asked, one))


def _fits(pattern: str, one: str | DagInfo | RunInfo | AssetInfo | GridRun | KeyOfTask | KeyOfAsset) -> bool:
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
