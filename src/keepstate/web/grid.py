"""A dag's grid: its runs, newest last, by its tasks; each square opens a task instance."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.backends.answers import MOST_IN_A_GRID
from keepstate.scope import RunScope
from keepstate.states import most_serious
from keepstate.web.addresses import DAG
from keepstate.web.asked import not_found, page
from keepstate.web.frame import Crumb
from keepstate.web.live import events
from keepstate.web.paging import Pager, pager

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.responses import Response

    from keepstate.backends.answers import GridRun, GridTask
    from keepstate.scope import RunInfo
    from keepstate.web.asked import Asked
    from keepstate.web.frame import Frame

RUNS_PER_PAGE = 20
_KIND = re.compile(r"^[a-z_]+?__(?=.)")


@dataclass(frozen=True)
class Square:
    """One task in one run. It stands for ``count`` task instances where the task is mapped."""

    href: str
    state: str | None
    count: int
    entries: int


@dataclass(frozen=True)
class Column:
    """A run. Its ``label`` is its id without the word by which Airflow's ids begin alike.

    The ``state`` of one that nobody began as a whole is that of its tasks.
    """

    run_id: str
    label: str
    href: str
    state: str | None
    created_at: datetime


@dataclass(frozen=True)
class Row:
    """A task, with its square in each of the runs; ``None`` where it did not begin."""

    task_id: str
    squares: tuple[Square | None, ...]


@dataclass(frozen=True)
class Grid:
    """The grid of a dag. ``cut`` says that its runs have more task instances than are looked at."""

    frame: Frame
    dag_id: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    pager: Pager
    cut: bool


def show(asked: Asked) -> Response:
    """Show the grid."""
    dag_id, number, addresses = _dag_id(asked), asked.page_number(), asked.addresses
    total = asked.backend.count_runs(dag_id, pattern=asked.caller.dags)
    if not total:
        raise not_found("dag")
    runs = _runs(asked)
    context = Grid(
        asked.frame(dag_id, "dags", Crumb("Dags", addresses.dags()), Crumb(dag_id)),
        dag_id,
        tuple(
            Column(
                run.run_id,
                _KIND.sub("", run.run_id),
                addresses.run(dag_id, run.run_id),
                run.state or most_serious(state for task in tasks for state in task.states),
                run.created_at,
            )
            for run, tasks in ((one.run, one.tasks) for one in runs)
        ),
        _rows(asked, runs),
        pager(addresses.dag(dag_id), number, total, RUNS_PER_PAGE),
        sum(task.task_instances for one in runs for task in one.tasks) >= MOST_IN_A_GRID,
    )
    return asked.answer(context, "grid.html", "_grid.html")


def watch(asked: Asked) -> object:
    """Return what changes when the grid does."""
    runs = _runs(asked)
    if not runs and not asked.backend.count_runs(_dag_id(asked), pattern=asked.caller.dags):
        raise not_found("dag")
    return [
        (
            one.run.run_id,
            one.run.state,
            [(task.task_id, task.states, task.task_instances, task.entries) for task in one.tasks],
        )
        for one in runs
    ]


def _dag_id(asked: Asked) -> str:
    # the rules of ids are the scopes'
    return RunScope(asked.path("dag_id"), "any").dag_id


def _runs(asked: Asked) -> list[GridRun]:
    """Return the runs of the page with their tasks, the newest last."""
    found = asked.backend.grid(
        _dag_id(asked),
        now=asked.store.clock(),
        pattern=asked.caller.dags,
        limit=RUNS_PER_PAGE,
        offset=(asked.page_number() - 1) * RUNS_PER_PAGE,
    )
    return found[::-1]


def _rows(asked: Asked, runs: list[GridRun]) -> tuple[Row, ...]:
    by_run = [{task.task_id: task for task in one.tasks} for one in runs]
    return tuple(
        Row(
            task_id,
            tuple(
                _square(asked, one.run, tasks.get(task_id)) for one, tasks in zip(runs, by_run, strict=True)
            ),
        )
        for task_id in _in_order(by_run)
    )


def _in_order(by_run: list[dict[str, GridTask]]) -> list[str]:
    """Return the tasks in the order in which they began in the newest run that has them: as people think of them."""
    began: dict[str, tuple[int, int, str]] = {}
    for age, tasks in enumerate(reversed(by_run)):
        for task_id, task in tasks.items():
            began.setdefault(task_id, (age, task.created_at, task_id))
    return sorted(began, key=began.__getitem__)


def _square(asked: Asked, run: RunInfo, task: GridTask | None) -> Square | None:
    if task is None:
        return None
    return Square(
        asked.addresses.task(run.dag_id, run.run_id, task.task_id),
        most_serious(task.states),
        task.task_instances,
        task.entries,
    )


routes = [page(DAG, show, watch=watch), events(DAG, watch)]
