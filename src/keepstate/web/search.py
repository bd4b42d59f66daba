"""One search over dags, runs, tasks, keys and assets.

What it looks at is bounded, so that no search keeps the store busy: all dags, a thousand assets, a run of that very id
however old in five hundred dags, the newest runs, and the tasks and the names of the keys of the newest of these. No value is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.errors import InvalidIdError
from keepstate.scope import AssetScope, RunScope, TaskScope
from keepstate.web.addresses import with_query
from keepstate.web.asked import page
from keepstate.web.frame import Crumb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from starlette.responses import Response

    from keepstate.backends.base import EntryScope
    from keepstate.scope import RunInfo, TaskInstanceInfo
    from keepstate.web.asked import Asked
    from keepstate.web.frame import Frame

RUNS, RUNS_LOOKED_INTO, PLACES, KEYS = 1000, 40, 200, 500
"""How many of the newest runs are looked at, of how many the tasks, of how many of these the keys, and how many keys of each."""

DAGS_ASKED = 500
"""How many dags are asked for an older run of that very id."""

MOST = 20
"""How many are shown of each kind."""

_AT_ONCE = 1000
_INSTANCES = 500
_LONGEST = 512


@dataclass(frozen=True)
class Found:
    """Something with the text in its name: ``before`` and ``after`` are what stands around that, ``where`` what it is part of."""

    before: str
    text: str
    after: str
    where: str
    href: str


@dataclass(frozen=True)
class Group:
    """What was found of one kind; ``more`` of it is not shown."""

    kind: str
    found: tuple[Found, ...]
    more: bool


@dataclass(frozen=True)
class Search:
    """What has ``text`` in its name, upper and lower case alike."""

    frame: Frame
    text: str
    groups: tuple[Group, ...]
    runs: int
    runs_looked_into: int
    places: int


def show(asked: Asked) -> Response:
    """Show what was found."""
    text = asked.query("q").strip()[:_LONGEST]
    groups = tuple(group for group in _groups(asked, text) if group.found) if text else ()
    title = f"Search: {text}" if text else "Search"
    frame = asked.frame(title, "search", Crumb("Search"), text=text)
    context = Search(frame, text, groups, RUNS, RUNS_LOOKED_INTO, PLACES)
    return asked.answer(context, "search.html", "_search.html")


def _groups(asked: Asked, text: str) -> Iterator[Group]:
    runs = asked.backend.runs(pattern=asked.caller.dags, limit=RUNS)
    instances = [info for run in runs[:RUNS_LOOKED_INTO] for info in _instances(asked, run)]
    dag_ids = list(_dag_ids(asked))
    yield _group("Dags", _dags(asked, text, dag_ids))
    yield _group("Runs", _runs(asked, text, runs, dag_ids))
    yield _group("Tasks", _tasks(asked, text, instances))
    yield _group("Keys", _keys(asked, text, instances))
    yield _group("Assets", _assets(asked, text))


def _group(kind: str, found: Iterable[Found]) -> Group:
    listed: list[Found] = []
    for one in found:
        if len(listed) == MOST:
            return Group(kind, tuple(listed), more=True)
        listed.append(one)
    return Group(kind, tuple(listed), more=False)


def _instances(asked: Asked, run: RunInfo) -> list[TaskInstanceInfo]:
    now = asked.store.clock()
    return asked.backend.task_instances(run.dag_id, run.run_id, now=now, limit=_INSTANCES)


def _dag_ids(asked: Asked) -> Iterator[str]:
    offset = 0
    while batch := asked.backend.dags(pattern=asked.caller.dags, limit=_AT_ONCE, offset=offset):
        yield from (dag.dag_id for dag in batch)
        offset += _AT_ONCE


def _dags(asked: Asked, text: str, dag_ids: list[str]) -> Iterator[Found]:
    for dag_id in dag_ids:
        yield from _matching(dag_id, text, "", asked.addresses.dag(dag_id))


def _runs(asked: Asked, text: str, runs: list[RunInfo], dag_ids: list[str]) -> Iterator[Found]:
    newest = {(run.dag_id, run.run_id) for run in runs}
    for dag_id, run_id in [*_exact_runs(asked, text, dag_ids, newest), *((r.dag_id, r.run_id) for r in runs)]:
        yield from _matching(run_id, text, dag_id, asked.addresses.run(dag_id, run_id))


def _exact_runs(
    asked: Asked, text: str, dag_ids: list[str], newest: set[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    try:
        scopes = [RunScope(dag_id, text) for dag_id in dag_ids[:DAGS_ASKED] if (dag_id, text) not in newest]
    except InvalidIdError:
        return
    for scope in scopes:
        if asked.backend.run(scope) is not None:
            yield scope.dag_id, scope.run_id


def _tasks(asked: Asked, text: str, instances: list[TaskInstanceInfo]) -> Iterator[Found]:
    seen: set[tuple[str, str]] = set()
    for info in instances:
        scope = info.scope
        if (scope.dag_id, scope.task_id) not in seen:
            seen.add((scope.dag_id, scope.task_id))
            yield from _matching(
                scope.task_id,
                text,
                f"{scope.dag_id}, last in {scope.run_id}",
                asked.addresses.task(scope.dag_id, scope.run_id, scope.task_id),
            )


def _keys(asked: Asked, text: str, instances: list[TaskInstanceInfo]) -> Iterator[Found]:
    holding = [info.scope for info in instances if info.entries][:PLACES]
    places: list[tuple[EntryScope, str]] = [
        (scope, asked.addresses.task_instance(scope)) for scope in holding
    ]
    places += [
        (AssetScope(name), asked.addresses.asset(number)) for name, _, number in _asset_names(asked)[:PLACES]
    ]
    now = asked.store.clock()
    for scope, base in places:
        for entry in asked.backend.read(scope, None, now=now, limit=KEYS, texts=False).entries:
            where = str(scope) if isinstance(scope, TaskScope) else f"asset {scope.name}"
            yield from _matching(
                entry.key,
                text,
                where,
                with_query(f"{base}/history", key=entry.key),
            )


def _assets(asked: Asked, text: str) -> Iterator[Found]:
    for name, uri, number in _asset_names(asked):
        in_name = list(_matching(name, text, "", asked.addresses.asset(number)))
        yield from in_name or _matching(uri, text, name, asked.addresses.asset(number))


def _asset_names(asked: Asked) -> list[tuple[str, str, int]]:
    found = asked.backend.assets(now=asked.store.clock(), pattern=asked.caller.assets, limit=_AT_ONCE)
    return [(one.name, one.uri, one.id) for one in found]


def _matching(name: str, text: str, where: str, href: str) -> Iterator[Found]:
    at = name.lower().find(text.lower())
    if at >= 0:
        # a letter may be longer in lower case: what is marked is then a little beside the place, and nothing else
        yield Found(name[:at], name[at : at + len(text)], name[at + len(text) :], where, href)


routes = [page("/search", show)]
