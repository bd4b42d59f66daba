"""What the accessors of task instances and of assets share."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from keepstate.allowance import try_all
from keepstate.awaitable import twin
from keepstate.backends.requests import Batch, Behalf, Change, Clear, Delete, EntryScope, Fence, Put
from keepstate.checkpoints import AsyncSource, Checkpoint
from keepstate.clock import optional_datetime, to_datetime
from keepstate.errors import (
    InvalidInputError,
    InvalidTypeError,
    InvalidValueError,
    StoreCorruptedError,
    VersionConflictError,
    VersionNotFoundError,
)
from keepstate.race import Race
from keepstate.retention import expiry
from keepstate.scope import Entry, HistoryEntry, Writer, with_ids_of
from keepstate.values import JsonInput, as_text, check_key, decode, encode, is_damaged, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from keepstate.backends.answers import Applied, Reading, StoredEntry, StoredVersion
    from keepstate.store import StateStore

log = logging.getLogger("keepstate")

T = TypeVar("T")


class Accessor:
    """The verbs that tasks and assets share. Every verb has an awaitable twin: ``aget`` for ``get``, and so on.

    Verbs raise ``StaleAttemptError`` when a later attempt has begun, ``BackendUnavailableError`` when the store can't be
    reached, ``InvalidKeyError`` and ``InvalidTypeError`` for keys that can't be used.
    """

    _expires = True
    _behalf: Behalf | None = None

    def __init__(self, store: StateStore, scope: EntryScope, fence: Fence | None, writer: Writer) -> None:
        self._store = store
        self._scope = scope
        self._fence = fence
        self._writer = writer
        self._checkpoints: dict[str, Checkpoint[Any]] = {}

    def __repr__(self) -> str:
        attempt = f", attempt {self._fence.try_number}" if self._fence else ""
        return f"<{type(self).__name__} {self._scope}{attempt}>"

    # --------------------------------------------------------------------------------------- the guide's

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under ``key``, or ``default`` if there is none or it has expired."""
        found = self._read([check_key(key)]).entries
        return self._value(found[0].text, key) if found else default

    def delete(self, key: str) -> None:
        """Delete one key; does nothing if it is absent."""
        self._apply(self._store.clock(), Delete(check_key(key)))

    def clear(self, *, forget: bool = False) -> None:
        """Delete every key; with ``forget``, the history of all keys too."""
        store = self._store
        request = Clear(
            scope=self._scope,
            now=store.clock(),
            writer=self._writer,
            fence=self._fence,
            behalf=self._behalf,
            history=store.history_policy,
            forget=forget,
        )
        self._learn(store.backend.clear(request))

    # -------------------------------------------------------------------------------------------- reading

    def entry(self, key: str) -> Entry | None:
        """Return the entry under ``key`` with its version, times and writer, or ``None``."""
        found = self._read([check_key(key)]).entries
        return self._entry(found[0]) if found else None

    def entries(self, *, damaged: bool = False) -> list[Entry]:
        """Return all entries in the order of their keys, as they stood at one moment.

        One that keepstate did not write raises ``StoreCorruptedError``; with ``damaged`` it is returned beside the others,
        with the value ``None`` and what is stored as its ``damaged``.
        """
        return [self._entry(stored, damaged=damaged) for stored in self._read(None).entries]

    def items(self) -> ItemsView[str, Any]:
        """Return all keys and values in the order of the keys, as they stood at one moment."""
        return {
            stored.key: self._value(stored.text, stored.key) for stored in self._read(None).entries
        }.items()

    def get_many(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the values of those ``keys`` that are there, as they stood at one moment."""
        if isinstance(keys, str):
            raise InvalidTypeError(
                f"get_many() takes a list of keys, not the single text {keys!r}", path="keys"
            )
        names = [check_key(key) for key in keys]
        if not names:
            return {}
        found = {stored.key: stored.text for stored in self._read(names).entries}
        return {name: self._value(found[name], name) for name in names if name in found}

    def history(self, key: str, limit: int | None = None, *, damaged: bool = False) -> list[HistoryEntry]:
        """Return the versions of ``key`` that are kept, newest first. ``damaged`` is as for `entries`."""
        most = self._store.history_policy.limit
        rows = self._past(key, most if limit is None else min(limit, most))
        return [self._history_entry(row, damaged=damaged) for row in rows]

    # -------------------------------------------------------------------------------------------- writing

    def restore(self, key: str, version: int) -> None:
        """Write the value that ``key`` had at ``version`` again, as a new version, its expiry unchanged.

        A key that is gone comes back with the expiry that the version had. Raises ``VersionNotFoundError`` when that
        version is not kept, removed the key, is damaged, or was so large that only its size and hash were kept.
        """
        past = next((row for row in self._past(key) if row.version == version), None)
        if past is None or past.text is None or is_damaged(past.text):
            found = "the history has no such value"
            if past is not None and past.text is not None:
                found = "it is damaged, as keepstate did not write it"
            elif past is not None and past.sha256:
                found = "it was too large to be kept"
            raise VersionNotFoundError(
                f"version {version} of key {key!r} can't be restored: {found}; history() lists what can",
                key=key,
                version=version,
            )
        text, own_expiry = past.text, past.expires_at
        self._compare_and_set(
            key,
            lambda _, entry: Put(
                key, text, entry.expires_at if entry else own_expiry, entry.version if entry else 0
            ),
        )

    # ----------------------------------------------------------------------------------------- checkpoints

    def checkpoint(
        self,
        source: AsyncSource[T],
        key: str = "position",
        every: int = 1,
        min_interval: float | timedelta | None = None,
        total: int | None = None,
    ) -> Iterator[T]:
        """Yield the items of ``source`` that no attempt has finished yet.

        ``source`` is an iterable, whose finished items are skipped by consuming it, or a callable ``start -> iterable``
        that begins at a position. An item is done when the body asks for the next. The position is written after
        ``every`` items, at most once in ``min_interval`` (seconds or a ``timedelta``), and whenever the loop is left.
        ``total`` is for progress bars; a source with a length tells it itself.

        Raises ``CheckpointMismatchError`` when another item stands where the last finished one stood, and
        ``InvalidInputError`` when ``key`` is used twice in one attempt.
        """
        return iter(self._checkpoint(source, key, every, min_interval, total))

    def acheckpoint(
        self,
        source: AsyncSource[T],
        key: str = "position",
        every: int = 1,
        min_interval: float | timedelta | None = None,
        total: int | None = None,
    ) -> Checkpoint[T]:
        """Like `checkpoint`, for ``async for``; the source may be asynchronous too."""
        return self._checkpoint(source, key, every, min_interval, total)

    def flush(self) -> None:
        """Write what throttled checkpoints hold back; the first trouble is raised once all have been tried.

        Leaving a loop, and the end of an attempt, do so themselves.
        """
        # of a list, as another thread may begin a checkpoint meanwhile
        try_all([checkpoint.flush for checkpoint in list(self._checkpoints.values())])

    # --------------------------------------------------------------------------------------- awaitable twins

    aget = twin(get)
    adelete = twin(delete)
    aclear = twin(clear)
    aentry = twin(entry)
    aentries = twin(entries)
    aitems = twin(items)
    aget_many = twin(get_many)
    ahistory = twin(history)
    arestore = twin(restore)
    aflush = twin(flush)

    # ------------------------------------------------------------------------------------------- machinery

    def _read(self, keys: Sequence[str] | None) -> Reading:
        store = self._store
        reading = store.backend.read(
            self._scope,
            keys,
            now=store.clock(),
            fence=self._fence,
            writer=self._writer,
            history=store.history_policy,
        )
        self._learn(reading)
        return reading

    def _past(self, key: str, limit: int | None = None) -> list[StoredVersion]:
        check_key(key)
        if self._fence is not None:
            # looking at the past is a use like any other: it registers the attempt, and is not for outlived ones
            self._read([key])
        store = self._store
        return store.backend.history(self._scope, key, now=store.clock(), limit=limit)

    def _apply(self, now: int, *changes: Change) -> Applied:
        store = self._store
        batch = Batch(
            scope=self._scope,
            changes=changes,
            now=now,
            writer=self._writer,
            fence=self._fence,
            behalf=self._behalf,
            history=store.history_policy,
        )
        applied = store.backend.apply(batch)
        self._learn(applied)
        store.count_write(len(changes))
        return applied

    def _learn(self, answer: Applied | Reading) -> None:
        """Keep the incarnation in which this attempt registered: in any other one it has no say."""
        fence = self._fence
        if fence is not None and fence.incarnation is None and answer.incarnation is not None:
            self._fence = replace(fence, incarnation=answer.incarnation)
        if answer.reset:
            log.warning(
                "%s starts without state: the mapped item at this index is not the one that wrote it. "
                "What was stored is in the history.",
                self._scope,
            )

    def _write(self, values: Mapping[str, object], retention: timedelta | None) -> None:
        """Put values in one transaction, all of one time."""
        now = self._store.clock()
        puts = [self._put(now, key, value, retention) for key, value in values.items()]
        if puts:
            self._apply(now, *puts)

    def _put(
        self, now: int, key: str, value: object, retention: timedelta | None, expected: int | None = None
    ) -> Put:
        check_key(key)
        text = encode(value)
        self._warn_if_large(key, text)
        return Put(key, text, self._expiry(now, retention), expected)

    def _expiry(self, now: int, retention: timedelta | None) -> int | None:
        if not self._expires:
            return None
        return expiry(retention, now=now, default_days=self._store.settings.default_retention_days)

    def _warn_if_large(self, key: str, text: str) -> None:
        limit = self._store.settings.max_value_storage_bytes
        if limit and len(text) * 4 > limit and (size := size_of(text)) > limit:
            log.warning(
                "key %r of %s holds %d bytes, above max_value_storage_bytes = %d; it was written, but REST and pages "
                "would refuse it, and its history keeps only size and hash",
                key,
                self._scope,
                size,
                limit,
            )

    def _update(
        self,
        key: str,
        fn: Callable[[Any], Any],
        default: Any,
        retention: timedelta | None,
    ) -> Any:
        new: Any = None
        # a retention that can't be used is refused also where the entry's own expiry will stay
        self._expiry(self._store.clock(), retention)

        def change(now: int, entry: StoredEntry | None) -> Put:
            nonlocal new
            new = fn(self._value(entry.text, key) if entry else default)
            if new is None:
                raise InvalidValueError(
                    f"the function given to update({key!r}) returned None; return the new value, or delete() the key",
                    path="value",
                )
            put = self._put(now, key, new, retention, entry.version if entry else 0)
            return replace(put, expires_at=entry.expires_at) if entry else put

        self._compare_and_set(key, change)
        return new

    def _increment(self, key: str, by: float, retention: timedelta | None) -> Any:
        if type(by) not in (int, float):
            raise InvalidTypeError(f"increment() adds a number, not {by!r:.80}", path="by")

        def add(value: Any) -> Any:
            if type(value) not in (int, float):
                raise InvalidTypeError(
                    f"key {key!r} holds {value!r:.80}, which is no number to add to; set() it to one first",
                    path="value",
                )
            try:
                return value + by
            except OverflowError:
                raise InvalidValueError(
                    f"increment({key!r}) would add a float and an integer that is too large to become one; "
                    "add an integer to an integer, or set() the key to another value",
                    path="value",
                ) from None

        return self._update(key, add, 0, retention)

    def _compare_and_set(self, key: str, change: Callable[[int, StoredEntry | None], Put]) -> None:
        """Apply ``change`` to what stands there, again and again until nobody came between."""
        check_key(key)
        race = Race()
        while True:
            found = self._read([key]).entries
            try:
                now = self._store.clock()
                self._apply(now, change(now, found[0] if found else None))
            except VersionConflictError:
                race.lost()
            else:
                return

    def _checkpoint(
        self,
        source: AsyncSource[T],
        key: str,
        every: int,
        min_interval: float | timedelta | None,
        total: int | None,
    ) -> Checkpoint[T]:
        check_key(key)
        if key in self._checkpoints:
            raise InvalidInputError(
                f"checkpoint key {key!r} is used twice in one attempt of {self._scope}; give each loop a key of its own"
            )
        checkpoint = Checkpoint(
            self,
            source,
            key,
            clock=self._store.clock,
            every=every,
            min_interval=min_interval,
            total=total,
        )
        self._checkpoints[key] = checkpoint
        return checkpoint

    def set(self, key: str, value: JsonInput) -> None:
        """Write or overwrite the value under ``key``."""
        raise NotImplementedError

    def _entry(self, stored: StoredEntry, *, damaged: bool = False) -> Entry:
        broken = as_text(stored.text) if damaged and is_damaged(stored.text) else None
        updated_at, expires_at = self._times(stored.key, stored.updated_at, stored.expires_at)
        return Entry(
            key=stored.key,
            value=self._value(stored.text, stored.key) if broken is None else None,
            version=stored.version,
            updated_at=updated_at,
            expires_at=expires_at,
            writer=self._writer_of(stored.writer, stored.key, damaged=damaged),
            damaged=broken,
        )

    def _history_entry(self, row: StoredVersion, *, damaged: bool = False) -> HistoryEntry:
        broken = as_text(row.text) if damaged and row.text is not None and is_damaged(row.text) else None
        written_at, expires_at = self._times(row.key, row.written_at, row.expires_at)
        return HistoryEntry(
            key=row.key,
            version=row.version,
            action=row.action,
            value=None if row.text is None or broken is not None else self._value(row.text, row.key),
            size=row.size,
            sha256=row.sha256,
            written_at=written_at,
            expires_at=expires_at,
            writer=self._writer_of(row.writer, row.key, damaged=damaged),
            damaged=broken,
        )

    def _times(self, key: str, since: int, until: int | None) -> tuple[datetime, datetime | None]:
        try:
            return to_datetime(since), optional_datetime(until)
        except (TypeError, OverflowError) as exc:
            raise self._corrupted("a time", key, (since, until)) from exc

    def _writer_of(self, text: str | None, key: str, *, damaged: bool) -> Writer | None:
        try:
            writer = None if text is None else Writer.from_text(text)
        except ValueError as exc:
            if damaged:
                return None
            raise self._corrupted("a writer", key, text) from exc
        return writer and with_ids_of(self._scope, writer)

    def _value(self, text: str, key: str) -> Any:
        try:
            return decode(text)
        except ValueError as exc:
            raise self._corrupted("a value", key, text) from exc

    def _corrupted(self, what: str, key: str, stored: object) -> StoreCorruptedError:
        address = self._store.backend.address
        return StoreCorruptedError(
            f"the store {address} has {what} under the key {key!r} of {self._scope} that keepstate did not write: "
            f"{stored!r:.60}; write it anew, or delete it",
            address=address,
        )


def checked_version(if_version: int | None) -> int | None:
    """Return a version to write over. Raises ``InvalidInputError`` for what can't be one."""
    if if_version is not None and (type(if_version) is not int or if_version < 0):
        raise InvalidInputError(f"if_version must be a version, or 0 for an absent key, not {if_version!r}")
    return if_version
