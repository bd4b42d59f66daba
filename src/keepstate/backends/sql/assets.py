"""Which asset a name or a uri means, what it is called from now on, and the row of its scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.backends.sql import statements as sql
from keepstate.backends.sql.database import TransientError
from keepstate.scope import AssetScope, asset_digest, which_asset

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.backends.sql.database import Params, Row, Transaction
    from keepstate.backends.sql.dialects import Dialect


def find(query: Callable[[str, Params], list[Row]], scope: AssetScope) -> tuple[int, AssetScope] | None:
    """Return the id and the full name of the asset that a request means, or ``None``.

    Raises ``InvalidIdError`` when its name and its uri belong to two assets.
    """
    known = {asset: place for place, asset in called_so(query, scope)}
    found = which_asset(scope, list(known))
    return None if found is None else (known[found], found)


def called_so(query: Callable[[str, Params], list[Row]], scope: AssetScope) -> list[tuple[int, AssetScope]]:
    """Return the ids and full names of the assets that have its name or its uri: two at most."""
    name, uri = _halves(scope)
    rows = query(
        sql.ASSETS_CALLED, {"name_digest": asset_digest("name", name), "uri_digest": asset_digest("uri", uri)}
    )
    return [(int(row[0]), AssetScope(row[1], row[2])) for row in rows]


def lock(tx: Transaction, dialect: Dialect, scope: AssetScope, now: int) -> Row:
    """Lock the row of an asset's scope, made first where there is none, and write down what it is called now."""
    name, uri = _halves(scope)
    before = find(tx.all, scope)
    if before is None:
        digest = asset_digest("name", name)
        tx.run(sql.CREATE_SCOPE, {**_NO_IDS, "digest": digest, "kind": "asset", "now": now, "sweep_at": None})
        row = tx.one(dialect.render(sql.LOCK_SCOPE), {"digest": digest})
    else:
        # by its id, as it may get another name while this waits
        row = tx.one(dialect.render(sql.LOCK_SCOPE_BY_ID), {"id": before[0]})
    known = find(tx.all, scope)
    if row is None or (known is None) != (before is None) or (known is not None and known[0] != row[0]):
        raise TransientError("another process made, renamed or deleted this asset in the meantime")
    if known is None:
        tx.run(sql.CREATE_ASSET, called(row[0], name, uri))
    elif None not in (scope.name, scope.uri) and known[1] != scope:
        tx.run(sql.RENAME_ASSET, called(row[0], name, uri))
        tx.run(sql.REDIGEST_SCOPE, {"id": row[0], "digest": asset_digest("name", name)})
    return row


def lock_known(tx: Transaction, dialect: Dialect, scope: AssetScope) -> Row | None:
    """Lock the row of a known asset's scope, or return ``None``. Nothing is made, and nothing renamed."""
    before = find(tx.all, scope)
    if before is None:
        return None
    row = tx.one(dialect.render(sql.LOCK_SCOPE_BY_ID), {"id": before[0]})
    now = find(tx.all, scope)
    if row is None or now is None or now[0] != before[0]:
        raise TransientError("another process renamed or deleted this asset in the meantime")
    return row


_NO_IDS: dict[str, object] = dict.fromkeys(("dag_id", "run_id", "task_id", "map_index"))


def _halves(scope: AssetScope) -> tuple[str, str]:
    """Return name and uri, each standing in for the other where only one is given."""
    return scope.name or scope.uri or "", scope.uri or scope.name or ""


def called(scope_id: int, name: str, uri: str) -> dict[str, object]:
    """Return the parameters of what an asset is called."""
    return {
        "id": scope_id,
        "name": name,
        "uri": uri,
        "name_digest": asset_digest("name", name),
        "uri_digest": asset_digest("uri", uri),
    }
