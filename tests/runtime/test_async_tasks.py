"""``@task`` on ``async def``: the same promises, without ever blocking the loop."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from keepstate import StateStore, dag_run, get_current_context, task, task_state_store
from keepstate.runtime.attempts import _heart

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def run(store: StateStore) -> Iterator[Any]:
    """A run that is open for the test."""
    with dag_run("nightly", "1", store=store) as run:
        yield run


def states(store: StateStore, task_id: str) -> list[str]:
    """Return the states of a task's attempts, oldest first."""
    return [attempt.state for attempt in store.attempts("nightly", "1", task_id)][::-1]


def test_retries_results_and_context(run: Any, store: StateStore) -> None:
    """A coroutine is retried, has its context, and its result is stored and found again."""
    calls = []

    @task(retries=2, retry_delay=0.01)
    async def work(x: str, task_state_store: Any = None, ti: Any = None) -> list[Any]:
        calls.append(ti.try_number)
        await asyncio.sleep(0)
        assert get_current_context()["ti"] is ti
        if await task_state_store.aincrement("count") < 3:
            raise RuntimeError
        return [x, ti.task_id]

    async def main() -> list[Any]:
        return await work("{{ run_id }}")

    assert asyncio.run(main()) == ["1", "work"]
    assert calls == [1, 2, 3]
    assert states(store, "work") == ["up_for_retry", "up_for_retry", "success"]
    with pytest.raises(RuntimeError, match="another"), dag_run("nightly", "2", store=store):
        raise RuntimeError("another run")
    again = asyncio.run(work.override(task_id="other")("{{ run_id }}"))
    assert again == ["1", "other"]


def test_many_at_once_keep_apart_and_do_not_block(run: Any, store: StateStore) -> None:
    """Gathered tasks are named in the order of their calls, see their own context, and wait side by side."""

    @task(retries=1, retry_delay=0.2)
    async def work(x: int, ti: Any = None) -> list[Any]:
        if ti.try_number == 1:
            raise RuntimeError
        await asyncio.sleep(0.2)
        await task_state_store().aset("x", x)
        return [x, get_current_context()["ti"].task_id]

    async def main() -> tuple[list[Any], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        ticking = asyncio.ensure_future(tick())
        results = await asyncio.gather(*(work(x) for x in range(5)))
        ticking.cancel()
        return results, ticks

    began = time.monotonic()
    results, ticks = asyncio.run(main())
    assert time.monotonic() - began < 5 * 0.4
    assert ticks > 10
    assert results == [[0, "work"], *([x, f"work__{x}"] for x in range(1, 5))]
    assert store.task("nightly", "1", "work__3").get("x") == 3


def test_a_cancelled_task_ends_its_attempt(run: Any, store: StateStore) -> None:
    """Cancelled while it works, an attempt ends as failed, its held-back checkpoint is written, and nothing is retried."""

    @task(retries=3, retry_delay=60)
    async def work(task_state_store: Any = None) -> None:
        async for _ in task_state_store.acheckpoint(range(100), every=100):
            await asyncio.sleep(0.01)

    async def main() -> None:
        working = asyncio.ensure_future(work())
        await asyncio.sleep(0.2)
        working.cancel()
        await working

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert states(store, "work") == ["up_for_retry"]
    assert store.task("nightly", "1", "work").get("position")["position"] > 0


def test_cancelled_while_it_begins(run: Any, store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled while the store is asked, the attempt does not stay behind as running: the next call can begin."""
    from keepstate.runtime import calls

    begin = calls.begin

    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.2)
        return begin(*args, **kwargs)

    monkeypatch.setattr(calls, "begin", slow)

    @task
    async def work() -> int:
        return 1

    async def main() -> None:
        working = asyncio.ensure_future(work())
        await asyncio.sleep(0.1)
        working.cancel()
        await asyncio.sleep(0)
        working.cancel()
        await working

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert "running" not in states(store, "work")
    assert [held.scope for held in _heart._due] == [run.scope]


def test_an_abandoned_coroutine_ends_its_attempt(run: Any, store: StateStore) -> None:
    """A coroutine that is closed in the middle ends its attempt; one that is never awaited begins none."""

    @task
    async def work() -> None:
        await asyncio.sleep(60)

    async def begin() -> None:
        while states(store, "work") != ["running"]:  # noqa: ASYNC110 - the store is what is watched
            await asyncio.sleep(0.01)

    loop = asyncio.new_event_loop()
    abandoned = work()
    working = loop.create_task(abandoned)
    loop.run_until_complete(begin())
    abandoned.close()
    assert states(store, "work") == ["failed"]
    work().close()
    assert states(store, "work__1") == []
    with pytest.raises(RuntimeError, match="reuse"):
        loop.run_until_complete(asyncio.wait_for(working, 0.1))
    loop.close()
