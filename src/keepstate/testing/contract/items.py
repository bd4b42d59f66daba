"""Mapped items: state belongs to the item, not to its place in the list."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from keepstate.backends.requests import Begin, Fence, Holder
from keepstate.errors import StaleAttemptError
from keepstate.scope import TaskScope, Writer
from keepstate.testing.contract.ground import DAG, RUN, TASK, Ground, attempt, attempt_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

THIRD = TaskScope(DAG, RUN, TASK, 3)


class Items(Ground):
    """An attempt may name the item that it works on, by a fingerprint."""

    def test_the_same_item_finds_its_state(self, store: StateStore, caplog: pytest.LogCaptureFixture) -> None:
        """A later attempt at the item carries on, without a word."""
        attempt(store, 1, 1, item="page-7", map_index=3).set("done", 40)
        assert attempt(store, 2, 2, item="page-7", map_index=3).get("done") == 40
        assert caplog.records == []

    def test_another_item_finds_no_state(self, store: StateStore, caplog: pytest.LogCaptureFixture) -> None:
        """When the item at an index has changed, the attempt starts without state, and a warning says so."""
        attempt(store, 1, 1, item="page-7", map_index=3).set("done", 40)
        later = attempt(store, 2, 2, item="page-8", map_index=3)
        assert later.get("done") is None
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert f"{THIRD} starts without state" in caplog.text
        later.set("done", 1)
        later.get("done")
        assert len(caplog.records) == 1
        assert attempt(store, 3, 3, item="page-8", map_index=3).get("done") == 1

    @pytest.mark.parametrize("first", ["get", "set", "clear"])
    def test_the_warning_comes_with_whatever_is_done_first(
        self, store: StateStore, caplog: pytest.LogCaptureFixture, first: str
    ) -> None:
        """Reading, writing and clearing all begin the new state."""
        attempt(store, 1, 1, item="page-7").set("done", 40)
        later = attempt(store, 2, 2, item="page-8")
        verbs: dict[str, Callable[[], object]] = {
            "get": lambda: later.get("k"),
            "set": lambda: later.set("k", 1),
            "clear": later.clear,
        }
        verbs[first]()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert later.get("done") is None

    def test_the_state_of_the_other_item_is_in_the_history(self, store: StateStore) -> None:
        """Nothing is lost: it can be read and restored by hand."""
        attempt(store, 1, 1, item="page-7").set("done", 40)
        later = attempt(store, 2, 2, item="page-8")
        assert later.get("done") is None
        newest, oldest = later.history("done")
        assert (newest.action, newest.value, newest.writer) == ("reset", None, None)
        assert (oldest.action, oldest.value) == ("set", 40)
        attempt(store).restore("done", oldest.version)
        assert later.get("done") == 40

    def test_an_attempt_at_the_earlier_item_is_stale(self, store: StateStore) -> None:
        """It may neither write nor read what belongs to another item now."""
        earlier = attempt(store, 1, 1, item="page-7")
        earlier.set("done", 40)
        attempt(store, 2, 2, item="page-8").set("done", 1)
        for use in (lambda: earlier.get("done"), lambda: earlier.set("done", 41)):
            with pytest.raises(StaleAttemptError):
                use()

    def test_an_item_is_remembered_while_nobody_names_it(self, store: StateStore) -> None:
        """An attempt that names none keeps the state, and the item is still known afterwards."""
        attempt(store, 1, 1, item="page-7").set("done", 40)
        assert attempt(store, 2, 2).get("done") == 40
        assert attempt(store, 3, 3, item="page-7").get("done") == 40
        assert attempt(store, 4, 4, item="page-8").get("done") is None

    def test_naming_an_item_for_the_first_time_keeps_the_state(self, store: StateStore) -> None:
        """State from before items were named is the first item's."""
        attempt(store, 1, 1).set("done", 40)
        assert attempt(store, 2, 2, item="page-7").get("done") == 40
        assert attempt(store, 3, 3, item="page-8").get("done") is None

    @pytest.mark.parametrize("use", ["get", "set", "clear"])
    def test_an_attempt_may_name_its_item_after_its_first_use(self, store: StateStore, use: str) -> None:
        """As where a helper of the task used the store before, without the item."""
        attempt(store, 1, 1).get("done")
        attempt(store, 1, 1).set("done", 40)
        naming = attempt(store, 1, 1, item="page-7")
        verbs: dict[str, Callable[[], object]] = {
            "get": lambda: naming.get("done"),
            "set": lambda: naming.set("done", 40),
            "clear": naming.clear,
        }
        verbs[use]()
        naming.set("done", 41)
        assert attempt(store, 1, 1).get("done") == 41
        assert attempt(store, 2, 2, item="page-8").get("done") is None

    def test_an_item_that_an_attempt_has_named_stays(self, store: StateStore) -> None:
        """What the same attempt says afterwards changes nothing."""
        attempt(store, 1, 1, item="page-7").set("done", 40)
        assert attempt(store, 1, 1, item="page-8").get("done") == 40
        assert attempt(store, 2, 2, item="page-7").get("done") == 40

    @pytest.mark.parametrize("order", [None, 1])
    def test_a_superseded_attempt_does_not_read_what_is_of_another_item(
        self, store: StateStore, order: int | None
    ) -> None:
        """Also from a process that has not used the store before."""
        attempt(store, 1, order, item="page-7").set("done", 40)
        attempt(store, 2, None if order is None else 2, item="page-8").set("done", 1)
        with pytest.raises(StaleAttemptError, match="its mapped item changed"):
            attempt(store, 1, order, item="page-7").get("done")

    @pytest.mark.parametrize("use", ["get", "set", "clear"])
    def test_an_attempt_that_was_let_in_before_begins_no_other_item(
        self, store: StateStore, clock: ManualClock, use: str
    ) -> None:
        """As one of a run that was deleted so long ago that nobody knows: the state of the live attempt stays."""
        late = attempt(store, 2, item="page-8")
        late.set("done", 1)
        store.delete_run(DAG, RUN)
        clock.advance(timedelta(days=8))
        store.cleanup()
        live = attempt(store, 1, item="page-7")
        live.set("done", 40)
        verbs: dict[str, Callable[[], object]] = {
            "get": lambda: late.get("done"),
            "set": lambda: late.set("done", 2),
            "clear": late.clear,
        }
        with pytest.raises(StaleAttemptError, match="its mapped item changed"):
            verbs[use]()
        assert live.get("done") == 40
        live.set("done", 41)

    def test_an_item_of_the_run_before_does_not_matter(
        self, store: StateStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A run made again starts empty anyway, without a warning."""
        attempt(store, 2, 2, item="page-7").set("done", 40)
        again = attempt(store, 1, 9, item="page-8")
        assert again.get("done") is None
        assert caplog.records == []
        again.set("done", 1)
        assert attempt(store, 2, 10, item="page-8").get("done") == 1

    def test_beginning_an_attempt_tells_that_the_item_changed(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Where keepstate itself begins attempts, the answer says whether the state was set aside."""

        def begin(order: int, item: str) -> bool:
            request = Begin(
                THIRD, attempt_id(order), Holder("host", order, "then"), clock(), 0, item=item, take_over=True
            )
            return store.backend.begin(request).reset

        def at_attempt(number: int) -> TaskStateStore:
            return store.bound(THIRD, Fence(number, attempt_id(number)), Writer("task", try_number=number))

        assert not begin(1, "page-7")
        at_attempt(1).set("done", 40)
        assert not begin(2, "page-7")
        assert at_attempt(2).get("done") == 40
        assert begin(3, "page-8")
        assert at_attempt(3).get("done") is None
