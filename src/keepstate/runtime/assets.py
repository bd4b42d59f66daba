"""``asset_state_store``: the state of the assets that a task names in its ``inlets`` or ``outlets``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepstate.allowance import try_all
from keepstate.errors import InvalidInputError, InvalidTypeError
from keepstate.scope import Asset, AssetScope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keepstate.accessors import AssetStateStore
    from keepstate.backends.requests import Behalf
    from keepstate.scope import Writer
    from keepstate.store import StateStore


def listed(given: object) -> list[Any]:
    """Return what a task's ``inlets`` or ``outlets`` name, as a list: a single asset is a list of one."""
    if given is None:
        return []
    return list(given) if isinstance(given, (list, tuple, set, frozenset)) else [given]


def as_assets(name: str, given: Sequence[Any]) -> tuple[AssetScope, ...]:
    """Return the scopes of assets, ours or Airflow's, or of their names.

    Raises ``InvalidTypeError`` naming the parameter.
    """
    return tuple(_scope_of(name, one) for one in given)


def _scope_of(name: str, one: Any) -> AssetScope:
    if isinstance(one, str):
        return AssetScope(one)
    if isinstance(one, (Asset, AssetScope)):
        return AssetScope(one.name, one.uri)
    its_name, its_uri = getattr(one, "name", None), getattr(one, "uri", None)
    if not isinstance(its_name, str) and not isinstance(its_uri, str):
        raise InvalidTypeError(
            f"{name} must be a list of keepstate.Asset or of asset names, and {one!r:.80} is neither",
            path=name,
        )
    return AssetScope(its_name, its_uri)


class AssetStates:
    """The accessors of a task's assets, made when they are first used.

    ``asset_state_store[ASSET]`` (or a name) is one asset's. A task with exactly one inlet or outlet may call the verbs
    directly. What a task has not named it may not touch: ``InvalidInputError`` tells how.
    """

    def __init__(
        self, store: StateStore, assets: Sequence[AssetScope], writer: Writer, behalf: Behalf
    ) -> None:
        self._store = store
        self._assets = list(dict.fromkeys(assets))
        self._writer = writer
        self._behalf = behalf
        self._made: dict[AssetScope, AssetStateStore] = {}

    def __repr__(self) -> str:
        return f"<AssetStates {self._named() or 'of no asset'}>"

    def __getitem__(self, asset: Any) -> AssetStateStore:
        """Return the accessor of an asset that the task has named."""
        wanted = _scope_of("the asset", asset)
        for known in self._assets:
            if _same(known, wanted):
                return self._accessor(known)
        raise InvalidInputError(
            f"{wanted} is neither inlet nor outlet of this task, which has {self._named() or 'none'}; add it to the task's "
            "inlets=[...] or outlets=[...]"
        )

    def __getattr__(self, verb: str) -> Any:
        """Hand a verb to the only asset there is."""
        if verb.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {verb!r}")
        if len(self._assets) == 1:
            return getattr(self._accessor(self._assets[0]), verb)
        if not self._assets:
            raise InvalidInputError(
                "asset_state_store: this task has no assets; name them with inlets=[...] or outlets=[...]"
            )
        raise InvalidInputError(
            f"asset_state_store: this task has {len(self._assets)} assets ({self._named()}), so say which is meant: "
            f"asset_state_store[ASSET].{verb}(...)"
        )

    def _accessor(self, asset: AssetScope) -> AssetStateStore:
        if asset not in self._made:
            self._made[asset] = self._store.asset(
                asset.name, uri=asset.uri, writer=self._writer, behalf=self._behalf
            )
        return self._made[asset]

    def _flush(self) -> None:
        try_all([accessor.flush for accessor in list(self._made.values())])

    def _named(self) -> str:
        return ", ".join(str(asset.name if asset.name is not None else asset.uri) for asset in self._assets)


def flush(states: AssetStates) -> None:
    """Write what throttled checkpoints over assets hold back."""
    states._flush()  # noqa: SLF001 - every public name there is a verb of the asset


def _same(one: AssetScope, other: AssetScope) -> bool:
    return (one.name is not None and one.name == other.name) or (one.uri is not None and one.uri == other.uri)
