"""A run: its task instances in a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.scope import RunScope
from keepstate.web.addresses import RUN
from keepstate.web.asked import not_found, page
from keepstate.web.frame import Crumb
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
    """A run, and a part of its task instances."""

    frame: Frame
    run: RunInfo
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
    found = asked.backend.task_instances(
        run.dag_id, run.run_id, now=asked.store.clock(), limit=PER_PAGE, offset=(number - 1) * PER_PAGE
    )
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
        tuple(line_of(info, addresses) for info in found),
        pager(here, number, total),
    )
    return asked.answer(context, "run.html", "_run.html")


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


routes = [page(RUN, show)]
