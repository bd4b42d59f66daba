"""What keepstate does when Airflow says that a task has succeeded, or that a component starts."""

from __future__ import annotations

import logging
from typing import Any

from airflow.listeners import hookimpl
from sqlalchemy.orm import object_session

from keepstate.integrations.airflow import committing, configuration, context, metadata, upkeep
from keepstate.integrations.airflow.components import if_scheduler
from keepstate.integrations.airflow.hooks import is_airflow_2

log = logging.getLogger("keepstate")


@hookimpl  # type: ignore[untyped-decorator]
def on_task_instance_success(task_instance: Any) -> None:
    """Clear a task instance's state where ``clear_on_success`` asks for it.

    Airflow calls this in the task's process, after its callbacks, and in the API server when a person marks success.
    """
    try:
        if not configuration.load().clear_on_success:
            return
        own = context.stores_of_process(task_instance)
        if own is not None:
            own[context.NAMES[0]].clear()
        else:
            _clear_for_a_person(task_instance)
    except Exception as exc:  # noqa: BLE001 - the success stands, and what is left over expires
        log.warning("The state of %s was not cleared on success: %s", task_instance, exc)


def _clear_for_a_person(ti: Any) -> None:
    store = metadata.store()
    task = store.task(ti.dag_id, ti.run_id, ti.task_id, map_index=ti.map_index)
    committing.now_or_after(object_session(ti), task.clear)


@hookimpl  # type: ignore[untyped-decorator]
def on_starting(component: Any) -> None:
    """Begin to clean up now and then, where Airflow 2's scheduler starts; from 3.0 on, the API server does."""
    if is_airflow_2():
        if_scheduler(component, upkeep.for_ever)
