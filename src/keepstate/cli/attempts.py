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
    from keepstate.scope import Attempt, TaskInstanceInfo
    from keepstate.store import StateStore

_AT_ONCE = 1000

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
        found = _newest(store, scope, limit)
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


def _newest(store: StateStore, scope: HeldScope, limit: int) -> list[tuple[HeldScope, Attempt]]:
    """Return the attempts of a scope, and of all tasks where it is a run, that began last; the newest first."""
    found = [(scope, attempt) for attempt in store.backend.attempts(scope)][:limit]
    if isinstance(scope, TaskScope):
        return found
    begun = [one for one in _instances(store, scope) if one.try_number is not None]
    begun.sort(key=lambda one: one.updated_at, reverse=True)
    for instance in begun:
        # nothing of it began later than it was last changed, nor of those that follow
        if len(found) == limit and found[-1][1].started_at >= instance.updated_at:
            break
        found += [(instance.scope, attempt) for attempt in store.backend.attempts(instance.scope)]
        found.sort(key=lambda one: one[1].started_at, reverse=True)
        del found[limit:]
    return found


def _instances(store: StateStore, run: RunScope) -> Iterator[TaskInstanceInfo]:
    offset = 0
    while page := store.task_instances(run.dag_id, run.run_id, limit=_AT_ONCE, offset=offset):
        yield from page
        offset += len(page)


def _task(scope: HeldScope) -> str:
    return "(the run)" if isinstance(scope, RunScope) else scope.name_in_run
