"""Resuming iteration: yield the items that are not done yet, and remember how far the body has come."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar, cast

from keepstate.allowance import LAST_WORDS, Allowance
from keepstate.awaitable import in_thread, in_thread_to_the_end
from keepstate.clock import SECOND, Clock
from keepstate.errors import (
    CheckpointMismatchError,
    InvalidInputError,
    InvalidTypeError,
    KeepstateError,
    StaleAttemptError,
)

T = TypeVar("T")

Source = Iterable[T] | Callable[[int], Iterable[T]]
"""An iterable, whose finished items are skipped by consuming them; or a callable that begins at a position."""

AsyncSource = Source[T] | AsyncIterable[T] | Callable[[int], AsyncIterable[T]]
"""What ``async for`` takes besides."""

_END = object()
_canonical = json.JSONEncoder(sort_keys=True, allow_nan=False, check_circular=False, separators=(",", ":"))


class Keeper(Protocol):
    """What a checkpoint asks of the accessor that made it."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return a stored value."""
        ...

    def set(self, key: str, value: Any) -> None:
        """Store a value."""
        ...


class Checkpoint(Generic[T]):
    """The place in a source up to which everything is done.

    Iterating yields what is left. `flush` writes what a throttle still holds back; the loop's end does so too, and the
    end of the attempt, so that nothing is lost when a generator outlives its loop.
    """

    def __init__(
        self,
        keeper: Keeper,
        source: AsyncSource[T],
        key: str,
        *,
        clock: Clock,
        every: int = 1,
        min_interval: float | timedelta | None = None,
        total: int | None = None,
    ) -> None:
        if type(every) is not int or every < 1:
            raise InvalidInputError(f"every must be a whole number of items from 1 on, not {every!r}")
        self._keeper = keeper
        self._source = source
        self._key = key
        self._clock = clock
        self._every = every
        self._pause = _micros(min_interval)
        self._total = total if total is not None else _length(source)
        self._position = 0
        self._fingerprint: str | None = None
        self._written = 0
        self._finished = False
        self._finish_written = False
        self._last_write = clock()
        self._begun = False
        self._process = os.getpid()

    def __iter__(self) -> Iterator[T]:
        """Yield the items that are not done; an item is done when the body asks for the next."""
        self._begin()
        try:
            items = iter(cast("Iterable[T]", self._open()))
            if not callable(self._source):
                self._check_skipped(*_last(items, self._position))
            for item in items:
                fingerprint = _fingerprint_of(item)
                yield item
                self._advance(fingerprint)
                self._write_if_due()
            self._finished = True
        except BaseException:
            self._flush_unheard()
            raise
        self.flush()

    async def __aiter__(self) -> AsyncIterator[T]:
        """Like iterating, for ``async for`` over a plain or an asynchronous source; the store never blocks the loop."""
        self._begin()
        try:
            pull = _puller(await in_thread(self._open))
            if not callable(self._source):
                skipped, item = 0, None
                while skipped < self._position and (item := await pull()) is not _END:
                    skipped += 1
                self._check_skipped(skipped, item)
            while (item := await pull()) is not _END:
                fingerprint = _fingerprint_of(item)
                yield cast("T", item)
                self._advance(fingerprint)
                await in_thread(self._write_if_due)
            self._finished = True
        except BaseException:
            await in_thread_to_the_end(self._flush_unheard)
            raise
        await in_thread(self.flush)

    def _begin(self) -> None:
        if self._begun:
            raise InvalidInputError(
                f"checkpoint {self._key!r} is iterated twice, and two loops have no common position; share the one iterator, "
                "or give each loop a checkpoint with a key of its own"
            )
        self._begun = True

    def flush(self) -> None:
        """Write the position if it is not written yet."""
        if self._position == self._written and self._finished == self._finish_written:
            return
        if os.getpid() != self._process:
            # a forked child, that did nothing here: its parent has gone on since
            return
        try:
            self._write()
        except StaleAttemptError:
            # the position is a later attempt's to write now; a generator that ends after this has nothing to complain of
            self._written, self._finish_written = self._position, self._finished
            raise

    def _flush_unheard(self) -> None:
        """Write the position where a loop was left, and let what it was left by go out, and nothing else.

        What could not be written is tried again, and told, when the accessor is flushed at the end of the attempt.
        """
        with contextlib.suppress(KeepstateError), Allowance(LAST_WORDS):
            self.flush()

    def _open(self) -> Iterable[T] | AsyncIterable[T]:
        """Read the stored position and return the source, from there on if it can seek."""
        stored = self._keeper.get(self._key)
        if stored is not None:
            self._position = self._written = self._read_position(stored)
            self._fingerprint = stored.get("fingerprint")
            self._finished = self._finish_written = bool(stored.get("done"))
            if self._total is None:
                self._total = stored.get("total")
        return self._source(self._position) if callable(self._source) else self._source

    def _read_position(self, stored: Any) -> int:
        position = stored.get("position") if type(stored) is dict else None
        if type(position) is not int or position < 0:
            raise CheckpointMismatchError(
                f"key {self._key!r} holds no checkpoint but {stored!r:.80}; give checkpoint() another key",
                key=self._key,
                position=0,
            )
        return position

    def _check_skipped(self, skipped: int, item: object) -> None:
        """Make sure that the last item skipped is the one that was done last."""
        if skipped < self._position:
            raise self._mismatch(f"the source ends after {skipped} items")
        if self._position and self._fingerprint is not None and _fingerprint_of(item) != self._fingerprint:
            raise self._mismatch(f"item {self._position} is now {item!r:.80}")

    def _mismatch(self, found: str) -> CheckpointMismatchError:
        return CheckpointMismatchError(
            f"checkpoint {self._key!r} says that {self._position} items are done, but {found}: the source has changed "
            f"since; give back the items in the same order, or delete the key to begin anew",
            key=self._key,
            position=self._position,
        )

    def _advance(self, fingerprint: str | None) -> None:
        self._position += 1
        self._process = os.getpid()
        self._fingerprint = fingerprint
        self._finished = False

    def _write_if_due(self) -> None:
        if self._position - self._written < self._every:
            return
        # a clock that was set back says nothing about how long ago the last write was
        if 0 <= self._clock() - self._last_write < self._pause:
            return
        self._write()

    def _write(self) -> None:
        position, finished = self._position, self._finished
        value: dict[str, Any] = {"position": position, "total": self._total, "done": finished}
        if self._fingerprint is not None:
            value["fingerprint"] = self._fingerprint
        self._keeper.set(self._key, value)
        self._written, self._finish_written = position, finished
        self._last_write = self._clock()


def _last(items: Iterator[T], count: int) -> tuple[int, T | None]:
    """Consume ``count`` items; return how many there were, and the last of them."""
    newest = deque(enumerate(itertools.islice(items, count), start=1), maxlen=1)
    return newest[0] if newest else (0, None)


def _puller(source: Iterable[T] | AsyncIterable[T]) -> Callable[[], Awaitable[object]]:
    """Return a function that awaits the next item of either kind of source, or ``_END``."""
    if isinstance(source, AsyncIterable):
        iterator = source.__aiter__()

        async def pull() -> object:
            try:
                return await iterator.__anext__()
            except StopAsyncIteration:
                return _END

        return pull
    items = iter(source)
    return lambda: in_thread(lambda: next(items, _END))


def _micros(interval: float | timedelta | None) -> int:
    if interval is None:
        return 0
    if isinstance(interval, timedelta):
        interval = interval.total_seconds()
    if isinstance(interval, bool) or not isinstance(interval, (int, float)):
        raise InvalidTypeError(
            f"min_interval must be seconds or a timedelta, not {type(interval).__name__}", path="min_interval"
        )
    if not 0 <= interval < 10**9:
        raise InvalidInputError(f"min_interval must be zero seconds or more, not {interval!r}")
    return int(interval * SECOND)


def _length(source: object) -> int | None:
    if callable(source):
        return None
    try:
        return len(source)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        return None


def _fingerprint_of(item: object) -> str | None:
    """Return a short hash of an item, taken before the body may change it; ``None`` where it is not JSON."""
    try:
        text = _canonical.encode(item)
    except (TypeError, ValueError, RecursionError):
        return None
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
