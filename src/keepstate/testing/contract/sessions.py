"""Client sessions: a request that is sent again, because its answer was lost, applies once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from keepstate.backends.answers import Applied
from keepstate.backends.requests import Batch, Change, Clear, Delete, Fence, Put, Session
from keepstate.errors import BackendError, StaleAttemptError, VersionConflictError
from keepstate.scope import AssetScope, TaskScope, Writer
from keepstate.testing.contract.ground import DAG, RUN, SCOPE, Ground, attempt, contents

if TYPE_CHECKING:
    from typing import Any

    from keepstate.backends.requests import EntryScope
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

WRITER = Writer("api")
DAY = timedelta(days=1)


class Sessions(Ground):
    """The backend keeps the last number of each session and its answer, in the transaction that applied it."""

    def test_a_request_sent_again_applies_once(self, store: StateStore, clock: ManualClock) -> None:
        """It gets the answer that it got before, marked as repeated."""
        first = _apply(store, clock, Put("k", "1", None), Session("s", 1))
        assert (first.version, first.repeated) == (1, False)
        again = _apply(store, clock, Put("k", "1", None), Session("s", 1))
        assert again == Applied(1, first.incarnation, repeated=True)
        assert len(attempt(store).history("k")) == 1

    def test_its_answer_stays_the_same_after_others_have_written(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """The version is that of its own change, and what others wrote since stands."""
        _apply(store, clock, Put("k", "1", None), Session("s", 1))
        attempt(store).set("k", 2)
        attempt(store).set("k", 3)
        assert _apply(store, clock, Put("k", "1", None), Session("s", 1)).version == 1
        assert contents(store) == {"k": 3}

    def test_compare_and_set_is_safe_to_send_again(self, store: StateStore, clock: ManualClock) -> None:
        """Having applied, it does not conflict with itself; nor does a delete with an expected version."""
        put = Put("k", "1", None, expected=0)
        assert _apply(store, clock, put, Session("s", 1)).version == 1
        assert _apply(store, clock, put, Session("s", 1)).repeated
        delete = Delete("k", expected=1)
        assert _apply(store, clock, delete, Session("s", 2)).version == 2
        assert _apply(store, clock, delete, Session("s", 2)).repeated
        assert contents(store) == {}

    def test_the_next_number_is_the_next_request(self, store: StateStore, clock: ManualClock) -> None:
        """Numbers rise, and may leave gaps."""
        for number, version in ((1, 1), (2, 2), (9, 3)):
            applied = _apply(store, clock, Put("k", str(number), None), Session("s", number))
            assert (applied.version, applied.repeated) == (version, False)
        assert contents(store) == {"k": 9}

    def test_an_earlier_number_is_refused(self, store: StateStore, clock: ManualClock) -> None:
        """A request that comes after a later one of its session can't be told from a repeated one."""
        _apply(store, clock, Put("k", "2", None), Session("s", 2))
        for change in (Put("k", "1", None), Delete("k")):
            with pytest.raises(BackendError, match="one after another"):
                _apply(store, clock, change, Session("s", 1))
        with pytest.raises(BackendError, match="one after another"):
            store.backend.clear(Clear(SCOPE, clock(), WRITER, session=Session("s", 1)))
        assert contents(store) == {"k": 2}

    def test_sessions_are_apart(self, store: StateStore, clock: ManualClock) -> None:
        """Each client counts for itself; a session may write to many scopes."""
        scopes: list[EntryScope] = [SCOPE, TaskScope(DAG, RUN, "other"), AssetScope("orders")]
        for number, scope in enumerate(scopes, start=1):
            for session in ("s", "S", "s "):
                applied = _apply(store, clock, Put("k", "1", None), Session(session, number), scope=scope)
                assert not applied.repeated
        for scope in scopes:
            found = store.backend.read(scope, None, now=clock())
            assert found.version == 3

    def test_a_refused_request_may_be_sent_again(self, store: StateStore, clock: ManualClock) -> None:
        """It has changed nothing, its session neither: once it can apply, it does."""
        put = Put("k", "2", None, expected=1)
        for _ in range(2):
            with pytest.raises(VersionConflictError):
                _apply(store, clock, put, Session("s", 1))
        attempt(store).set("k", 1)
        assert _apply(store, clock, put, Session("s", 1)) == Applied(2, 1)
        attempt(store, 5).get("k")
        for _ in range(2):
            with pytest.raises(StaleAttemptError):
                _apply(store, clock, Put("k", "3", None), Session("s", 2), fence=Fence(4))
        assert not _apply(store, clock, Put("k", "3", None), Session("s", 2), fence=Fence(5)).repeated

    def test_an_answer_that_was_lost_is_given_to_a_stale_attempt_too(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """It had applied before the later attempt began, and so it did."""
        put = Put("k", "1", None)
        _apply(store, clock, put, Session("s", 1), fence=Fence(1))
        attempt(store, 2).set("k", 2)
        assert _apply(store, clock, put, Session("s", 1), fence=Fence(1)).repeated
        with pytest.raises(StaleAttemptError):
            _apply(store, clock, put, Session("s", 2), fence=Fence(1))
        assert contents(store) == {"k": 2}

    def test_clearing_is_safe_to_send_again(self, store: StateStore, clock: ManualClock) -> None:
        """What was written after it stays."""
        attempt(store).set("k", 1)
        request = Clear(SCOPE, clock(), WRITER, session=Session("s", 1))
        assert store.backend.clear(request).version == 2
        attempt(store).set("k", 2)
        assert store.backend.clear(request) == Applied(2, 1, repeated=True)
        assert contents(store) == {"k": 2}

    def test_deleting_is_safe_to_send_again(self, store: StateStore, clock: ManualClock) -> None:
        """What was made since stays, and the answer is the first one's."""
        backend = store.backend
        for number, run_again in ((1, False), (2, True)):
            attempt(store, number, number).set("k", number)
            store.asset("orders").set("k", number)
            run, asset = Session("run", number), Session("asset", number)
            assert backend.delete_run(DAG, RUN, now=clock(), session=run) == 1
            assert backend.delete_asset(AssetScope("orders"), now=clock(), session=asset)
            if run_again:
                attempt(store, 1, 9).set("k", "new")
                store.asset("orders").set("k", "new")
            assert backend.delete_run(DAG, RUN, now=clock(), session=run) == 1
            assert backend.delete_asset(AssetScope("orders"), now=clock(), session=asset)
        assert contents(store) == {"k": "new"}
        assert dict(store.asset("orders").items()) == {"k": "new"}
        assert backend.delete_asset(AssetScope("nobody's"), now=clock(), session=Session("asset", 3)) is False
        assert backend.delete_asset(AssetScope("nobody's"), now=clock(), session=Session("asset", 3)) is False
        with pytest.raises(BackendError, match="one after another"):
            backend.delete_run(DAG, RUN, now=clock(), session=Session("run", 1))

    def test_sessions_in_use_outlast_a_cleanup(self, store: StateStore, clock: ManualClock) -> None:
        """Of those that the caller names: they may be waiting for their next request for long."""
        for name in ("used", "forgotten"):
            _apply(store, clock, Put("k", "1", None), Session(name, 1))
        clock.advance(DAY)
        bounds: dict[str, Any] = {
            "batch_size": 10,
            "idle": None,
            "history": store.history_policy,
            "sessions": ["used"],
        }
        for dry_run in (True, False):
            reports = store.backend.purge(now=clock(), dry_run=dry_run, **bounds)
            assert sum(report.sessions for report in reports) == 1
        assert _apply(store, clock, Put("k", "1", None), Session("used", 1)).repeated
        assert not _apply(store, clock, Put("k", "1", None), Session("forgotten", 1)).repeated

    def test_a_batch_is_repeated_as_a_whole(self, store: StateStore, clock: ManualClock) -> None:
        """Several changes under one number apply once, together."""
        changes = (Put("a", "1", None, expected=0), Put("b", "1", None, expected=0))
        for repeated in (False, True, True):
            batch = Batch(SCOPE, changes, clock(), WRITER, session=Session("s", 1))
            assert store.backend.apply(batch) == Applied(1, 1, repeated=repeated)


def _apply(
    store: StateStore,
    clock: ManualClock,
    change: Change,
    session: Session,
    *,
    fence: Fence | None = None,
    scope: EntryScope = SCOPE,
) -> Applied:
    return store.backend.apply(Batch(scope, (change,), clock(), WRITER, fence, session))
