"""The context of a running task: what Airflow's tasks find in theirs, as far as it means something here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from keepstate.errors import ConfigurationError
from keepstate.runtime.current import Current
from keepstate.settings import Settings

if TYPE_CHECKING:
    from keepstate.accessors import TaskStateStore
    from keepstate.runtime.assets import AssetStates
    from keepstate.runtime.attempts import HeldAttempt
    from keepstate.runtime.nested import Inner
    from keepstate.runtime.runs import Run

Context = dict[str, Any]
"""What tasks are given: a plain dict."""

NAMES = frozenset(
    {
        "asset_state_store",
        "context",
        "dag_run",
        "ds",
        "ds_nodash",
        "inlets",
        "logical_date",
        "outlets",
        "run_id",
        "task",
        "task_instance",
        "task_state_store",
        "ti",
        "try_number",
        "ts",
        "ts_nodash",
    }
)
"""What a task's function may ask for by the name of a parameter: the names in the context, and ``context`` itself."""

running: Current[Context] = Current("task")
"""The context of the task that code is part of."""


@dataclass(frozen=True)
class TaskInstance:
    """The attempt of a task instance that is running: ``ti`` in the context."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    max_tries: int
    id: str
    held: HeldAttempt
    inner: Inner = field(repr=False, compare=False)

    @property
    def attempt_id(self) -> str:
        """The unique, time-ordered id of this try."""
        return self.id

    @property
    def overtaken(self) -> bool:
        """Whether a later attempt is known to have begun: then this one's writes are refused, and it may as well stop."""
        return self.held.overtaken

    def __str__(self) -> str:
        return f"{self.held.scope}, attempt {self.try_number}"


def make_context(
    run: Run,
    ti: TaskInstance,
    store: TaskStateStore,
    assets: AssetStates,
    task: object,
    inlets: Any,
    outlets: Any,
) -> Context:
    """Return the context of one attempt."""
    date = run.logical_date
    return {
        "asset_state_store": assets,
        "dag_run": run,
        "ds": f"{date:%Y-%m-%d}",
        "ds_nodash": f"{date:%Y%m%d}",
        "inlets": inlets,
        "logical_date": date,
        "outlets": outlets,
        "run_id": run.run_id,
        "task": task,
        "task_instance": ti,
        "task_state_store": store,
        "ti": ti,
        "try_number": ti.try_number,
        "ts": date.isoformat(),
        "ts_nodash": f"{date:%Y%m%dT%H%M%S}",
    }


def get_current_context() -> Context:
    """Return the context of the task that this code is part of. Raises ``ConfigurationError`` outside any task."""
    context = running.find()
    if context is None:
        raise ConfigurationError(
            "no task is running here: get_current_context() is for code that a @task function or an operator's execute() "
            "calls"
        )
    return context


def task_state_store() -> TaskStateStore:
    """Return the state of the task that this code is part of.

    Inside a ``@task`` or an operator, that is the running attempt's. Outside any, in a program that `keepstate run` started,
    it is the supervised task instance's, for the attempt that was started. Elsewhere ``ConfigurationError`` tells what to do.
    """
    from keepstate.runtime.runs import supervised_store

    context = running.find()
    if context is not None:
        store: TaskStateStore = context["task_state_store"]
        return store
    supervised = supervised_store(Settings.load())
    if supervised is None:
        raise ConfigurationError(
            "there is no task here whose state could be meant: call task_state_store() inside a @task, start the program "
            "with `keepstate run`, or name the task instance: keepstate.connect().task(dag_id, run_id, task_id)"
        )
    return supervised
