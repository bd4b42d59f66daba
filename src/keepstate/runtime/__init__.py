"""The local runtime: tasks, operators, runs and the supervisor, for jobs that no engine runs.

This module is a list. Names load when they are first used: the supervisor must start in no time, and needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keepstate.runtime.context import get_current_context, task_state_store
    from keepstate.runtime.operators import BaseOperator, PythonOperator
    from keepstate.runtime.runs import dag_run
    from keepstate.runtime.tasks import task

_HOMES = {
    "BaseOperator": "keepstate.runtime.operators",
    "PythonOperator": "keepstate.runtime.operators",
    "dag_run": "keepstate.runtime.runs",
    "get_current_context": "keepstate.runtime.context",
    "task": "keepstate.runtime.tasks",
    "task_state_store": "keepstate.runtime.context",
}

__all__ = [
    "BaseOperator",
    "PythonOperator",
    "dag_run",
    "get_current_context",
    "task",
    "task_state_store",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'keepstate.runtime' has no attribute {name!r}")
    __import__(home)
    import sys

    value = getattr(sys.modules[home], name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
