"""Scopes as a whole: read for a copy in one statement, so that each is of one moment, and stored in one transaction."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from keepstate.backends.answers import StoredVersion
from keepstate.backends.images import (
    Fate,
    Head,
    Image,
    KeptAttempt,
    KeptEntry,
    Origin,
    Selection,
    Tally,
    may_replace,
    stands_as_copied,
    without_uri,
)
from keepstate.backends.sql import assets
from keepstate.backends.sql import statements as sql
from keepstate.backends.sql.database import TransientError
from keepstate.backends.sql.removal import BURIED
from keepstate.clock import DAY
from keepstate.errors import BackendError
from keepstate.patterns import compacted
from keepstate.scope import AssetScope, RunScope, TaskScope, asset_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from keepstate.backends.sql.database import Params, Row, Transaction
    from keepstate.backends.sql.dialects import Dialect

WHICH_STORE = "SELECT id FROM keepstate_store"

_HEAD = """s.version, s.incarnation, s.created_at, s.updated_at, s.try_number, s.attempt_id, s.item, s.state, s.deleted,
  s.copied"""

# How far a page reaches. Where it ends is asked first, so that each table is read between two places of its primary key,
# whatever a database believes of their sizes: one that was filled just now would be read as a whole for each page.
PAGE_END = """
SELECT MAX(p.id) FROM (
  SELECT s.id FROM keepstate_scope s WHERE s.id > :after AND {selected} ORDER BY s.id LIMIT :limit) p
"""

# Four kinds of rows, told apart by the first column. The first kind has a value in each column, which gives the columns of
# all their types: eight texts, then seven numbers.
_WITHIN = "s.id > :after AND s.id <= :last AND {selected}"
IMAGES = f"""
SELECT 0, s.id, s.kind, COALESCE(s.dag_id, a.name), COALESCE(s.run_id, a.uri), s.task_id, s.attempt_id, s.item, s.state,
  s.copied, s.map_index, s.incarnation, s.version, s.try_number, s.deleted, s.created_at, s.updated_at
FROM keepstate_scope s LEFT JOIN keepstate_asset a ON a.id = s.id WHERE {_WITHIN}
UNION ALL
SELECT 1, e.scope_id, e.entry_key, e.value, e.writer, NULL, NULL, NULL, NULL, NULL,
  e.version, e.updated_at, e.expires_at, e.log_from, e.log_limit, NULL, NULL
FROM keepstate_scope s JOIN keepstate_entry e ON e.scope_id = s.id AND e.scope_id > :after AND e.scope_id <= :last
WHERE {_WITHIN} AND (e.expires_at IS NULL OR e.expires_at > :now)
UNION ALL
SELECT 2, l.scope_id, l.entry_key, l.action, l.value, l.sha256, l.writer, NULL, NULL, NULL,
  l.version, l.size, l.written_at, l.expires_at, NULL, NULL, NULL
FROM keepstate_scope s JOIN keepstate_log l ON l.scope_id = s.id AND l.scope_id > :after AND l.scope_id <= :last
WHERE {_WITHIN}
UNION ALL
SELECT 3, t.scope_id, t.attempt_id, t.item, t.state, t.host, t.process_started, t.reason, t.result, t.arguments,
  t.incarnation, t.try_number, t.pid, t.started_at, t.beat_at, t.ended_at, NULL
FROM keepstate_scope s JOIN keepstate_attempt t ON t.scope_id = s.id AND t.scope_id > :after AND t.scope_id <= :last
WHERE {_WITHIN}
"""

_IDS = "s.dag_id, s.run_id, s.task_id, s.map_index"
FIND_HEADS = f"SELECT {_IDS}, s.id, {_HEAD} FROM keepstate_scope s WHERE s.digest IN ({{digests}})"
FIND_PLACES = f"SELECT {_IDS}, s.id FROM keepstate_scope s WHERE s.digest IN ({{digests}})"
FIND_HEAD_BY_ID = f"SELECT s.id, {_HEAD} FROM keepstate_scope s WHERE s.id = :id"

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

COUNT_SCOPES = (
    "SELECT s.kind, COUNT(*) FROM keepstate_scope s WHERE s.deleted = 0 AND {selected} GROUP BY s.kind"
)
COUNT_ENTRIES = """
SELECT COUNT(*) FROM keepstate_scope s JOIN keepstate_entry e ON e.scope_id = s.id
WHERE s.deleted = 0 AND e.value IS NOT NULL AND (e.expires_at IS NULL OR e.expires_at > :now) AND {selected}
"""
COUNT_ATTEMPTS = """
SELECT COUNT(*) FROM keepstate_scope s JOIN keepstate_attempt t ON t.scope_id = s.id
WHERE s.deleted = 0 AND t.state <> 'deleted' AND {selected}
"""


def _selected(dialect: Dialect, statement: str, selection: Selection) -> tuple[str, dict[str, str]]:
    """Return a statement with the condition of what is selected in place, and the parameters of that."""
    of_runs, params = ["s.kind <> 'asset'"], {}
    for name in ("dag_id", "run_id"):
        if (wanted := getattr(selection, name)) is not None:
            of_runs.append(f"s.{name} = :{name}")
            params[name] = wanted
    if selection.dags is not None:
        of_runs.append("s.dag_id " + dialect.fits.replace(":pattern", ":dags"))
        params["dags"] = dialect.pattern(compacted(selection.dags) or "")
    of_assets = "s.kind = 'asset'"
    if selection.assets is not None:
        fits = dialect.fits.replace(":pattern", ":assets")
        of_assets += f" AND EXISTS (SELECT 1 FROM keepstate_asset n WHERE n.id = s.id AND (n.name {fits} OR n.uri {fits}))"
        params["assets"] = dialect.pattern(compacted(selection.assets) or "")
    kinds = [" AND ".join(of_runs)] * selection.has_runs + [of_assets] * selection.has_assets
    if selection == Selection():
        kinds = ["1 = 1"]
    return statement.replace("{selected}", "(" + " OR ".join(f"({one})" for one in kinds) + ")"), params


# ------------------------------------------------------------------------------------------------- giving out


def images(
    query: Callable[[str, Params], list[Row]],
    dialect: Dialect,
    selection: Selection,
    *,
    now: int,
    after: int,
    limit: int,
) -> list[tuple[int, Image]]:
    """See `Copyable.images`."""
    end, params = _selected(dialect, PAGE_END, selection)
    statement, _ = _selected(dialect, IMAGES, selection)
    own = _identity(query)
    while True:
        ((last,),) = query(end, {**params, "after": after, "limit": limit})
        if last is None:
            return []
        rows = query(statement, {**params, "now": now, "after": after, "last": last})
        by_scope: dict[int, tuple[list[Row], list[Row], list[Row], list[Row]]] = {}
        for row in rows:
            by_scope.setdefault(row[1], ([], [], [], []))[row[0]].append(row)
        if by_scope:
            return [(place, _image(by_scope[place], now, own)) for place in sorted(by_scope)]
        # all of the page was deleted in between
        after = last


def _identity(query: Callable[[str, Params], list[Row]]) -> str:
    rows = query(WHICH_STORE, {})
    if len(rows) != 1:
        raise BackendError(
            f"the table keepstate_store has {len(rows)} rows, and one is what tells this store from others"
        )
    return str(rows[0][0])


def _image(rows: tuple[list[Row], list[Row], list[Row], list[Row]], now: int, own: str) -> Image:
    (scope,), entries, log, attempts = rows
    kept = sorted(entries, key=itemgetter(2))
    bounds = {row[2]: row[13:15] for row in kept}
    return Image.of(
        _head(scope),
        scope[9],
        own,
        entries=tuple(KeptEntry(row[2], row[10], row[11], row[3], row[12], row[4]) for row in kept),
        log=tuple(_log(log, bounds, now)),
        attempts=tuple(
            sorted(
                (_attempt(row) for row in attempts),
                key=lambda one: (one.incarnation, one.try_number, one.attempt_id),
            )
        ),
    )


def _head(row: Row) -> Head:
    kind, first, second, task_id, attempt_id, item, state = row[2:9]
    map_index, incarnation, version, try_number, deleted, created_at, updated_at = row[10:17]
    scope: _Scope
    if kind == "task":
        scope = TaskScope(first, second, task_id, map_index)
    else:
        scope = RunScope(first, second) if kind == "run" else AssetScope(first, second)
    standing = version, incarnation, created_at, updated_at, try_number, attempt_id, item, state, deleted
    return _standing(scope, standing)


def _standing(scope: _Scope, row: Row) -> Head:
    """Read the columns of ``_HEAD``."""
    *facts, deleted = row
    head: Head = Head(scope, *facts, deleted=bool(deleted))  # type: ignore[misc]
    return head


def _log(rows: list[Row], bounds: dict[str, Row], now: int) -> Iterable[StoredVersion]:
    """Yield the versions that a key's history shows, oldest first: the log may have more, which wait to be trimmed."""
    by_key: dict[str, list[Row]] = {}
    for row in rows:
        if row[2] in bounds and row[10] >= bounds[row[2]][0]:
            by_key.setdefault(row[2], []).append(row)
    for key in sorted(by_key):
        newest = sorted(by_key[key], key=itemgetter(10))[-bounds[key][1] :] if bounds[key][1] else []
        for row in newest:
            action, value, sha256, writer = row[3:7]
            version, size, written_at, expires_at = row[10:14]
            if expires_at is None or expires_at > now:
                yield StoredVersion(key, version, action, value, size, sha256, written_at, expires_at, writer)


def _attempt(row: Row) -> KeptAttempt:
    attempt_id, item, state, host, process_started, reason, result, arguments = row[2:10]
    incarnation, try_number, pid, started_at, beat_at, ended_at = row[10:16]
    return KeptAttempt(
        incarnation=incarnation,
        try_number=try_number,
        state=state,
        started_at=started_at,
        attempt_id=attempt_id,
        item=item,
        host=host,
        pid=pid,
        process_started=process_started,
        beat_at=beat_at,
        ended_at=ended_at,
        reason=reason,
        result=result,
        arguments=arguments,
    )


# -------------------------------------------------------------------------------------------------- taking in


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


_Scope = TaskScope | RunScope | AssetScope
_Found = tuple[int, Head, str | None]
"""A scope that is known: its id, how it stands, and what was last copied into it."""


def _all_of(tx: Transaction, statement: str, scopes: Sequence[_Scope]) -> dict[Row, Row]:
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
    return None if row is None else (row[0], _standing(scope, row[1:10]), row[10])


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
        one = None if row is None else (place, _standing(asset, row[1:10]), row[10])
        if asset.name == scope.name:
            named = one
        else:
            holder = one
    return (holder, None) if named is None else (named, holder)


def _fate(tx: Transaction, dialect: Dialect, image: Image, found: _Found | None, *, overwrite: bool) -> Fate:
    """Decide what becomes of an image. A scope that it is to replace is locked, and stands as it was found."""
    if found is None:
        return Fate.COPIED
    _, head, copied = found
    fate = may_replace(image, head, copied)
    # most of a second run: nothing is locked
    if fate is Fate.UNCHANGED or (fate is Fate.CONFLICT and not overwrite):
        return fate
    _lock(tx, dialect, found)
    return Fate.COPIED


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
    if row is None or _standing(head.scope, row[1:10]) != head or renamed:
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


def _digest(scope: _Scope) -> bytes:
    return asset_digest("name", _halves(scope)[0]) if isinstance(scope, AssetScope) else scope.digest


def _halves(scope: AssetScope) -> tuple[str, str]:
    return scope.name or "", scope.uri or ""


# --------------------------------------------------------------------------------------------------- counting


def tally(
    query: Callable[[str, Params], list[Row]], dialect: Dialect, selection: Selection, *, now: int
) -> Tally:
    """See `Copyable.tally`."""

    def ask(statement: str, **more: int) -> list[Row]:
        text, params = _selected(dialect, statement, selection)
        return query(text, {**params, **more})

    kinds: dict[str, int] = {kind: count for kind, count in ask(COUNT_SCOPES)}  # noqa: C416 - rows are no pairs to mypy
    return Tally(
        task_instances=kinds.get("task", 0),
        runs=kinds.get("run", 0),
        assets=kinds.get("asset", 0),
        entries=ask(COUNT_ENTRIES, now=now)[0][0],
        attempts=ask(COUNT_ATTEMPTS)[0][0],
    )
