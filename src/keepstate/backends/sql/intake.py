"""Storing scopes as a whole, as a copy or an import brings them: each decided by what is there, all in one transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from keepstate.backends.fencing import BURIED
from keepstate.backends.images import (
    Course,
    Fate,
    Head,
    Image,
    Origin,
    may_replace,
    stands_as_copied,
    without_uri,
)
from keepstate.backends.sql import assets
from keepstate.backends.sql import statements as sql
from keepstate.backends.sql.database import TransientError
from keepstate.backends.sql.images import HEAD, standing
from keepstate.clock import DAY
from keepstate.scope import AssetScope, RunScope, TaskScope, asset_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from keepstate.backends.answers import StoredVersion
    from keepstate.backends.sql.database import Row, Transaction
    from keepstate.backends.sql.dialects import Dialect
    from keepstate.scope import Scope

_IDS = "s.dag_id, s.run_id, s.task_id, s.map_index"
FIND_HEADS = f"SELECT {_IDS}, s.id, {HEAD} FROM keepstate_scope s WHERE s.digest IN ({{digests}})"
FIND_PLACES = f"SELECT {_IDS}, s.id FROM keepstate_scope s WHERE s.digest IN ({{digests}})"
FIND_HEAD_BY_ID = f"SELECT s.id, {HEAD} FROM keepstate_scope s WHERE s.id = :id"

# unlike CREATE_SCOPE it fails where another process has just made the scope, and the whole batch is decided anew
ADD_SCOPE = """
INSERT INTO keepstate_scope
  (digest, kind, dag_id, run_id, task_id, map_index, incarnation, version, try_number, attempt_id, item, state, deleted,
   created_at, updated_at, sweep_at, copied)
VALUES (:digest, :kind, :dag_id, :run_id, :task_id, :map_index, :incarnation, :version, :try_number, :attempt_id, :item,
  :state, :deleted, :created_at, :updated_at, :sweep_at, :copied)
"""
REPLACE_HEAD = """
UPDATE keepstate_scope
SET digest = :digest, incarnation = :incarnation, version = :version, try_number = :try_number, attempt_id = :attempt_id,
  item = :item, state = :state, deleted = :deleted, created_at = :created_at, updated_at = :updated_at, sweep_at = :sweep_at,
  copied = :copied
WHERE id = :id
"""
CHANGES_OF_SCOPE = """
SELECT version, updated_at FROM keepstate_entry WHERE scope_id = :id
UNION SELECT version, written_at FROM keepstate_log WHERE scope_id = :id
"""
ATTEMPTS_OF_SCOPE = (
    "SELECT incarnation, try_number, attempt_id, started_at FROM keepstate_attempt WHERE scope_id = :id"
)
NOTE_COPY = "UPDATE keepstate_scope SET copied = :copied WHERE id = :id"
ADD_ENTRY = """
INSERT INTO keepstate_entry
  (scope_id, entry_key, value, version, updated_at, expires_at, sweep_at, writer, log_from, log_rows, log_limit)
VALUES (:scope_id, :key, :value, :version, :updated_at, :expires_at, :sweep_at, :writer, :log_from, :log_rows, :log_rows)
"""
ADD_ATTEMPT = """
INSERT INTO keepstate_attempt
  (scope_id, incarnation, try_number, attempt_id, item, state, host, pid, process_started, started_at, beat_at, ended_at,
   reason, result, arguments)
VALUES (:scope_id, :incarnation, :try_number, :attempt_id, :item, :state, :host, :pid, :process_started, :started_at,
  :beat_at, :ended_at, :reason, :result, :arguments)
"""


def take_in(
    tx: Transaction, dialect: Dialect, several: Sequence[Image], *, now: int, overwrite: bool
) -> list[Fate]:
    """See `Copyable.take_in`."""
    fates: list[Fate] = []
    new: list[Image] = []
    contents: list[tuple[int, Image]] = []
    known = _all_of(tx, FIND_HEADS, [image.head.scope for image in several])
    for image in several:
        scope = image.head.scope
        if isinstance(scope, AssetScope):
            found, holder = _asset(tx, scope)
        else:
            found, holder = _found(scope, known), None
        fate = _fate(tx, dialect, image, found, overwrite=overwrite)
        if fate is Fate.COPIED and holder and not _take_uri(tx, dialect, image, holder, overwrite=overwrite):
            fate = Fate.CONFLICT
        fates.append(fate)
        if fate is not Fate.COPIED:
            continue
        if found is not None:
            _replace(tx, image, found[0], now)
            contents.append((found[0], image))
        else:
            new.append(image)
    tx.run_many(ADD_SCOPE, [_scope_row(image, now) for image in new])
    places = _all_of(tx, FIND_PLACES, [image.head.scope for image in new])
    for image in new:
        scope = image.head.scope
        if isinstance(scope, AssetScope):
            contents.append((_name_asset(tx, scope), image))
        else:
            contents.append((places[_ids(scope)][0], image))
    tx.run_many(ADD_ENTRY, [row for place, image in contents for row in _entry_rows(place, image)])
    tx.run_many(sql.ADD_TO_LOG, [row for place, image in contents for row in _log_rows(place, image)])
    tx.run_many(
        ADD_ATTEMPT,
        [{"scope_id": place, **vars(one)} for place, image in contents for one in image.attempts],
    )
    return fates


_Found = tuple[int, Head, str | None]
"""A scope that is known: its id, how it stands, and what was last copied into it."""


def _all_of(tx: Transaction, statement: str, scopes: Sequence[Scope]) -> dict[Row, Row]:
    """Ask for many task instances and runs at once; return what follows the ids in each row, by these."""
    digests = [scope.digest for scope in scopes if not isinstance(scope, AssetScope)]
    if not digests:
        return {}
    names = [f"d{number}" for number in range(len(digests))]
    asked = statement.replace("{digests}", ", ".join(f":{name}" for name in names))
    return {tuple(row[:4]): row[4:] for row in tx.all(asked, dict(zip(names, digests, strict=True)))}


def _ids(scope: TaskScope | RunScope) -> Row:
    own = (scope.task_id, scope.map_index) if isinstance(scope, TaskScope) else (None, None)
    return (scope.dag_id, scope.run_id, *own)


def _found(scope: TaskScope | RunScope, known: dict[Row, Row]) -> _Found | None:
    row = known.get(_ids(scope))
    return None if row is None else (row[0], standing(scope, row[1:10]), row[10])


def _name_asset(tx: Transaction, scope: AssetScope) -> int:
    """Give a scope that was added the name of its asset, and return its id."""
    row = tx.one(sql.FIND_SCOPE, {"digest": _digest(scope)})
    assert row is not None  # noqa: S101 - it was added in this transaction
    tx.run(sql.CREATE_ASSET, assets.called(row[0], *_halves(scope)))
    return int(row[0])


def _asset(tx: Transaction, scope: AssetScope) -> tuple[_Found | None, _Found | None]:
    """Return the asset that an image's is here; and another one that has its uri."""
    named = holder = None
    for place, asset in assets.called_so(tx.all, scope):
        row = tx.one(FIND_HEAD_BY_ID, {"id": place})
        one = None if row is None else (place, standing(asset, row[1:10]), row[10])
        if asset.name == scope.name:
            named = one
        else:
            holder = one
    return (holder, None) if named is None else (named, holder)


def _fate(tx: Transaction, dialect: Dialect, image: Image, found: _Found | None, *, overwrite: bool) -> Fate:
    """Decide what becomes of an image. A scope that it is to replace is locked, and stands as it was found."""
    if found is None:
        return Fate.COPIED
    place, head, copied = found
    fate = may_replace(image, head, copied, lambda: _course(tx, place), overwrite=overwrite)
    if fate is Fate.COPIED:
        # of most of a second run, nothing is
        _lock(tx, dialect, found)
    return fate


def _course(tx: Transaction, place: int) -> Course:
    changes = {version: when for version, when in tx.all(CHANGES_OF_SCOPE, {"id": place})}  # noqa: C416 - rows are no pairs to mypy
    return Course(changes, {tuple(row[:3]): row[3] for row in tx.all(ATTEMPTS_OF_SCOPE, {"id": place})})


def _take_uri(tx: Transaction, dialect: Dialect, image: Image, holder: _Found, *, overwrite: bool) -> bool:
    """Take a uri, which an image's asset has now, from the asset that had it here; return whether that may be.

    Where it stood as it was copied from the same store, its own image gives it another: uris were moved there.
    """
    place, head, copied = holder
    as_copied = stands_as_copied(head, copied, image.store)
    if not as_copied and not overwrite:
        return False
    _lock(tx, dialect, holder)
    assert isinstance(head.scope, AssetScope)  # noqa: S101 - nothing else has a uri
    scope = without_uri(head.scope, place)
    tx.run(sql.RENAME_ASSET, assets.called(place, *_halves(scope)))
    if as_copied:
        mark = Origin(replace(head, scope=scope).fingerprint, image.store)
        tx.run(NOTE_COPY, {"id": place, "copied": mark.to_text()})
    return True


def _lock(tx: Transaction, dialect: Dialect, found: _Found) -> None:
    place, head, _ = found
    row = tx.one(dialect.render(FIND_HEAD_BY_ID + "{for_update}"), {"id": place})
    renamed = isinstance(head.scope, AssetScope) and assets.find(tx.all, head.scope) != (place, head.scope)
    if row is None or standing(head.scope, row[1:10]) != head or renamed:
        raise TransientError("another process has changed what a copy was to replace")


def _replace(tx: Transaction, image: Image, place: int, now: int) -> None:
    tx.run(sql.ERASE_ALL_ENTRIES, {"scope_id": place})
    tx.run(sql.ERASE_LOG, {"scope_id": place})
    tx.run(sql.ERASE_ATTEMPTS, {"id": place})
    tx.run(REPLACE_HEAD, {"id": place, **_scope_row(image, now)})
    if isinstance(image.head.scope, AssetScope):
        tx.run(sql.RENAME_ASSET, assets.called(place, *_halves(image.head.scope)))


def _scope_row(image: Image, now: int) -> dict[str, Any]:
    head, scope = image.head, image.head.scope
    task_id = map_index = None
    if isinstance(scope, AssetScope):
        kind, dag_id, run_id, sweep_at = "asset", None, None, None
    else:
        kind, dag_id, run_id = "run", scope.dag_id, scope.run_id
        # as when it was deleted; else idle times are whole days
        sweep_at = head.updated_at + BURIED if head.deleted else now + DAY
        if isinstance(scope, TaskScope):
            kind, task_id, map_index = "task", scope.task_id, scope.map_index
    facts = {name: fact for name, fact in vars(head).items() if name != "scope"}
    return {
        **facts,
        "deleted": int(head.deleted),
        "digest": _digest(scope),
        "kind": kind,
        "dag_id": dag_id,
        "run_id": run_id,
        "task_id": task_id,
        "map_index": map_index,
        "sweep_at": sweep_at,
        "copied": image.mark,
    }


def _entry_rows(place: int, image: Image) -> Iterable[dict[str, Any]]:
    past: dict[str, list[StoredVersion]] = {}
    for version in image.log:
        past.setdefault(version.key, []).append(version)
    for entry in image.entries:
        log = past.get(entry.key, [])
        ends = [end for end in (entry.expires_at, *(one.expires_at for one in log)) if end is not None]
        yield {
            "scope_id": place,
            "key": entry.key,
            "value": entry.text,
            "version": entry.version,
            "updated_at": entry.updated_at,
            "expires_at": entry.expires_at,
            "sweep_at": min(ends, default=None),
            "writer": entry.writer,
            "log_from": min([one.version for one in log], default=entry.version),
            "log_rows": len(log),
        }


def _log_rows(place: int, image: Image) -> Iterable[dict[str, Any]]:
    for one in image.log:
        yield {
            "scope_id": place,
            "key": one.key,
            "version": one.version,
            "action": one.action,
            "logged": one.text,
            "size": one.size,
            "sha256": one.sha256,
            "now": one.written_at,
            "expires_at": one.expires_at,
            "writer": one.writer,
        }


def _digest(scope: Scope) -> bytes:
    return asset_digest("name", _halves(scope)[0]) if isinstance(scope, AssetScope) else scope.digest


def _halves(scope: AssetScope) -> tuple[str, str]:
    return scope.name or "", scope.uri or ""
