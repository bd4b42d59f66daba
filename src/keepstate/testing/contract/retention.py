"""Retention: when an entry expires, and that what has expired is gone wherever one looks."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.backends.requests import HistoryPolicy
from keepstate.errors import (
    InvalidRetentionError,
    InvalidTypeError,
    VersionConflictError,
    VersionNotFoundError,
)
from keepstate.retention import NEVER_EXPIRE
from keepstate.testing.contract.ground import DAG, RUN, SCOPE, Ground, attempt, contents

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)


class _Duration(timedelta):
    """A subclass, as pendulum's Duration is one."""


WRITES: dict[str, Callable[[TaskStateStore, Any], object]] = {
    "set": lambda tss, retention: tss.set("k", 1, retention=retention),
    "set_many": lambda tss, retention: tss.set_many({"k": 1}, retention=retention),
    "update": lambda tss, retention: tss.update("k", lambda _: 1, retention=retention),
    "increment": lambda tss, retention: tss.increment("k", retention=retention),
}

GONE: dict[str, Callable[[TaskStateStore], bool]] = {
    "get": lambda tss: tss.get("k", "gone") == "gone",
    "entry": lambda tss: tss.entry("k") is None,
    "items": lambda tss: "k" not in dict(tss.items()),
    "entries": lambda tss: "k" not in {entry.key for entry in tss.entries()},
    "get_many": lambda tss: tss.get_many(["k", "stays"]) == {"stays": 0},
    "history": lambda tss: tss.history("k") == [],
    "update": lambda tss: tss.update("k", lambda found: found, "gone") == "gone",
    "increment": lambda tss: tss.increment("k", 5) == 5,
    "delete": lambda tss: bool([tss.delete("k")]),  # type: ignore[func-returns-value]
    "clear": lambda tss: bool([tss.clear()]),  # type: ignore[func-returns-value]
}


class Retention(Ground):
    """Expiry, by a clock that stands still until the test moves it."""

    @pytest.mark.parametrize("write", WRITES)
    @pytest.mark.parametrize(
        ("retention", "days"),
        [(None, 30), (timedelta(days=28), 28), (_Duration(days=2), 2), (timedelta(days=365_000), 365_000)],
    )
    def test_an_entry_expires_at_its_time_exactly(
        self, store: StateStore, clock: ManualClock, write: str, retention: timedelta | None, days: int
    ) -> None:
        """It is there until the last microsecond before, and gone at its time; ``None`` means 30 days."""
        tss = attempt(store, 1)
        WRITES[write](tss, retention)
        entry = tss.entry("k")
        assert entry is not None
        assert entry.expires_at == clock.now + timedelta(days=days)
        clock.advance(timedelta(days=days) - TICK)
        assert tss.get("k") == 1
        clock.advance(TICK)
        assert tss.get("k") is None

    @pytest.mark.parametrize("write", WRITES)
    @pytest.mark.parametrize(
        "never",
        [NEVER_EXPIRE, timedelta.max, pickle.loads(pickle.dumps(NEVER_EXPIRE))],  # noqa: S301 - our own
    )
    def test_never_expire_keeps_an_entry(
        self, store: StateStore, clock: ManualClock, write: str, never: timedelta
    ) -> None:
        """It is compared by equality, so it survives pickling and equals ``timedelta.max``."""
        tss = attempt(store, 1)
        WRITES[write](tss, never)
        clock.advance(timedelta(days=365 * 1000))
        entry = tss.entry("k")
        assert entry is not None
        assert entry.expires_at is None
        assert store.cleanup().entries == 0

    def test_a_default_of_zero_days_keeps_entries(
        self, make_store: Callable[..., StateStore], clock: ManualClock
    ) -> None:
        """Entries without explicit retention then don't expire; explicit ones do."""
        tss = attempt(make_store(default_retention_days=0), 1)
        tss.set_many({"k": 1, "l": 2})
        tss.set("m", 3, retention=HOUR)
        clock.advance(timedelta(days=36_500))
        assert dict(tss.items()) == {"k": 1, "l": 2}

    def test_a_changed_default_leaves_written_entries_alone(
        self, make_store: Callable[..., StateStore], clock: ManualClock
    ) -> None:
        """An entry's expiry is computed when it is written, and stays."""
        attempt(make_store(default_retention_days=5), 1).set("k", 1)
        longer = attempt(make_store(default_retention_days=50), 2)
        longer.set("l", 2)
        clock.advance(timedelta(days=5))
        assert dict(longer.items()) == {"l": 2}

    @pytest.mark.parametrize("look", GONE)
    def test_what_has_expired_is_gone_for_every_verb(
        self, store: StateStore, clock: ManualClock, look: str
    ) -> None:
        """Cleaned up or not, no verb sees it; what has not expired beside it is seen."""
        tss = attempt(store, 1)
        tss.set("k", 1, retention=NEVER_EXPIRE)
        tss.set("k", 41, retention=HOUR)
        tss.set("stays", 0)
        clock.advance(HOUR)
        assert GONE[look](tss)

    def test_what_has_expired_is_gone_from_lists_and_changes(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Counts of task instances, pages of entries and followers of changes don't see it either."""
        tss = attempt(store, 1)
        tss.set("k", 1, retention=HOUR)
        tss.set("stays", 0)
        clock.advance(HOUR)
        (info,) = store.task_instances(DAG, RUN)
        assert info.entries == 1
        page = store.backend.read(SCOPE, None, now=clock(), limit=10)
        assert [entry.key for entry in page.entries] == ["stays"]
        assert page.total == 1
        version, notices = store.backend.changes(SCOPE, after=0, now=clock())
        assert version == 2
        assert [notice.key for notice in notices] == ["stays"]

    def test_what_has_expired_is_absent_to_compare_and_set(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Version 0 writes over it, its old version does not."""
        tss = attempt(store, 1)
        tss.set("k", 1, retention=HOUR)
        clock.advance(HOUR)
        with pytest.raises(VersionConflictError) as caught:
            tss.set("k", 2, if_version=1)
        assert caught.value.actual == 0
        tss.set("k", 2, if_version=0)
        assert tss.get("k") == 2

    def test_a_key_written_anew_after_its_time_has_no_past(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Its history begins with the new value, and nothing of before can be restored."""
        tss = attempt(store, 1)
        tss.set("k", 1, retention=NEVER_EXPIRE)
        tss.set("k", 2, retention=HOUR)
        clock.advance(HOUR)
        tss.set("k", 3)
        assert [version.value for version in tss.history("k")] == [3]
        with pytest.raises(VersionNotFoundError):
            tss.restore("k", 1)

    def test_a_version_expires_with_its_value(self, store: StateStore, clock: ManualClock) -> None:
        """What was written for an hour is after an hour in no history, though the key lives on."""
        tss = attempt(store, 1)
        tss.set("k", "secret", retention=HOUR)
        tss.set("k", "public")
        assert [version.value for version in tss.history("k")] == ["public", "secret"]
        clock.advance(HOUR)
        assert [version.value for version in tss.history("k")] == ["public"]
        with pytest.raises(VersionNotFoundError):
            tss.restore("k", 1)
        assert tss.get("k") == "public"

    def test_setting_counts_the_retention_anew(self, store: StateStore, clock: ManualClock) -> None:
        """Each ``set`` gives the entry the expiry of its own retention, shorter or longer."""
        tss = attempt(store, 1)
        for retention in (HOUR, 3 * HOUR, 2 * HOUR):
            tss.set("k", 1, retention=retention)
            assert _expiry(tss) == clock.now + retention
        tss.set("k", 1, retention=NEVER_EXPIRE)
        assert _expiry(tss) is None

    @pytest.mark.parametrize("write", ["update", "increment"])
    def test_changing_a_value_leaves_its_expiry(
        self, store: StateStore, clock: ManualClock, write: str
    ) -> None:
        """``update`` and ``increment`` use their retention when they create the key, and only then."""
        tss = attempt(store, 1)
        WRITES[write](tss, 2 * HOUR)
        end = clock.now + 2 * HOUR
        clock.advance(HOUR)
        WRITES[write](tss, 5 * HOUR)
        WRITES[write](tss, NEVER_EXPIRE)
        WRITES[write](tss, None)
        assert _expiry(tss) == end
        clock.advance(HOUR)
        WRITES[write](tss, 5 * HOUR)
        assert _expiry(tss) == clock.now + 5 * HOUR
        tss.set("k", 1, retention=NEVER_EXPIRE)
        WRITES[write](tss, HOUR)
        assert _expiry(tss) is None

    def test_restoring_leaves_the_expiry(self, store: StateStore, clock: ManualClock) -> None:
        """A living key keeps its own expiry; one that was removed gets back the version's."""
        tss = attempt(store, 1)
        tss.set("k", 1, retention=5 * HOUR)
        tss.set("k", 2, retention=9 * HOUR)
        begun = clock.now
        clock.advance(HOUR)
        tss.restore("k", 1)
        assert (tss.get("k"), _expiry(tss)) == (1, begun + 9 * HOUR)
        tss.delete("k")
        tss.restore("k", 1)
        assert (tss.get("k"), _expiry(tss)) == (1, begun + 5 * HOUR)

    @pytest.mark.parametrize("write", WRITES)
    @pytest.mark.parametrize(
        "retention",
        [
            timedelta(0),
            timedelta(microseconds=-1),
            timedelta(days=-1),
            timedelta.min,
            timedelta.max - TICK,
            timedelta(days=3_000_000),
            _Duration(0),
        ],
    )
    def test_a_retention_out_of_range_is_refused(
        self, store: StateStore, write: str, retention: timedelta
    ) -> None:
        """Zero, negative, or past the year 9999: an ``InvalidRetentionError``, which is a ``ValueError``."""
        with pytest.raises(InvalidRetentionError, match="NEVER_EXPIRE") as caught:
            WRITES[write](attempt(store, 1), retention)
        assert isinstance(caught.value, ValueError)
        assert contents(store) == {}

    @pytest.mark.parametrize("write", WRITES)
    @pytest.mark.parametrize("retention", [30, 0, 1.5, True, "30d", b"", [1]])
    def test_a_retention_of_another_type_is_refused(
        self, store: StateStore, write: str, retention: Any
    ) -> None:
        """A bare number has no unit: an ``InvalidTypeError``, which is a ``TypeError``."""
        with pytest.raises(InvalidTypeError, match="timedelta") as caught:
            WRITES[write](attempt(store, 1), retention)
        assert isinstance(caught.value, TypeError)
        assert contents(store) == {}

    def test_a_bad_retention_is_refused_where_it_would_not_count(self, store: StateStore) -> None:
        """``update`` and ``increment`` refuse it over an existing key too, and change nothing."""
        tss = attempt(store, 1)
        tss.set("k", 1)
        for write in ("update", "increment"):
            with pytest.raises(InvalidRetentionError):
                WRITES[write](tss, timedelta(0))
        assert tss.get("k") == 1

    def test_a_clock_set_back_brings_back_what_had_expired(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Expiry is the reader's clock against the entry's time, and nothing is removed by reading."""
        tss = attempt(store, 1)
        tss.set("k", 1, retention=HOUR)
        clock.advance(2 * HOUR)
        assert tss.get("k") is None
        clock.advance(-2 * HOUR)
        assert tss.get("k") == 1
        assert store.history_policy == HistoryPolicy()


def _expiry(tss: TaskStateStore) -> object:
    entry = tss.entry("k")
    assert entry is not None
    return entry.expires_at
