"""The awaitable twin of a method: the same code on a bounded pool of threads, so that a loop never waits for a disk."""

from __future__ import annotations

import contextvars
import functools
import os
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import ThreadPoolExecutor

Self_ = TypeVar("Self_")
P = ParamSpec("P")
R = TypeVar("R")

_MOST_THREADS = 8


class _Pool:
    """Threads shared by all twins of a process, started when the first twin is awaited."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    def threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="keepstate")
        return self._threads

    def forget(self) -> None:
        # a forked child has none of its parent's threads
        self._threads = None


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forget)


async def in_thread(function: Callable[[], R]) -> R:
    """Await ``function()`` on the pool. Cancelling the await does not stop what has begun."""
    import asyncio

    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_pool.threads(), context.run, function)


async def in_thread_to_the_end(function: Callable[[], R]) -> R:
    """Await ``function()`` on the pool, and when cancelled, wait for it all the same: for what must not be lost.

    A loop that is ending cancels what is awaited, and what waits for a thread then would never begin.
    """
    import asyncio

    done = _pool.threads().submit(contextvars.copy_context().run, function)
    try:
        return await asyncio.shield(asyncio.wrap_future(done))
    except asyncio.CancelledError:
        done.result()
        raise


def twin(
    method: Callable[Concatenate[Self_, P], R],
) -> Callable[Concatenate[Self_, P], Coroutine[Any, Any, R]]:
    """Return the awaitable twin of a method, with the same parameters and result."""

    @functools.wraps(method)
    async def awaitable(self: Self_, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await in_thread(lambda: method(self, *args, **kwargs))

    awaitable.__name__ = f"a{method.__name__}"
    awaitable.__qualname__ = method.__qualname__.replace(method.__name__, awaitable.__name__)
    awaitable.__doc__ = (
        f"Await `{method.__name__}` without blocking the event loop; cancelled, it may still have applied."
    )
    return awaitable
