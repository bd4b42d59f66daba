"""Attempts: beginning, beating and ending them where keepstate itself starts them, one at a time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.backends.answers import Begun, Outcome
from keepstate.backends.requests import Begin, End, Fence, Holder
from keepstate.errors import AlreadyRunningError, InvalidIdError, StaleAttemptError
from keepstate.scope import RunScope, TaskScope, Writer
from keepstate.testing.contract.ground import DAG, RUN, SCOPE, TASK, Ground, attempt, attempt_id, contents

if TYPE_CHECKING:
    from keepstate.backends.requests import HeldScope
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

SECOND = timedelta(seconds=1)
LEASE = 30_000_000
RUN_SCOPE = RunScope(DAG, RUN)


class Attempts(Ground):
    """An attempt is held by a process that gives signs of life."""

    @pytest.fixture(params=[SCOPE, TaskScope(DAG, RUN, TASK, 7), RUN_SCOPE], ids=["task", "mapped", "run"])
    def scope(self, request: pytest.FixtureRequest) -> HeldScope:
        """What the attempts are of: a task instance, a mapped one, or a run as a whole."""
        scope: HeldScope = request.param
        return scope

    def test_attempts_are_numbered_from_1_on(
        self, store: StateStore, clock: ManualClock, scope: HeldScope
    ) -> None:
        """The next one has the next number, whatever became of the one before."""
        for number, state in ((1, "failed"), (2, "up_for_retry"), (3, "success"), (4, "failed")):
            assert _begin(store, clock, scope, number) == Begun(number, 1)
            _end(store, clock, scope, number, state)
        states = [(one.try_number, one.state) for one in store.backend.attempts(scope)]
        assert states == [(4, "failed"), (3, "success"), (2, "up_for_retry"), (1, "failed")]

    def test_a_number_may_be_given(self, store: StateStore, clock: ManualClock, scope: HeldScope) -> None:
        """By who counts by itself; one that is not higher is stale."""
        assert _begin(store, clock, scope, 5, try_number=5).try_number == 5
        _end(store, clock, scope, 5, "failed")
        with pytest.raises(StaleAttemptError):
            _begin(store, clock, scope, 4, try_number=4)
        with pytest.raises(StaleAttemptError):
            _begin(store, clock, scope, 4, try_number=5)
        assert _begin(store, clock, scope, 8, try_number=8).try_number == 8
        assert [one.try_number for one in store.backend.attempts(scope)] == [8, 5]

    def test_a_living_attempt_refuses_another(
        self, store: StateStore, clock: ManualClock, scope: HeldScope
    ) -> None:
        """With an error that knows who holds it; nothing has changed."""
        _begin(store, clock, scope, 1)
        clock.advance(30 * SECOND)
        before = store.backend.attempts(scope)
        with pytest.raises(AlreadyRunningError, match="take over") as caught:
            _begin(store, clock, scope, 2)
        assert (caught.value.host, caught.value.pid, caught.value.try_number) == ("host", 1, 1)
        assert "process 1 on host" in str(caught.value)
        assert store.backend.attempts(scope) == before
        store.backend.beat(scope, Fence(1, attempt_id(1)), now=clock())

    def test_an_attempt_without_signs_of_life_is_lost(
        self, store: StateStore, clock: ManualClock, scope: HeldScope
    ) -> None:
        """Past its lease another begins, and the answer names the lost one, which may not go on."""
        _begin(store, clock, scope, 1)
        clock.advance(30 * SECOND + timedelta(microseconds=1))
        assert _begin(store, clock, scope, 2) == Begun(2, 1, lost=(1,))
        later, earlier = store.backend.attempts(scope)
        assert (earlier.state, earlier.ended_at) == ("lost", clock.now)
        assert earlier.reason is not None
        assert (later.state, later.ended_at) == ("running", None)
        with pytest.raises(StaleAttemptError):
            store.backend.beat(scope, Fence(1, attempt_id(1)), now=clock())
        with pytest.raises(StaleAttemptError):
            _end(store, clock, scope, 1, "success")
        assert store.backend.attempts(scope) == [later, earlier]
        assert store.backend.outcome(scope) is None

    def test_signs_of_life_keep_it(self, store: StateStore, clock: ManualClock, scope: HeldScope) -> None:
        """Each counts the lease anew."""
        _begin(store, clock, scope, 1)
        begun = clock.now
        for _ in range(5):
            clock.advance(20 * SECOND)
            store.backend.beat(scope, Fence(1, attempt_id(1)), now=clock())
        with pytest.raises(AlreadyRunningError):
            _begin(store, clock, scope, 2)
        (one,) = store.backend.attempts(scope)
        assert (one.started_at, one.beat_at, one.ended_at) == (begun, clock.now, None)
        assert (one.host, one.pid, one.attempt_id) == ("host", 1, attempt_id(1))

    def test_an_attempt_that_no_process_holds_refuses_none(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """As one that an engine began, whatever signs of life come from it."""
        attempt(store, 1, 1).set("k", 1)
        store.backend.beat(SCOPE, Fence(1, attempt_id(1)), now=clock())
        assert _begin(store, clock, SCOPE, 2) == Begun(2, 1, lost=(1,))

    def test_a_living_attempt_may_be_taken_over(
        self, store: StateStore, clock: ManualClock, scope: HeldScope
    ) -> None:
        """By who insists; the one before is lost, and stale."""
        _begin(store, clock, scope, 1)
        assert _begin(store, clock, scope, 2, take_over=True) == Begun(2, 1, lost=(1,))
        with pytest.raises(StaleAttemptError):
            store.backend.beat(scope, Fence(1, attempt_id(1)), now=clock())

    def test_an_attempt_known_to_be_dead_does_not_refuse(
        self, store: StateStore, clock: ManualClock, scope: HeldScope
    ) -> None:
        """Who has seen its process gone says so, and need not wait; naming another one does not help."""
        _begin(store, clock, scope, 1)
        for wrong in (Fence(1, attempt_id(2)), Fence(2, attempt_id(1)), Fence(1)):
            with pytest.raises(AlreadyRunningError):
                _begin(store, clock, scope, 2, dead=wrong)
        assert _begin(store, clock, scope, 2, dead=Fence(1, attempt_id(1))) == Begun(2, 1, lost=(1,))

    def test_beginning_again_with_the_same_id_gets_the_same_answer(
        self, store: StateStore, clock: ManualClock, scope: HeldScope
    ) -> None:
        """The first answer may have been lost on the way: it is not another attempt."""
        begun = _begin(store, clock, scope, 1)
        clock.advance(SECOND)
        again = _begin(store, clock, scope, 1)
        assert (again.try_number, again.incarnation) == (begun.try_number, begun.incarnation)
        assert len(store.backend.attempts(scope)) == 1

    def test_beginning_again_after_another_attempt_is_stale(
        self, store: StateStore, clock: ManualClock, scope: HeldScope
    ) -> None:
        """A request that was sent twice may arrive late: nobody would know of the attempt that it began."""
        for number in (1, 2):
            _begin(store, clock, scope, number)
            _end(store, clock, scope, number, "failed")
        for more in ({}, {"take_over": True}, {"try_number": 1}, {"try_number": 3}):
            with pytest.raises(StaleAttemptError):
                _begin(store, clock, scope, 1, **more)
        assert [one.try_number for one in store.backend.attempts(scope)] == [2, 1]
        store.delete_run(DAG, RUN)
        for number in (1, 2):
            with pytest.raises(StaleAttemptError):
                _begin(store, clock, scope, number)
        assert store.runs() == []
        assert _begin(store, clock, scope, 3).try_number == 1

    def test_ending_again_leaves_alone_what_was_stored_since(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Where the end clears: by a person, before the second copy of the request arrived."""
        _begin(store, clock, SCOPE, 1)
        attempt(store, 1, 1).set("k", 1)
        for _ in range(2):
            _end(store, clock, SCOPE, 1, "success", result="1", clear=True)
            assert contents(store) in ({}, {"k": 2})
            attempt(store).set("k", 2)
            clock.advance(SECOND)
        assert contents(store) == {"k": 2}
        (one,) = store.backend.attempts(SCOPE)
        assert one.ended_at == clock.now - 2 * SECOND

    def test_ending_twice_is_no_error(self, store: StateStore, clock: ManualClock, scope: HeldScope) -> None:
        """As the answer may have been lost; the end has its time, state and reason."""
        _begin(store, clock, scope, 1)
        clock.advance(SECOND)
        for _ in range(2):
            _end(store, clock, scope, 1, "failed", reason="exit code 3")
        (one,) = store.backend.attempts(scope)
        assert (one.state, one.reason, one.ended_at) == ("failed", "exit code 3", clock.now)

    @pytest.mark.parametrize(("first", "second"), [("success", "failed"), ("failed", "success")])
    def test_the_first_end_stands(
        self, store: StateStore, clock: ManualClock, scope: HeldScope, first: str, second: str
    ) -> None:
        """Somebody may have acted upon it: another one is refused, and changes nothing."""
        _begin(store, clock, scope, 1)
        _end(store, clock, scope, 1, first, result="1", arguments="a")
        before = store.backend.attempts(scope), store.backend.outcome(scope)
        clock.advance(SECOND)
        with pytest.raises(StaleAttemptError, match=f"ended as {first!r}"):
            _end(store, clock, scope, 1, second, result="2", clear=isinstance(scope, TaskScope))
        assert (store.backend.attempts(scope), store.backend.outcome(scope)) == before
        _end(store, clock, scope, 1, first, result="1", arguments="a")
        assert (store.backend.attempts(scope), store.backend.outcome(scope)) == before

    def test_numbers_of_attempts_end_somewhere(
        self, store: StateStore, clock: ManualClock, scope: HeldScope
    ) -> None:
        """What no backend could store is refused by each, and the last one goes on."""
        most = 2**31 - 1
        with pytest.raises(InvalidIdError):
            _begin(store, clock, scope, 1, try_number=most + 1)
        _begin(store, clock, scope, 1, try_number=most)
        _end(store, clock, scope, 1, "failed", number=most)
        with pytest.raises(InvalidIdError):
            _begin(store, clock, scope, 2)
        assert [(one.try_number, one.state) for one in store.backend.attempts(scope)] == [(most, "failed")]

    def test_an_attempt_that_ended_refuses_nobody(
        self, store: StateStore, clock: ManualClock, scope: HeldScope
    ) -> None:
        """At once, and it is not lost."""
        _begin(store, clock, scope, 1)
        _end(store, clock, scope, 1, "failed")
        assert _begin(store, clock, scope, 2) == Begun(2, 1)
        assert [one.state for one in store.backend.attempts(scope)] == ["running", "failed"]

    def test_a_sign_of_life_after_the_end_changes_nothing(
        self, store: StateStore, clock: ManualClock, scope: HeldScope
    ) -> None:
        """The heart may beat once more while the end is on its way."""
        _begin(store, clock, scope, 1)
        _end(store, clock, scope, 1, "success", result="1")
        before = store.backend.attempts(scope)
        clock.advance(SECOND)
        store.backend.beat(scope, Fence(1, attempt_id(1)), now=clock())
        assert store.backend.attempts(scope) == before

    def test_an_attempt_that_never_began_may_neither_beat_nor_end(
        self, store: StateStore, clock: ManualClock, scope: HeldScope
    ) -> None:
        """And leaves no trace."""
        with pytest.raises(StaleAttemptError):
            store.backend.beat(scope, Fence(1, attempt_id(1)), now=clock())
        with pytest.raises(StaleAttemptError):
            _end(store, clock, scope, 1, "success")
        assert store.runs() == []
        _begin(store, clock, scope, 1)
        with pytest.raises(StaleAttemptError):
            store.backend.beat(scope, Fence(2, attempt_id(2)), now=clock())

    def test_success_has_an_outcome(self, store: StateStore, clock: ManualClock, scope: HeldScope) -> None:
        """With result and arguments; while the attempt runs, or when it failed, there is none."""
        assert store.backend.outcome(scope) is None
        _begin(store, clock, scope, 1)
        assert store.backend.outcome(scope) is None
        _end(store, clock, scope, 1, "failed", result="0")
        assert store.backend.outcome(scope) is None
        _begin(store, clock, scope, 2)
        _end(store, clock, scope, 2, "success", result='{"rows": 7}', arguments="abc")
        assert store.backend.outcome(scope) == Outcome(2, '{"rows": 7}', "abc")
        _begin(store, clock, scope, 3)
        assert store.backend.outcome(scope) is None
        _end(store, clock, scope, 3, "success")
        assert store.backend.outcome(scope) == Outcome(3, None, None)

    def test_who_knows_no_ids_names_the_attempt_by_its_number(
        self, store: StateStore, clock: ManualClock, scope: HeldScope
    ) -> None:
        """A fence without an id is the current try: it beats and ends that very attempt."""
        _begin(store, clock, scope, 1)
        clock.advance(SECOND)
        store.backend.beat(scope, Fence(1), now=clock())
        assert store.backend.attempts(scope)[0].beat_at == clock.now
        store.backend.end(End(scope, Fence(1), "success", clock(), result="5"))
        (one,) = store.backend.attempts(scope)
        assert (one.state, one.ended_at) == ("success", clock.now)
        assert store.backend.outcome(scope) == Outcome(1, "5", None)

    def test_a_run_deleted_meanwhile_ends_its_attempts(
        self, store: StateStore, clock: ManualClock, scope: HeldScope
    ) -> None:
        """They may neither beat nor end; beginning again starts a new incarnation, with number 1."""
        begun = _begin(store, clock, scope, 1)
        store.delete_run(DAG, RUN)
        for fence in (Fence(1, attempt_id(1), incarnation=begun.incarnation), Fence(1, attempt_id(1))):
            with pytest.raises(StaleAttemptError):
                store.backend.beat(scope, fence, now=clock())
            with pytest.raises(StaleAttemptError):
                store.backend.end(End(scope, fence, "success", clock()))
        assert store.backend.attempts(scope) == []
        assert _begin(store, clock, scope, 2) == Begun(1, 2)
        assert [one.state for one in store.backend.attempts(scope)] == ["running"]

    def test_an_attempt_of_an_engine_refuses_nobody(self, store: StateStore, clock: ManualClock) -> None:
        """Where the engine decides, attempts are registered but not held: they give no signs of life."""
        attempt(store, 1, 1).set("k", 1)
        assert _begin(store, clock, SCOPE, 2) == Begun(2, 1, lost=(1,))
        attempt(store, 3, 3).get("k")
        first, second, third = reversed(store.attempts(DAG, RUN, TASK))
        assert (first.state, first.host, first.beat_at) == ("lost", None, None)
        assert (second.state, second.reason) == ("superseded", "superseded by attempt 3")
        assert (third.state, third.host, third.pid) == ("running", None, None)

    def test_beginning_fences(self, store: StateStore, clock: ManualClock) -> None:
        """From then on an earlier attempt writes nothing, though the new one has not written yet."""
        _begin(store, clock, SCOPE, 1)
        first = store.bound(SCOPE, Fence(1, attempt_id(1)), Writer("task", try_number=1))
        first.set("k", 1)
        _begin(store, clock, SCOPE, 2, take_over=True)
        with pytest.raises(StaleAttemptError):
            first.set("k", 2)
        second = store.bound(SCOPE, Fence(2, attempt_id(2)), Writer("task", try_number=2))
        assert second.get("k") == 1
        second.set("k", 3)

    def test_success_may_clear_the_state(self, store: StateStore, clock: ManualClock) -> None:
        """In the same transaction (``clear_on_success``); its history stays for its days, the outcome for good."""
        _begin(store, clock, SCOPE, 1)
        attempt(store, 1, 1).set_many({"a": 1, "b": 2})
        store.backend.end(End(SCOPE, Fence(1, attempt_id(1)), "success", clock(), result="1", clear=True))
        assert contents(store) == {}
        assert [version.action for version in attempt(store).history("a")] == ["clear", "set"]
        assert store.backend.outcome(SCOPE) == Outcome(1, "1", None)
        clock.advance(timedelta(days=7))
        assert attempt(store).history("a") == []

    def test_a_stale_end_clears_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """An attempt thought dead does not take its successor's state along."""
        _begin(store, clock, SCOPE, 1)
        _begin(store, clock, SCOPE, 2, take_over=True)
        attempt(store, 2, 2).set("k", 2)
        with pytest.raises(StaleAttemptError):
            store.backend.end(End(SCOPE, Fence(1, attempt_id(1)), "success", clock(), clear=True))
        assert contents(store) == {"k": 2}

    def test_a_held_run_and_its_task_instances_are_apart(self, store: StateStore, clock: ManualClock) -> None:
        """Each has its own attempts and its own holder; the run's state is what the list of runs shows."""
        _begin(store, clock, RUN_SCOPE, 1)
        _begin(store, clock, SCOPE, 2)
        _end(store, clock, SCOPE, 2, "success", number=1)
        (info,) = store.runs()
        assert (info.state, info.try_number) == ("running", 1)
        with pytest.raises(AlreadyRunningError):
            _begin(store, clock, RUN_SCOPE, 3)
        _end(store, clock, RUN_SCOPE, 1, "failed")
        (info,) = store.runs()
        assert info.state == "failed"
        assert [one.attempt_id for one in store.attempts(DAG, RUN)] == [attempt_id(1)]
        assert [one.attempt_id for one in store.attempts(DAG, RUN, TASK)] == [attempt_id(2)]
        assert store.attempts(DAG, "absent") == []


def _begin(store: StateStore, clock: ManualClock, scope: HeldScope, order: int, **more: Any) -> Begun:
    holder = Holder("host", order, f"started {order}")
    return store.backend.begin(Begin(scope, attempt_id(order), holder, clock(), LEASE, **more))


def _end(
    store: StateStore,
    clock: ManualClock,
    scope: HeldScope,
    order: int,
    state: str,
    *,
    number: int | None = None,
    **more: Any,
) -> None:
    fence = Fence(number or order, attempt_id(order))
    store.backend.end(End(scope, fence, state, clock(), **more))
