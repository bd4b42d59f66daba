"""A run: its task instances in a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.scope import RunScope
from keepstate.web.addresses import RUN
from keepstate.web.asked import not_found, page
from keepstate.web.frame import Crumb
from keepstate.web.live import events
from keepstate.web.paging import PER_PAGE, Pager, pager

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.responses import Response

    from keepstate.scope import RunInfo, TaskInstanceInfo
    from keepstate.web.addresses import Addresses
    from keepstate.web.asked import Asked
    from keepstate.web.frame import Frame


@dataclass(frozen=True)
class Line:
    """A task instance in a list."""

    task_id: str
    map_index: int
    href: str
    state: str | None
    try_number: int | None
    entries: int
    updated_at: datetime


@dataclass(frozen=True)
class Run:
    """A run, and a part of its task instances. The ``state`` of one that nobody began as a whole is that of all of these."""

    frame: Frame
    run: RunInfo
    state: str | None
    lines: tuple[Line, ...]
    pager: Pager


def show(asked: Asked) -> Response:
    """Show a run."""
    scope, addresses, number = (
        RunScope(asked.path("dag_id"), asked.path("run_id")),
        asked.addresses,
        asked.page_number(),
    )
    run = asked.backend.run(scope) if asked.caller.reaches_dag(scope.dag_id) else None
    if run is None:
        raise not_found("run")
    found = _instances(asked, scope)
    total = asked.backend.count_task_instances(run.dag_id, run.run_id)
    here = addresses.run(run.dag_id, run.run_id)
    context = Run(
        asked.frame(
            run.run_id,
            "dags",
            Crumb("Dags", addresses.dags()),
            Crumb(run.dag_id, addresses.dag(run.dag_id)),
            Crumb(run.run_id),
        ),
        run,
        run.state or run.tasks_state,
        tuple(line_of(info, addresses) for info in found),
        pager(here, number, total),
    )
    return asked.answer(context, "run.html", "_run.html")


def watch(asked: Asked) -> object:
    """Return what changes when the page of a run does."""
    scope = RunScope(asked.path("dag_id"), asked.path("run_id"))
    if not asked.caller.reaches_dag(scope.dag_id):
        raise not_found("run")
    run = asked.backend.run(scope)
    return run and (run.state or run.tasks_state), [
        (info.scope.task_id, info.scope.map_index, info.state, info.version, info.entries)
        for info in _instances(asked, scope)
    ]


def _instances(asked: Asked, scope: RunScope) -> list[TaskInstanceInfo]:
    offset = (asked.page_number() - 1) * PER_PAGE
    now = asked.store.clock()
    return asked.backend.task_instances(scope.dag_id, scope.run_id, now=now, limit=PER_PAGE, offset=offset)


def line_of(info: TaskInstanceInfo, addresses: Addresses) -> Line:
    """Return a task instance as a list shows it."""
    return Line(
        info.scope.task_id,
        info.scope.map_index,
        addresses.task_instance(info.scope),
        info.state,
        info.try_number,
        info.entries,
        info.updated_at,
    )


routes = [page(RUN, show, watch=watch), events(RUN, watch)]
