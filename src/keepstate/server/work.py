"""Where the store is called: on threads beside the event loop, as many as the database bears.

Each call has a time within which it begins, counted from when it was asked for, so that a store that is away costs everybody
the same few seconds however many wait in line. What has begun is never dropped: its commit may come.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from keepstate.allowance import counting_from
from keepstate.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("keepstate.server")

PATIENCE = 5.0
"""The longest that a call waits for the store, in seconds. Clients try again by themselves, and hold no place meanwhile."""
STUCK_AFTER = 5.0
"""Seconds beyond the patience after which a call that has begun is answered for, while its thread goes on."""

_READERS = 8
_WRITERS = 16
# a server has no more connections at once, and one request after the other on each
_LONGEST_LINE = 1000
_MOST_NOTES = 100

client_gone: ContextVar[Callable[[], bool] | None] = ContextVar("client_gone", default=None)
"""Says, from any thread, whether there is nobody left who waits for the answer."""


class Work:
    """Runs calls of the store beside the event loop.

    A call that does not begin within ``patience`` seconds, or whose client has gone by then, is not made at all, and raises
    ``BackendUnavailableError``. One that has begun and is stuck raises it too, ``STUCK_AFTER`` seconds later: whether it
    takes effect is open then, as where a connection breaks.

    SQLite has one writer at a time: its writes queue up here, in order, instead of waking each other up in the database.
    """

    def __init__(
        self, *, one_writer: bool, patience: float = PATIENCE, stuck_after: float = STUCK_AFTER
    ) -> None:
        self._patience = patience
        self._stuck_after = stuck_after
        self._readers = _Lane("keepstate-read", _READERS)
        self._writers = _Lane("keepstate-write", 1 if one_writer else _WRITERS)

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what ``call`` returns; it changes nothing."""
        return await self._run(self._readers, partial(call, *args, **kwargs))

    async def write(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what ``call`` returns once its change is committed."""
        return await self._run(self._writers, partial(call, *args, **kwargs))

    def write_later(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Have ``call`` made when the writers get to it: nobody waits for it, and its trouble is logged.

        While they are far behind, it is not made.
        """
        if self._writers.length >= _MOST_NOTES:
            return
        latest = time.monotonic() + self._patience

        def quietly() -> None:
            if time.monotonic() > latest:
                return
            try:
                call(*args, **kwargs)
            except Exception as exc:  # noqa: BLE001 - whatever it is, there is nobody to raise it to
                log.warning("a note could not be written: %s", exc)

        with suppress(BackendUnavailableError):
            # at the end nothing more is taken
            self._writers.put(_Job(quietly))

    async def _run(self, lane: _Lane, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = _Job(call, loop=loop, future=future, gone=client_gone.get())
        lane.put(job)
        job.timer = loop.call_later(self._patience, self._late, job, future)
        try:
            return await future
        except asyncio.CancelledError:
            job.take()
            raise
        finally:
            job.timer.cancel()

    def _late(self, job: _Job, future: asyncio.Future[Any]) -> None:
        """Answer for a call that has not begun; give one that has begun its time."""
        if job.take():
            _settle(future, None, _not_begun(f"it was busy for {self._patience:g} s"))
            return
        seconds = self._patience + self._stuck_after
        error = BackendUnavailableError(
            f"the store has not answered within {seconds:g} s; whether a change was made can't be told yet"
        )
        loop = asyncio.get_running_loop()
        job.timer = loop.call_later(self._stuck_after, _settle, future, None, error)

    def close(self) -> None:
        """Wait until everything that was begun is finished, but not for ever where the store does not answer."""
        latest = time.monotonic() + self._patience + self._stuck_after
        for lane in (self._writers, self._readers):
            lane.end()
        for lane in (self._writers, self._readers):
            if not lane.join(latest):
                log.warning("the store does not answer, and is not waited for any longer")


def _not_begun(why: str) -> BackendUnavailableError:
    return BackendUnavailableError(f"the store was not asked, as {why}; nothing was changed, try again")


class _Job:
    """A call in line: a thread takes it, or whoever asked gives it up, whichever comes first."""

    __slots__ = ("_call", "_future", "_gone", "_loop", "_taken", "asked_at", "timer")

    timer: asyncio.TimerHandle

    def __init__(
        self,
        call: Callable[[], Any],
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        future: asyncio.Future[Any] | None = None,
        gone: Callable[[], bool] | None = None,
    ) -> None:
        self.asked_at = time.monotonic()
        self._call = call
        self._loop = loop
        self._future = future
        self._gone = gone
        self._taken = threading.Lock()

    def take(self) -> bool:
        """Make sure that nobody else makes the call from now on; false where somebody has it already."""
        return self._taken.acquire(blocking=False)

    def make(self) -> None:
        """Make the call, unless it was given up."""
        if not self.take():
            return
        if self._gone is not None and self._gone():
            self._deliver(None, _not_begun("nobody waits for the answer any more"))
            return
        with counting_from(self.asked_at):
            result, error = _outcome(self._call)
        self._deliver(result, error)

    def _deliver(self, result: object, error: BaseException | None) -> None:
        if self._loop is not None and self._future is not None:
            # a loop that is closed has nobody left who waits
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_settle, self._future, result, error)


# Apart from the job, which an error's traceback would keep alive in a circle.
def _outcome(call: Callable[[], object]) -> tuple[object, BaseException | None]:
    try:
        return call(), None
    except BaseException as exc:  # noqa: BLE001 - it is raised where the answer is awaited
        return None, exc


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        # it was given up, or answered for
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class _Lane:
    """Jobs in line, and the threads that see to them: started as needed, ``most`` at most.

    They don't keep the process from ending, as an executor's would where a database never answers.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0
        self._ended = False

    @property
    def length(self) -> int:
        """How many wait; those that were given up count until a thread comes across them."""
        return self._jobs.qsize()

    def put(self, job: _Job) -> None:
        """Let a job join the line. Raises ``BackendUnavailableError`` where it is too long, or nothing more is taken."""
        if self._jobs.qsize() >= _LONGEST_LINE:
            raise _not_begun("too many wait for it already")
        with self._lock:
            if self._ended:
                raise _not_begun("the server is ending")
            self._unfinished += 1
            if self._unfinished > len(self._threads) < self._most:
                name = f"{self._name}_{len(self._threads)}"
                thread = threading.Thread(target=self._serve, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            self._jobs.put(job)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.make()
            del job
            with self._lock:
                self._unfinished -= 1

    def end(self) -> None:
        """Take nothing more."""
        with self._lock:
            self._ended = True
            for _ in self._threads:
                self._jobs.put(None)

    def join(self, latest: float) -> bool:
        """Wait until all is done, until ``latest`` at most; return whether it is."""
        for thread in self._threads:
            thread.join(max(latest - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)
