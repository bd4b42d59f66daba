"""Coroutines as tasks, which Airflow has from 3.2 on: without them, the awaitable twins would have nobody to await them."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType


def extend_python_operator(module: ModuleType) -> None:
    """Let ``@task`` and ``PythonOperator`` take a coroutine function, which earlier versions refuse or never await.

    Their ``execute`` stays as it is, as Airflow keeps watch over who calls that.
    """
    kind = module.__dict__["PythonOperator"]
    execute_callable = kind.execute_callable

    @functools.wraps(execute_callable)
    def awaiting(self: Any) -> Any:
        result = execute_callable(self)
        return asyncio.run(result) if inspect.iscoroutine(result) else result

    kind.execute_callable = awaiting
    if hasattr(kind, "is_async"):
        # newer providers ask, and refuse
        kind.is_async = False
