"""Where the store is called: on threads beside the event loop, as many as the database bears."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("keepstate.server")

_READERS = 8
_WRITERS = 16


class Work:
    """Runs calls of the store beside the event loop. What has begun is finished before `close` returns.

    SQLite has one writer at a time: its writes queue up here, in order, instead of waking each other up in the database.
    """

    def __init__(self, *, one_writer: bool) -> None:
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="keepstate-read")
        self._writers = (
            ThreadPoolExecutor(1, thread_name_prefix="keepstate-write")
            if one_writer
            else ThreadPoolExecutor(_WRITERS, thread_name_prefix="keepstate-write")
        )

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what ``call`` returns; it changes nothing."""
        return await self._run(self._readers, call, *args, **kwargs)

    async def write(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what ``call`` returns once its change is committed."""
        return await self._run(self._writers, call, *args, **kwargs)

    def write_later(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Have ``call`` made when the writers get to it: nobody waits for it, and its trouble is logged."""

        def quietly() -> None:
            try:
                call(*args, **kwargs)
            except Exception as exc:  # noqa: BLE001 - whatever it is, there is nobody to raise it to
                log.warning("a note could not be written: %s", exc)

        with suppress(RuntimeError):
            # at the end nothing more is taken
            self._writers.submit(quietly)

    async def _run(
        self, pool: ThreadPoolExecutor, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(pool, lambda: call(*args, **kwargs))

    def close(self) -> None:
        """Wait until everything that was begun is finished."""
        self._writers.shutdown(wait=True)
        self._readers.shutdown(wait=True)
