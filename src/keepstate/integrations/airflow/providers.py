"""Operators of providers that became durable with Airflow 3.3, and would break a DAG that works below it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType


def extend_spark_submit(module: ModuleType) -> None:
    """Let Spark on YARN go on without the store where it can't be durable.

    There the provider refuses a durable operator whose cluster can't be asked for the application's status. On 3.3 its
    author chose that; below, durability comes by itself, and nobody has chosen anything.
    """
    kind = module.__dict__["SparkSubmitOperator"]
    # only known once the connection has been read, just before the provider decides
    get_hook = kind._get_hook  # noqa: SLF001

    @functools.wraps(get_hook)
    def with_care(self: Any) -> Any:
        hook = get_hook(self)
        on_yarn = getattr(hook, "_is_yarn_cluster_mode", False)
        if getattr(self, "durable", False) and on_yarn and not getattr(hook, "_yarn_track_via_rm_api", True):
            self.durable = False
            self.log.warning(
                "This task does not reconnect to its Spark application after a crash, as YARN can't be asked for it: set "
                "yarn_track_via_rm_api=True for that, or durable=False to have this said no more"
            )
        return hook

    kind._get_hook = with_care  # noqa: SLF001


def extend_glue(module: ModuleType) -> None:
    """Leave Glue's operator as it was unless its author asks for durability.

    Below 3.3 the provider has a way of its own to be durable, which adds an argument to those of the script: one that reads
    them strictly would fail.
    """
    kind = module.__dict__["GlueJobOperator"]
    submit_job = getattr(kind, "submit_job", None)
    if submit_job is None:
        # a provider of before it had jobs that are resumed
        return
    kind.durable = False

    @functools.wraps(submit_job)
    def with_care(self: Any, context: Any) -> Any:
        if not self.durable:
            self.log.info(
                "This task does not reconnect to its Glue job after a crash, unless it is given durable=True, which below "
                "Airflow 3.3 adds an argument to its script's"
            )
        return submit_job(self, context)

    kind.submit_job = with_care
