"""`keepstate attempts`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from keepstate.cli import options, output
from keepstate.cli.declared import Option
from keepstate.cli.scopes import choose_run, known
from keepstate.cli.stores import nothing, opened
from keepstate.clock import to_datetime
from keepstate.errors import InvalidInputError
from keepstate.scope import RunScope, TaskScope
from keepstate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.backends.requests import HeldScope
    from keepstate.scope import Attempt
    from keepstate.store import StateStore

_Task = Annotated[
    str | None,
    Option("--task-id", metavar="ID", help="Only this task.", default="the run, and each of its tasks"),
]
_Index = Annotated[
    int | None, Option("--map-index", metavar="N", help="The index of a mapped task's instance.")
]


def attempts_(
    dag_id: options.DagOfRun = None,
    run_id: options.Run = None,
    task_id: _Task = None,
    map_index: _Index = None,
    limit: options.Limit = 200,
    as_json: options.AsJson = False,
    url: options.Url = None,
) -> None:
    """List the attempts of a task, or of a run and all its tasks, newest first: state, process and reason.

    `lost?` means that the attempt is recorded as running, but its process is gone, or on another host sends no
    heartbeat. Under `keepstate run` you don't have to name anything.

    Examples:
      keepstate attempts --dag-id etl --run-id 2026-11-29
      keepstate attempts --dag-id etl --run-id 2026-11-29 --task-id load --json
    """
    from keepstate.cli import presence, shapes, tables, times

    settings = Settings.load()
    if task_id is None and map_index is not None:
        raise InvalidInputError("--task-id is missing: --map-index is the index of a task")
    if dag_id is None and run_id is None and task_id is None:
        task_id, map_index = settings.task_id, settings.map_index
    dag, run = choose_run(settings, dag_id, run_id)
    with opened(url, settings, there=True) as store:
        index = -1 if map_index is None else map_index
        scope = RunScope(dag, run) if task_id is None else TaskScope(dag, run, task_id, index)
        found = _first(store, _scopes(store, scope, limit), limit)
        now = to_datetime(store.clock())
        absent = not found and not known(store, scope)
        seen = [presence.sight(attempt, store, now) for _, attempt in found]
    if as_json:
        output.put_json([shapes.attempt(*one, sight) for one, sight in zip(found, seen, strict=True)])
    if absent:
        raise nothing(f"{'run' if task_id is None else 'task instance'} {scope}", url, settings)
    if as_json:
        return
    if not found:
        output.say(f"there are no attempts of {scope}")
        return
    tables.draw(
        (
            tables.Column("TASK"),
            tables.Column("TRY"),
            tables.Column("STATE"),
            tables.Column("BEGAN"),
            tables.Column("TOOK", rank=2),
            tables.Column("BEAT", rank=1),
            tables.Column("HOST", rank=4),
            tables.Column("PID", rank=3),
            tables.Column("REASON", cut=True),
        ),
        [
            (
                _task(scope),
                str(attempt.try_number),
                tables.state_cell(attempt.state, sight),
                times.ago(attempt.started_at, now),
                times.took(attempt.started_at, attempt.ended_at),
                times.ago(attempt.beat_at, now) if attempt.beat_at and sight else "",
                attempt.host or "-",
                "-" if attempt.pid is None else str(attempt.pid),
                attempt.reason or (sight.says if sight else ""),
            )
            for (scope, attempt), sight in zip(found, seen, strict=True)
        ],
    )


def _scopes(store: StateStore, scope: HeldScope, limit: int) -> Iterator[HeldScope]:
    yield scope
    if isinstance(scope, RunScope):
        for instance in store.task_instances(scope.dag_id, scope.run_id, limit=limit):
            yield instance.scope


def _first(store: StateStore, scopes: Iterator[HeldScope], limit: int) -> list[tuple[HeldScope, Attempt]]:
    found: list[tuple[HeldScope, Attempt]] = []
    for scope in scopes:
        found += [(scope, attempt) for attempt in store.backend.attempts(scope)]
        if len(found) >= limit:
            break
    return found[:limit]


def _task(scope: HeldScope) -> str:
    return "(the run)" if isinstance(scope, RunScope) else scope.name_in_run
