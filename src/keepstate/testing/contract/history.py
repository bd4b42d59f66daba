"""History: what each attempt wrote, bounded, restorable, and gone when it has to be."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from keepstate.backends.requests import HistoryPolicy
from keepstate.errors import VersionNotFoundError
from keepstate.scope import Writer
from keepstate.testing.contract.ground import DAG, RUN, SCOPE, TASK, Ground, attempt, contents

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)


class History(Ground):
    """The log of changes, as `history`, `restore` and ``clear(forget=True)`` show it."""

    many_writes = 500
    """How often one key is written to show that its history is bounded. A binding may set more."""

    def test_the_newest_version_comes_first(self, store: StateStore, clock: ManualClock) -> None:
        """Each with what was done, the value, when, by whom and by which attempt."""
        attempt(store, 1, 1).set("k", {"page": 1})
        begun = clock.now
        clock.advance(DAY)
        attempt(store, 2, 2).set("k", "é", retention=3 * DAY)
        attempt(store).delete("k")
        deleted, second, first = attempt(store).history("k")
        assert (first.key, first.version, first.action, first.value) == ("k", 1, "set", {"page": 1})
        assert (first.written_at, first.expires_at) == (begun, begun + 30 * DAY)
        assert first.writer == Writer("task", DAG, RUN, TASK, -1, try_number=1)
        assert (second.version, second.action, second.value, second.size) == (2, "set", "é", 4)
        assert (second.written_at, second.expires_at) == (clock.now, clock.now + 3 * DAY)
        assert second.writer == Writer("task", DAG, RUN, TASK, -1, try_number=2)
        assert (deleted.version, deleted.action, deleted.value, deleted.size) == (3, "delete", None, 0)
        assert deleted.expires_at == clock.now + 7 * DAY
        assert deleted.writer == Writer("api")

    def test_each_key_has_its_own_history(self, store: StateStore) -> None:
        """Of absent keys there is none; ``limit`` asks for the newest alone."""
        tss = attempt(store, 1)
        tss.set_many({"a": 1, "b": 2})
        tss.set("a", 3)
        tss.update("a", lambda value: value + 1)
        tss.increment("a")
        assert [(version.version, version.value) for version in tss.history("a")] == [
            (4, 5),
            (3, 4),
            (2, 3),
            (1, 1),
        ]
        assert [version.value for version in tss.history("b")] == [2]
        assert tss.history("c") == []
        assert [version.version for version in tss.history("a", limit=2)] == [4, 3]
        assert tss.history("a", limit=0) == []

    def test_removals_say_how(self, store: StateStore) -> None:
        """``delete`` and ``clear`` are told apart, and a key may be written and removed again and again."""
        tss = attempt(store, 1)
        for remove in ("delete", "clear"):
            tss.set("k", 1)
            _remove(tss, remove)
        assert [version.action for version in tss.history("k")] == ["clear", "set", "delete", "set"]

    def test_a_key_written_many_times_keeps_its_limit(self, store: StateStore) -> None:
        """However often it is written, 20 versions are kept: the newest; and at no moment twice as many."""
        tss = attempt(store, 1)
        for number in range(1, self.many_writes + 1):
            tss.set("k", number)
            if number % 100 == 0:
                assert len(store.backend.history(SCOPE, "k", now=store.clock())) <= 40
        newest = list(range(self.many_writes, self.many_writes - 20, -1))
        assert [version.value for version in tss.history("k")] == newest
        assert len(store.backend.history(SCOPE, "k", now=store.clock())) <= 40

    def test_removing_again_and_again_keeps_the_limit_too(self, store: StateStore) -> None:
        """Deletes and clears are versions like any other."""
        tss = attempt(store, 1)
        for _ in range(15):
            tss.set("k", 1)
            tss.delete("k")
            tss.set("k", 2)
            tss.clear()
        assert len(tss.history("k")) == 20
        assert len(store.backend.history(SCOPE, "k", now=store.clock())) <= 40

    @pytest.mark.parametrize("limit", [1, 3])
    def test_the_limit_may_be_set(self, make_store: Callable[..., StateStore], limit: int) -> None:
        """``KEEPSTATE_HISTORY_LIMIT`` counts for set, delete and clear, whatever was kept before."""
        before = attempt(make_store(), 1)
        for number in range(5):
            before.set("k", number)
        tss = attempt(make_store(history_limit=limit), 1)
        tss.set("k", 5)
        assert [version.value for version in tss.history("k")] == [5, 4, 3][:limit]
        tss.set_many({"k": 6, "l": 6})
        tss.clear()
        assert [version.action for version in tss.history("k")] == ["clear", "set", "set"][:limit]

    def test_no_history_may_be_kept(self, make_store: Callable[..., StateStore]) -> None:
        """With a limit of 0 nothing is, of what was there before neither once the key is written."""
        attempt(make_store(), 1).set("k", 1)
        tss = attempt(make_store(history_limit=0), 1)
        tss.set("k", 2)
        assert tss.history("k") == []
        tss.delete("k")
        assert tss.history("k") == []
        tss.set("k", 3)
        tss.clear()
        assert tss.history("k") == []
        assert dict(tss.items()) == {}
        # as one who would be shown it sees it
        assert attempt(make_store()).history("k") == []

    @pytest.mark.parametrize("remove", ["delete", "clear"])
    def test_the_history_of_a_removed_key_lasts_seven_days(
        self, store: StateStore, clock: ManualClock, remove: str
    ) -> None:
        """To the microsecond; then it is gone, and can't be restored."""
        tss = attempt(store, 1)
        tss.set("k", 1)
        _remove(tss, remove)
        clock.advance(7 * DAY - TICK)
        assert len(tss.history("k")) == 2
        clock.advance(TICK)
        assert tss.history("k") == []
        with pytest.raises(VersionNotFoundError):
            tss.restore("k", 1)

    @pytest.mark.parametrize("remove", ["delete", "clear"])
    def test_the_days_may_be_set(
        self, make_store: Callable[..., StateStore], clock: ManualClock, remove: str
    ) -> None:
        """``KEEPSTATE_HISTORY_DAYS``; with 0 the history goes with the key, at once."""
        tss = attempt(make_store(history_days=2), 1)
        tss.set("k", 1)
        _remove(tss, remove)
        clock.advance(2 * DAY - TICK)
        assert len(tss.history("k")) == 2
        clock.advance(TICK)
        assert tss.history("k") == []
        tss = attempt(make_store(history_days=0), 1)
        tss.set("k", 1)
        _remove(tss, remove)
        assert attempt(make_store()).history("k") == []

    def test_restoring_writes_a_version_again(self, store: StateStore) -> None:
        """As a new version, of a living key and of one that was deleted or cleared."""
        tss = attempt(store, 1)
        tss.set("k", [1])
        tss.set("k", [2])
        tss.restore("k", 1)
        assert tss.get("k") == [1]
        tss.delete("k")
        tss.restore("k", 2)
        assert tss.get("k") == [2]
        tss.clear()
        tss.restore("k", 3)
        assert tss.get("k") == [1]
        versions = [(version.version, version.action, version.value) for version in tss.history("k")]
        assert versions == [
            (7, "set", [1]),
            (6, "clear", None),
            (5, "set", [2]),
            (4, "delete", None),
            (3, "set", [1]),
            (2, "set", [2]),
            (1, "set", [1]),
        ]

    def test_what_is_not_kept_is_not_restored(self, make_store: Callable[..., StateStore]) -> None:
        """No such version, one that removed the key, or one pushed out: a ``LookupError`` that knows both."""
        tss = attempt(make_store(history_limit=3), 1)
        tss.set("other", 1)
        for number in range(3):
            tss.set("k", number)
        tss.delete("k")
        for version in (0, 1, 2, 5, 99):
            with pytest.raises(VersionNotFoundError, match=r"history\(\) lists what can") as caught:
                tss.restore("k", version)
            assert isinstance(caught.value, LookupError)
            assert (caught.value.key, caught.value.version) == ("k", version)
        tss.restore("k", 4)
        assert tss.get("k") == 2

    def test_a_large_value_leaves_size_and_hash(self, make_store: Callable[..., StateStore]) -> None:
        """Above ``max_value_storage_bytes``, counted in UTF-8 bytes of the JSON, history keeps no value."""
        store = make_store(max_value_storage_bytes=10)
        tss = attempt(store, 1)
        tss.set("k", "é" * 4)
        tss.set("k", "é" * 4 + "x")
        large, fits = tss.history("k")
        assert (fits.value, fits.size, fits.sha256) == ("é" * 4, 10, None)
        text = json.dumps("é" * 4 + "x", ensure_ascii=False)
        assert (large.value, large.size) == (None, 11)
        assert large.sha256 == hashlib.sha256(text.encode()).hexdigest()
        assert tss.get("k") == "é" * 4 + "x"
        with pytest.raises(VersionNotFoundError, match="too large to be kept"):
            tss.restore("k", large.version)
        unlimited = attempt(make_store(max_value_storage_bytes=0), 1)
        unlimited.set("k", "x" * 100_000)
        assert unlimited.history("k")[0].value == "x" * 100_000

    def test_forgetting_erases_the_history_of_all_keys(self, store: StateStore, clock: ManualClock) -> None:
        """Of living, deleted and cleared ones; other task instances keep theirs."""
        tss, other = attempt(store, 1), attempt(store, 1, map_index=0)
        for accessor in (tss, other):
            accessor.set_many({"living": 1, "deleted": 2})
            accessor.delete("deleted")
        tss.set("secret", "x")
        tss.clear(forget=True)
        assert contents(store) == {}
        assert [tss.history(key) for key in ("living", "deleted", "secret")] == [[], [], []]
        assert len(other.history("deleted")) == 2
        assert store.backend.changes(SCOPE, after=0, now=clock())[1] == []
        tss.set("living", 2)
        assert [version.value for version in tss.history("living")] == [2]

    def test_an_asset_has_a_history_too(self, store: StateStore) -> None:
        """Versions of assets don't expire while the entry is there."""
        asset = store.asset("orders", writer=Writer("watcher", name="poller"))
        asset.set("k", 1)
        asset.set("k", 2)
        second, first = asset.history("k")
        assert (second.value, first.value) == (2, 1)
        assert second.expires_at is None
        assert first.writer == Writer("watcher", name="poller")
        asset.restore("k", first.version)
        assert asset.get("k") == 1

    def test_the_default_policy_is_the_settings(self, store: StateStore) -> None:
        """20 versions, 7 days, 65,535 bytes."""
        assert store.history_policy == HistoryPolicy(20, 7, 65_535)


def _remove(tss: TaskStateStore, how: str) -> None:
    if how == "clear":
        tss.clear()
    else:
        tss.delete("k")
