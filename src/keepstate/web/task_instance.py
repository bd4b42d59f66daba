"""A task instance: its attempts on a time line, and its storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from keepstate.web.addresses import MAPPED, TASK
from keepstate.web.asked import page
from keepstate.web.attempts import AttemptShown, attempts_of
from keepstate.web.entries import Entries, entries_of
from keepstate.web.frame import Crumb
from keepstate.web.live import events
from keepstate.web.paging import PER_PAGE, Pager, pager
from keepstate.web.place import Place, crumbs_to_run, place_of, task_scope, watch
from keepstate.web.removed import Removed, removed_of
from keepstate.web.runs import Line, line_of

if TYPE_CHECKING:
    from starlette.responses import Response

    from keepstate.scope import TaskInstanceInfo, TaskScope
    from keepstate.web.asked import Asked
    from keepstate.web.frame import Frame

_TABS = frozenset({"storage", "removed", "attempts"})


@dataclass(frozen=True)
class TaskInstance:
    """A task instance. ``tab`` says which of ``entries``, ``removed`` and the attempts' details is shown."""

    frame: Frame
    place: Place
    info: TaskInstanceInfo
    tab: str
    attempts: tuple[AttemptShown, ...]
    entries: Entries | None
    removed: Removed | None


@dataclass(frozen=True)
class Mapped:
    """A part of the task instances of a mapped task in a run."""

    frame: Frame
    task_id: str
    lines: tuple[Line, ...]
    pager: Pager


def show(asked: Asked) -> Response:
    """Show a task instance; of a task that is mapped, and so has none of its own, the mapped ones."""
    try:
        place = place_of(asked)
    except HTTPException:
        return _mapped(asked, task_scope(asked))
    assert place.task_instance is not None  # noqa: S101 - the path names one
    tab = asked.query("tab")
    tab = tab if tab in _TABS else "storage"
    context = TaskInstance(
        asked.frame(place.title, "dags", *place.crumbs[:-1], Crumb(place.title)),
        place,
        place.task_instance,
        tab,
        attempts_of(asked, place, with_keys=tab == "attempts"),
        entries_of(asked, place) if tab == "storage" else None,
        removed_of(asked, place) if tab == "removed" else None,
    )
    return asked.answer(context, "task_instance.html", "_task_instance.html")


def watch_any(asked: Asked) -> object:
    """Return what changes when the page of a task instance, or of mapped ones, does."""
    try:
        return watch(asked)
    except HTTPException:
        total = _count_mapped(asked, task_scope(asked))
        if not total:
            raise
        return total, _mapped_lines(asked, task_scope(asked))


def _mapped(asked: Asked, scope: TaskScope) -> Response:
    total = _count_mapped(asked, scope)
    if not total:
        # as it was found to be
        place_of(asked)
    context = Mapped(
        asked.frame(scope.task_id, "dags", *crumbs_to_run(asked, scope), Crumb(scope.task_id)),
        scope.task_id,
        _mapped_lines(asked, scope),
        pager(asked.addresses.task_instance(scope), asked.page_number(), total),
    )
    return asked.answer(context, "mapped.html", "_mapped.html")


def _count_mapped(asked: Asked, scope: TaskScope) -> int:
    """Return how many mapped task instances the caller could see here: none where one by itself is asked for."""
    if scope.map_index >= 0 or not asked.caller.reaches_dag(scope.dag_id):
        return 0
    return asked.backend.count_task_instances(scope.dag_id, scope.run_id, scope.task_id)


def _mapped_lines(asked: Asked, scope: TaskScope) -> tuple[Line, ...]:
    found = asked.backend.task_instances(
        scope.dag_id,
        scope.run_id,
        scope.task_id,
        now=asked.store.clock(),
        limit=PER_PAGE,
        offset=(asked.page_number() - 1) * PER_PAGE,
    )
    return tuple(line_of(info, asked.addresses) for info in found)


routes = [
    route for base in (TASK, MAPPED) for route in (page(base, show, watch=watch_any), events(base, watch_any))
]
