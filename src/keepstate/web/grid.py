"""A dag's grid: its runs, newest last, by its tasks; each square opens a task instance."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.scope import RunScope
from keepstate.web.addresses import DAG
from keepstate.web.asked import not_found, page
from keepstate.web.frame import Crumb
from keepstate.web.live import events
from keepstate.web.paging import Pager, pager
from keepstate.web.states import worst

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from starlette.responses import Response

    from keepstate.scope import RunInfo, TaskInstanceInfo
    from keepstate.web.asked import Asked
    from keepstate.web.frame import Frame

RUNS_PER_PAGE = 20
_MOST_INSTANCES = 2000
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
    """A run. Its ``label`` is its id without the word by which Airflow's ids begin alike."""

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
    """The grid of a dag. ``cut`` says that some run has more task instances than are looked at."""

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
    instances = [_instances(asked, run) for run in runs]
    context = Grid(
        asked.frame(dag_id, "dags", Crumb("Dags", addresses.dags()), Crumb(dag_id)),
        dag_id,
        tuple(
            Column(
                run.run_id,
                _KIND.sub("", run.run_id),
                addresses.run(dag_id, run.run_id),
                run.state,
                run.created_at,
            )
            for run in runs
        ),
        _rows(asked, runs, instances),
        pager(addresses.dag(dag_id), number, total, RUNS_PER_PAGE),
        any(len(found) == _MOST_INSTANCES for found in instances),
    )
    return asked.answer(context, "grid.html", "_grid.html")


def watch(asked: Asked) -> object:
    """Return what changes when the grid does."""
    runs = _runs(asked)
    if not runs:
        raise not_found("dag")
    return [(run.run_id, run.state, [_facts(info) for info in _instances(asked, run)]) for run in runs]


def _dag_id(asked: Asked) -> str:
    # the rules of ids are the scopes'
    return RunScope(asked.path("dag_id"), "any").dag_id


def _facts(info: TaskInstanceInfo) -> tuple[str, int, str | None, int]:
    return info.scope.task_id, info.scope.map_index, info.state, info.entries


def _runs(asked: Asked) -> list[RunInfo]:
    """Return the runs of the page, the newest last."""
    offset = (asked.page_number() - 1) * RUNS_PER_PAGE
    found = asked.backend.runs(_dag_id(asked), pattern=asked.caller.dags, limit=RUNS_PER_PAGE, offset=offset)
    return found[::-1]


def _instances(asked: Asked, run: RunInfo) -> list[TaskInstanceInfo]:
    return asked.backend.task_instances(
        run.dag_id, run.run_id, now=asked.store.clock(), limit=_MOST_INSTANCES
    )


def _rows(asked: Asked, runs: list[RunInfo], found: list[list[TaskInstanceInfo]]) -> tuple[Row, ...]:
    by_run = [_by_task(instances) for instances in found]
    return tuple(
        Row(
            task_id,
            tuple(
                _square(asked, run, task_id, tasks.get(task_id))
                for run, tasks in zip(runs, by_run, strict=True)
            ),
        )
        for task_id in _in_order(by_run)
    )


def _by_task(instances: Iterable[TaskInstanceInfo]) -> dict[str, list[TaskInstanceInfo]]:
    tasks: dict[str, list[TaskInstanceInfo]] = {}
    for info in instances:
        tasks.setdefault(info.scope.task_id, []).append(info)
    return tasks


def _in_order(by_run: list[dict[str, list[TaskInstanceInfo]]]) -> list[str]:
    """Return the tasks in the order in which they began in the newest run that has them: as people think of them."""
    began: dict[str, tuple[int, datetime, str]] = {}
    for age, tasks in enumerate(reversed(by_run)):
        for task_id, instances in tasks.items():
            began.setdefault(task_id, (age, min(info.created_at for info in instances), task_id))
    return sorted(began, key=began.__getitem__)


def _square(
    asked: Asked, run: RunInfo, task_id: str, instances: list[TaskInstanceInfo] | None
) -> Square | None:
    if not instances:
        return None
    return Square(
        asked.addresses.task(run.dag_id, run.run_id, task_id),
        worst({info.state for info in instances}),
        len(instances),
        sum(info.entries for info in instances),
    )


routes = [page(DAG, show, watch=watch), events(DAG, watch)]
