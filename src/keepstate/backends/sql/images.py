"""Scopes as a whole, read for a copy: a page of them in one statement, so that each is of one moment."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from keepstate.backends.answers import StoredVersion
from keepstate.backends.images import Head, Image, KeptAttempt, KeptEntry, Selection, Tally
from keepstate.errors import BackendError
from keepstate.patterns import compacted
from keepstate.scope import AssetScope, RunScope, TaskScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from keepstate.backends.sql.database import Params, Row
    from keepstate.backends.sql.dialects import Dialect
    from keepstate.scope import Scope

WHICH_STORE = "SELECT id FROM keepstate_store"

# the columns of `standing`, and after them what was last copied into the scope
HEAD = """s.version, s.incarnation, s.created_at, s.updated_at, s.try_number, s.attempt_id, s.item, s.state, s.deleted,
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
    scope: Scope
    if kind == "task":
        scope = TaskScope(first, second, task_id, map_index)
    else:
        scope = RunScope(first, second) if kind == "run" else AssetScope(first, second)
    facts = version, incarnation, created_at, updated_at, try_number, attempt_id, item, state, deleted
    return standing(scope, facts)


def standing(scope: Scope, row: Row) -> Head:
    """Return how a scope stands, from the columns that ``HEAD`` names."""
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
