"""One search over dags, runs, tasks, keys and assets.

What it looks at is bounded, so that no search keeps the store busy: all dags, a thousand assets, a run of that very id
however old, the newest runs, and the tasks and the names of the keys of the newest of these. No value is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.errors import InvalidIdError
from keepstate.scope import RunScope
from keepstate.web.addresses import with_query
from keepstate.web.asked import page
from keepstate.web.frame import Crumb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from starlette.responses import Response

    from keepstate.backends.answers import GridRun
    from keepstate.web.asked import Asked
    from keepstate.web.frame import Frame

ASSETS, RUNS, RUNS_LOOKED_INTO, KEYS = 1000, 1000, 40, 10_000
"""How many assets and newest runs are looked at, of how many of these runs the tasks and keys, and how many keys."""

MOST = 20
"""How many are shown of each kind."""

_AT_ONCE = 1000
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
    assets: int
    runs: int
    runs_looked_into: int


def show(asked: Asked) -> Response:
    """Show what was found."""
    text = asked.query("q").strip()[:_LONGEST]
    groups = tuple(group for group in _groups(asked, text) if group.found) if text else ()
    title = f"Search: {text}" if text else "Search"
    frame = asked.frame(title, "search", Crumb("Search"), text=text)
    context = Search(frame, text, groups, ASSETS, RUNS, RUNS_LOOKED_INTO)
    return asked.answer(context, "search.html", "_search.html")


def _groups(asked: Asked, text: str) -> Iterator[Group]:
    now, pattern = asked.store.clock(), asked.caller.dags
    yield _group("Dags", _dags(asked, text))
    yield _group("Runs", _runs(asked, text))
    yield _group(
        "Tasks", _tasks(asked, text, asked.backend.grid(now=now, pattern=pattern, limit=RUNS_LOOKED_INTO))
    )
    yield _group("Keys", _keys(asked, text))
    yield _group("Assets", _assets(asked, text))


def _group(kind: str, found: Iterable[Found]) -> Group:
    listed: list[Found] = []
    for one in found:
        if len(listed) == MOST:
            return Group(kind, tuple(listed), more=True)
        listed.append(one)
    return Group(kind, tuple(listed), more=False)


def _dags(asked: Asked, text: str) -> Iterator[Found]:
    offset = 0
    while batch := asked.backend.dag_ids(pattern=asked.caller.dags, limit=_AT_ONCE, offset=offset):
        for dag_id in batch:
            yield from _matching(dag_id, text, "", asked.addresses.dag(dag_id))
        offset += _AT_ONCE


def _runs(asked: Asked, text: str) -> Iterator[Found]:
    backend, pattern = asked.backend, asked.caller.dags
    try:
        exact = backend.runs(pattern=pattern, run_id=RunScope("any", text).run_id, limit=MOST + 1)
    except InvalidIdError:
        exact = []
    known = {(run.dag_id, run.run_id): run for run in (*exact, *backend.runs(pattern=pattern, limit=RUNS))}
    for dag_id, run_id in known:
        yield from _matching(run_id, text, dag_id, asked.addresses.run(dag_id, run_id))


def _tasks(asked: Asked, text: str, runs: list[GridRun]) -> Iterator[Found]:
    seen: set[tuple[str, str]] = set()
    for one in runs:
        for task in one.tasks:
            place = one.dag_id, task.task_id
            if place not in seen:
                seen.add(place)
                where = f"{one.dag_id}, last in {one.run.run_id}"
                href = asked.addresses.task(one.dag_id, one.run.run_id, task.task_id)
                yield from _matching(task.task_id, text, where, href)


def _keys(asked: Asked, text: str) -> Iterator[Found]:
    backend, caller, now = asked.backend, asked.caller, asked.store.clock()
    for one in backend.keys(now=now, pattern=caller.dags, runs=RUNS_LOOKED_INTO, limit=KEYS):
        href = with_query(f"{asked.addresses.task_instance(one.scope)}/history", key=one.key)
        yield from _matching(one.key, text, str(one.scope), href)
    for its in backend.keys_of_assets(now=now, pattern=caller.assets, limit=KEYS):
        href = with_query(f"{asked.addresses.asset(its.id)}/history", key=its.key)
        yield from _matching(its.key, text, f"asset {its.name}", href)


def _assets(asked: Asked, text: str) -> Iterator[Found]:
    for name, uri, number in _asset_names(asked):
        in_name = list(_matching(name, text, "", asked.addresses.asset(number)))
        yield from in_name or _matching(uri, text, name, asked.addresses.asset(number))


def _asset_names(asked: Asked) -> list[tuple[str, str, int]]:
    found = asked.backend.assets(now=asked.store.clock(), pattern=asked.caller.assets, limit=ASSETS)
    return [(one.name, one.uri, one.id) for one in found]


def _matching(name: str, text: str, where: str, href: str) -> Iterator[Found]:
    at = name.lower().find(text.lower())
    if at >= 0:
        # a letter may be longer in lower case: what is marked is then a little beside the place, and nothing else
        yield Found(name[:at], name[at : at + len(text)], name[at + len(text) :], where, href)


routes = [page("/search", show)]
