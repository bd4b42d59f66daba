"""What a type checker sees of the runtime. This file is read by mypy and never executed."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from typing_extensions import assert_type

from keepstate import (
    Asset,
    BaseOperator,
    PythonOperator,
    TaskStateStore,
    dag_run,
    get_current_context,
    task,
    task_state_store,
)


@task
def bare(x: int, task_state_store: TaskStateStore | None = None) -> str:
    """A task."""
    return str(x)


@task(task_id="declared", retries=3, retry_delay=timedelta(minutes=1), outlets=[Asset("orders")])
def declared(*, url: str) -> list[int]:
    """A declared one."""
    return [len(url)]


@task(retry_exponential_backoff=True, max_retry_delay=60, store_result=False)
async def coroutine(x: int) -> float:
    """One that is awaited."""
    return float(x)


assert_type(bare(1), str)
assert_type(declared(url="u"), list[int])
assert_type(bare.override(task_id="other", retries=1)(2), str)
assert_type(bare.task_id, str)

# what is wrong is told before it runs
bare("x")  # type: ignore[arg-type]
bare.override(retrys=1)  # type: ignore[call-arg]
declared("u")  # type: ignore[call-arg]
task(retries="3")  # type: ignore[call-overload]


async def awaited() -> None:
    """Await one."""
    await assert_type(coroutine(1), Coroutine[Any, Any, float])
    assert_type(await coroutine(1), float)


class Operator(BaseOperator):
    template_fields = ("word",)

    def __init__(self, *, word: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.word = word

    def execute(self, context: dict[str, Any]) -> str:
        self.log.info("%s", context["ti"])
        return self.word


with dag_run("nightly", run_id="2026-11-29", take_over=True) as run:
    assert_type(run.run_id, str)
    PythonOperator(task_id="t", python_callable=print, op_args=["x"], retries=1)
    Operator(task_id="t", word="w").run()

assert_type(task_state_store(), TaskStateStore)
assert_type(get_current_context(), dict[str, Any])
