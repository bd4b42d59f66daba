"""`keepstate runs`, `runs show` and `runs delete`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

from keepstate.cli import options, output
from keepstate.cli.declared import Group, Option
from keepstate.cli.exit_codes import Stop
from keepstate.cli.scopes import choose_run, known
from keepstate.cli.stores import nothing, opened
from keepstate.clock import to_datetime
from keepstate.scope import RunScope
from keepstate.settings import Settings
from keepstate.values import decode

if TYPE_CHECKING:
    from datetime import datetime

    from rich.text import Text

    from keepstate.backends.requests import HeldScope
    from keepstate.cli.presence import Sight
    from keepstate.scope import RunInfo, TaskInstanceInfo
    from keepstate.store import StateStore

# so many entries of a task instance are looked through for checkpoints
_LOOKED_THROUGH = 50
# and so many task instances of a run for one whose process is gone
_TASKS_LOOKED_AT = 200

_Dag = Annotated[str | None, Option("--dag-id", metavar="ID", help="Only runs of this dag.")]


def list_runs(
    dag_id: _Dag = None,
    limit: options.Limit = 50,
    as_json: options.AsJson = False,
    url: options.Url = None,
) -> None:
    """List runs, the latest first; `show` and `delete` take one run.

    A run that neither `keepstate run` nor `dag_run` started has no number of starts, and its state is that of its tasks:
    the most serious one. `lost?` means that it is recorded as running, but its process is gone, or on another host sends
    no heartbeat.

    Examples:
      keepstate runs
      keepstate runs --dag-id etl --json
      keepstate runs show --dag-id etl --run-id 2026-11-29
    """
    from keepstate.cli import shapes, tables, times

    settings = Settings.load()
    with opened(url, settings, there=True) as store:
        now = to_datetime(store.clock())
        runs = store.runs(dag_id, limit=limit)
        found = [(run, _sight_of(store, RunScope(run.dag_id, run.run_id), run.state, now)) for run in runs]
        cells = [] if as_json else [_state_cell(store, run, seen, now) for run, seen in found]
    if as_json:
        output.put_json([shapes.run(run, seen) for run, seen in found])
    elif not found:
        output.say("there are no runs" + (f" of {dag_id}" if dag_id else " yet"))
    else:
        tables.draw(
            (
                tables.Column("DAG"),
                tables.Column("RUN"),
                tables.Column("STATE"),
                tables.Column("STARTS", rank=1),
                tables.Column("BEGAN", rank=3),
                tables.Column("UPDATED", rank=2),
            ),
            [
                (
                    run.dag_id,
                    run.run_id,
                    state,
                    _number(run.try_number),
                    times.ago(run.created_at, now),
                    times.ago(run.updated_at, now),
                )
                for run, state in zip(runs, cells, strict=True)
            ],
        )


def show(
    dag_id: options.DagOfRun = None,
    run_id: options.Run = None,
    limit: options.Limit = 200,
    as_json: options.AsJson = False,
    url: options.Url = None,
) -> None:
    """Show the task instances of a run: state, try, entries, and how far their checkpoints have come.

    Under `keepstate run` you don't have to name the run.

    Examples:
      keepstate runs show --dag-id etl --run-id 2026-11-29
      keepstate runs show --dag-id etl --run-id 2026-11-29 --json
    """
    from keepstate.cli import shapes, tables, times

    settings = Settings.load()
    dag, run = choose_run(settings, dag_id, run_id)
    with opened(url, settings, there=True) as store:
        now = to_datetime(store.clock())
        found = [
            (ti, _checkpoints(store, ti), _sight_of(store, ti.scope, ti.state, now))
            for ti in store.task_instances(dag, run, limit=limit)
        ]
        absent = not found and not known(store, RunScope(dag, run))
    if as_json:
        output.put_json([shapes.task_instance(ti, checkpoints, seen) for ti, checkpoints, seen in found])
    if absent:
        raise nothing(f"run {dag} / {run}", url, settings)
    if as_json:
        return
    if not found:
        output.say(f"there are no task instances of {dag} / {run}")
    else:
        tables.draw(
            (
                tables.Column("TASK"),
                tables.Column("INDEX", rank=1),
                tables.Column("STATE"),
                tables.Column("TRY"),
                tables.Column("ENTRIES", rank=3),
                tables.Column("UPDATED", rank=2),
                tables.Column("PROGRESS", cut=True),
            ),
            [
                (
                    ti.scope.task_id,
                    "" if ti.scope.map_index < 0 else str(ti.scope.map_index),
                    tables.state_cell(ti.state, seen),
                    _number(ti.try_number),
                    str(ti.entries),
                    times.ago(ti.updated_at, now),
                    tables.progress_cell(checkpoints),
                )
                for ti, checkpoints, seen in found
            ],
        )


def delete(
    dag_id: options.DagOfRun = None,
    run_id: options.Run = None,
    yes: options.Yes = False,
    url: options.Url = None,
) -> None:
    """Delete a run with its entries, attempts and history.

    Writes by its attempts that still run are refused from then on, and a run created again under its id starts empty.
    This can't be undone, so it asks for confirmation; without a terminal, it needs --yes.

    Examples:
      keepstate runs delete --dag-id etl --run-id 2026-11-29
      keepstate runs delete --dag-id etl --run-id 2026-11-29 --yes
    """
    settings = Settings.load()
    dag, run = choose_run(settings, dag_id, run_id)
    if not yes:
        output.ask(f"Erase everything of {dag} / {run}, history included?", may_go_unasked=False)
    with opened(url, settings, there=True) as store:
        # one without tasks is a run, too
        was_there = known(store, RunScope(dag, run))
        erased = store.delete_run(dag, run)
    if not (was_there or erased):
        raise Stop(f"there is no run {dag} / {run}")


def _state_cell(store: StateStore, run: RunInfo, seen: Sight | None, now: datetime) -> Text:
    """Return the state of a run; of one that nobody started as a whole, the most serious of its tasks' states."""
    from keepstate.cli.tables import state_cell

    if run.state is not None:
        return state_cell(run.state, seen)
    # a list does not tell what its tasks came to
    found = store.backend.run(RunScope(run.dag_id, run.run_id))
    state = None if found is None else found.tasks_state
    if state != "running":
        return state_cell(state)
    tasks = store.task_instances(run.dag_id, run.run_id, limit=_TASKS_LOOKED_AT)
    sights = (_sight_of(store, ti.scope, ti.state, now) for ti in tasks if ti.state == state)
    return state_cell(state, next((sight for sight in sights if sight is not None and sight.lost), None))


def _checkpoints(store: StateStore, ti: TaskInstanceInfo) -> dict[str, Any]:
    from keepstate.cli.tables import is_checkpoint

    if not ti.entries:
        return {}
    entries = store.backend.read(ti.scope, None, now=store.clock(), limit=_LOOKED_THROUGH).entries
    found = {}
    for entry in entries:
        # one that is damaged is no checkpoint
        with contextlib.suppress(ValueError):
            if is_checkpoint(value := decode(entry.text)):
                found[entry.key] = value
    return found


def _sight_of(store: StateStore, scope: HeldScope, state: str | None, now: datetime) -> Sight | None:
    if state != "running":
        return None
    from keepstate.cli import presence

    return presence.sight_of(store, scope, now)


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


runs_ = Group(list_runs, {"show": show, "delete": delete}, callable_alone=True)
