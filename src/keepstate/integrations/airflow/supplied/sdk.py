"""Stands in for ``airflow.sdk`` on Airflow 2.11: names of Airflow 3 for what 2.11 has under others.

What has no equal there is not supplied, assets among it, so that code which falls back on an ``ImportError`` still does.
"""

from __future__ import annotations

import importlib

_HOMES = {
    "airflow.decorators": ("setup", "task", "task_group", "teardown"),
    "airflow.hooks.base": ("BaseHook",),
    "airflow.io.path": ("ObjectStoragePath",),
    "airflow.models.baseoperator": ("BaseOperator", "chain", "chain_linear", "cross_downstream"),
    "airflow.models.baseoperatorlink": ("BaseOperatorLink",),
    "airflow.models.connection": ("Connection",),
    "airflow.models.dag": ("DAG", "dag"),
    "airflow.models.param": ("Param", "ParamsDict"),
    "airflow.models.variable": ("Variable",),
    "airflow.models.xcom_arg": ("XComArg",),
    "airflow.notifications.basenotifier": ("BaseNotifier",),
    "airflow.operators.python": ("get_current_context",),
    "airflow.sensors.base": ("BaseSensorOperator", "PokeReturnValue"),
    "airflow.utils.context": ("Context",),
    "airflow.utils.dag_parsing_context": ("get_parsing_context",),
    "airflow.utils.edgemodifier": ("EdgeModifier", "Label"),
    "airflow.utils.state": ("DagRunState", "TaskInstanceState"),
    "airflow.utils.task_group": ("TaskGroup",),
    "airflow.utils.template": ("literal",),
    "airflow.utils.trigger_rule": ("TriggerRule",),
    "airflow.utils.weight_rule": ("WeightRule",),
    "keepstate.jobs": ("ResumableJobMixin",),
    "keepstate.retention": ("NEVER_EXPIRE",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - the table is the list


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(
            f"module 'airflow.sdk', which keepstate supplies on Airflow 2.11, has no attribute {name!r}"
        )
    return getattr(importlib.import_module(home), name)
