"""Fencing: whose writes count, for every verb and every order of attempts."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.errors import StaleAttemptError, VersionConflictError
from keepstate.testing.contract.ground import DAG, RUN, SCOPE, TASK, Ground, attempt, contents
from keepstate.testing.contract.situations import (
    MAY_WRITE,
    OUTLIVED,
    STARTS_EMPTY,
    STARTS_FROM_NOTHING,
    SUPERSEDED,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

ITEMS = ["a", "b"]
DONE = {"position": 2, "total": 2, "done": True}


@dataclass(frozen=True)
class Verb:
    """A way to write. ``do`` gets the version at which ``n`` stands; the dicts say what is there after it, over what `situations` left."""

    do: Callable[[TaskStateStore, int], object]
    over_old: dict[str, Any]
    over_nothing: dict[str, Any] = field(default_factory=dict)


VERBS = {
    "set": Verb(lambda tss, _: tss.set("n", 9), {"n": 9, "kept": "x"}, {"n": 9}),
    "set_many": Verb(
        lambda tss, _: tss.set_many({"n": 9, "m": 8}), {"n": 9, "m": 8, "kept": "x"}, {"n": 9, "m": 8}
    ),
    "set if_version": Verb(
        lambda tss, version: tss.set("n", 9, if_version=version), {"n": 9, "kept": "x"}, {"n": 9}
    ),
    "update": Verb(lambda tss, _: tss.update("n", lambda n: n + 10, 0), {"n": 11, "kept": "x"}, {"n": 10}),
    "increment": Verb(lambda tss, _: tss.increment("n", 5), {"n": 6, "kept": "x"}, {"n": 5}),
    "delete": Verb(lambda tss, _: tss.delete("n"), {"kept": "x"}),
    "clear": Verb(lambda tss, _: tss.clear(), {}),
    "clear forget": Verb(lambda tss, _: tss.clear(forget=True), {}),
    "restore": Verb(lambda tss, _: tss.restore("n", 1), {"n": 0, "kept": "x"}, {"n": 0}),
    "checkpoint": Verb(
        lambda tss, _: list(tss.checkpoint(ITEMS)),
        {"n": 1, "kept": "x", "position": DONE},
        {"position": DONE},
    ),
    "swap": Verb(lambda tss, _: tss.swap({"m": 8}, drop=["n"]), {"m": 8, "kept": "x"}, {"m": 8}),
}

READS: dict[str, Callable[[TaskStateStore], object]] = {
    "get": lambda tss: tss.get("n"),
    "entry": lambda tss: tss.entry("n"),
    "entries": lambda tss: tss.entries(),
    "items": lambda tss: tss.items(),
    "get_many": lambda tss: tss.get_many(["n"]),
    "history": lambda tss: tss.history("n"),
}


def _named(situation: Callable[..., object]) -> str:
    return situation.__name__.strip("_")


class Fencing(Ground):
    """Every verb in every order of attempts."""

    @pytest.mark.parametrize("verb", VERBS)
    @pytest.mark.parametrize("situation", MAY_WRITE, ids=_named)
    def test_the_current_attempt_a_later_one_and_a_person_may_write(
        self, store: StateStore, situation: Callable[[StateStore], TaskStateStore], verb: str
    ) -> None:
        """And they go on from what stands there."""
        writer = situation(store)
        VERBS[verb].do(writer, _version_of_n(store))
        assert _without_fingerprint(contents(store)) == VERBS[verb].over_old

    @pytest.mark.parametrize("verb", VERBS)
    @pytest.mark.parametrize("situation", [*SUPERSEDED, *OUTLIVED], ids=_named)
    def test_a_stale_attempt_changes_nothing(
        self, store: StateStore, situation: Callable[[StateStore], TaskStateStore], verb: str
    ) -> None:
        """It gets a ``StaleAttemptError``, and entries, history, attempts and lists are as they were."""
        writer = situation(store)
        version = _version_of_n(store)
        before = _everything(store)
        with pytest.raises(StaleAttemptError, match="may not go on"):
            VERBS[verb].do(writer, version)
        assert _everything(store) == before

    @pytest.mark.parametrize("verb", VERBS)
    @pytest.mark.parametrize("situation", [*STARTS_EMPTY, *STARTS_FROM_NOTHING], ids=_named)
    def test_a_new_incarnation_starts_empty(
        self, store: StateStore, situation: Callable[[StateStore], TaskStateStore], verb: str
    ) -> None:
        """Whatever it does first, it does over nothing; what was there is in the history, or erased with its run."""
        writer = situation(store)
        if verb == "set if_version":
            with pytest.raises(VersionConflictError):
                VERBS[verb].do(writer, 2)
            assert dict(writer.items()) == {}
            VERBS[verb].do(writer, 0)
        elif verb == "restore" and situation in STARTS_FROM_NOTHING:
            with pytest.raises(LookupError):
                VERBS[verb].do(writer, 0)
            return
        else:
            VERBS[verb].do(writer, 0)
        assert _without_fingerprint(contents(store)) == VERBS[verb].over_nothing
        kept = [version.action for version in attempt(store).history("kept")]
        assert kept == (
            [] if situation in STARTS_FROM_NOTHING or verb == "clear forget" else ["reset", "set"]
        )

    @pytest.mark.parametrize("read", READS)
    @pytest.mark.parametrize("situation", [*STARTS_EMPTY, *STARTS_FROM_NOTHING], ids=_named)
    def test_a_new_incarnation_reads_nothing(
        self, store: StateStore, situation: Callable[[StateStore], TaskStateStore], read: str
    ) -> None:
        """Also where reading is the first it does."""
        reader = situation(store)
        READS[read](reader)
        assert dict(reader.items()) == {}
        assert contents(store) == {}

    @pytest.mark.parametrize("read", READS)
    def test_reading_registers_an_attempt(self, store: StateStore, read: str) -> None:
        """Once a later attempt has read anything, an earlier one may not write any more."""
        earlier = attempt(store, 1, 1)
        earlier.set("n", 0)
        READS[read](attempt(store, 2, 2))
        with pytest.raises(StaleAttemptError, match="attempt 2 has begun"):
            earlier.set("n", 1)
        assert contents(store) == {"n": 0}

    @pytest.mark.parametrize("read", READS)
    def test_reading_registers_an_attempt_in_an_empty_task_instance(
        self, store: StateStore, read: str
    ) -> None:
        """Also where no attempt has written anything yet, so that a latecomer never writes first."""
        READS[read](attempt(store, 2))
        with pytest.raises(StaleAttemptError):
            attempt(store, 1).set("n", 1)
        assert contents(store) == {}

    def test_making_an_accessor_registers_nothing(self, store: StateStore) -> None:
        """Only its first use does."""
        earlier = attempt(store, 1, 1)
        attempt(store, 2, 2)
        earlier.set("n", 0)
        assert [one.try_number for one in store.attempts(DAG, RUN, TASK)] == [1]

    @pytest.mark.parametrize("read", READS)
    @pytest.mark.parametrize("situation", SUPERSEDED, ids=_named)
    def test_a_superseded_attempt_still_reads(
        self, store: StateStore, situation: Callable[[StateStore], TaskStateStore], read: str
    ) -> None:
        """It sees what everybody sees, so that it can find out, and registers nothing by it."""
        reader = situation(store)
        before = _everything(store)
        assert _plain(READS[read](reader)) == _plain(READS[read](attempt(store)))
        assert _everything(store) == before

    @pytest.mark.parametrize("read", READS)
    @pytest.mark.parametrize("situation", OUTLIVED, ids=_named)
    def test_an_attempt_whose_incarnation_is_over_does_not_read(
        self, store: StateStore, situation: Callable[[StateStore], TaskStateStore], read: str
    ) -> None:
        """What it would find is another run's or another item's."""
        reader = situation(store)
        before = _everything(store)
        with pytest.raises(StaleAttemptError):
            READS[read](reader)
        assert _everything(store) == before

    def test_a_first_use_that_is_refused_registers_nothing(self, store: StateStore) -> None:
        """All or nothing: who wrote only if an entry stood at another version has not begun, and reading it begins."""
        earlier, later = attempt(store, 1, 1), attempt(store, 2, 2)
        earlier.set("n", 0)
        with pytest.raises(VersionConflictError):
            later.set("n", 9, if_version=0)
        assert [one.try_number for one in store.attempts(DAG, RUN, TASK)] == [1]
        earlier.set("n", 1)
        assert later.get("n") == 1
        with pytest.raises(StaleAttemptError):
            earlier.set("n", 2)

    def test_a_person_reads_without_a_trace(self, store: StateStore) -> None:
        """Reading a task instance that there is not makes none."""
        person = attempt(store)
        for read in READS.values():
            read(person)
        assert store.runs() == []
        assert store.task_instances(DAG, RUN) == []

    def test_the_error_tells_what_happened(self, store: StateStore) -> None:
        """It knows both attempts, names the task instance, and says what to do."""
        earlier = attempt(store, 1, 1)
        earlier.set("n", 0)
        attempt(store, 4, 4).get("n")
        with pytest.raises(StaleAttemptError) as caught:
            earlier.set("n", 1)
        assert (caught.value.try_number, caught.value.current_try_number) == (1, 4)
        assert str(SCOPE) in str(caught.value)
        assert "attempt 4 has begun since; let this process end" in str(caught.value)

    def test_the_error_tells_of_a_deleted_run(self, store: StateStore) -> None:
        """And of a task instance that was made again."""
        earlier = attempt(store, 1, 1)
        earlier.set("n", 0)
        store.delete_run(DAG, RUN)
        with pytest.raises(StaleAttemptError, match="its run was deleted"):
            earlier.set("n", 1)
        attempt(store, 1, 9).set("n", 0)
        with pytest.raises(StaleAttemptError, match="was made again"):
            earlier.set("n", 1)

    def test_ids_that_are_no_uuid7_are_told_apart(self, store: StateStore) -> None:
        """An engine's ids may be anything: one try has one id, the known one is stale once another has begun."""
        first = store.task(DAG, RUN, TASK, try_number=1, attempt_id="aaa")
        first.set("n", 0)
        store.task(DAG, RUN, TASK, try_number=1, attempt_id="zzz").set("n", 1)
        with pytest.raises(StaleAttemptError):
            first.set("n", 2)
        with pytest.raises(StaleAttemptError):
            store.task(DAG, RUN, TASK, try_number=1, attempt_id="aaa").set("n", 2)
        assert contents(store) == {"n": 1}

    def test_each_task_instance_has_its_own_attempts(self, store: StateStore) -> None:
        """A later attempt of one map index, task or run makes nothing stale in another."""
        mapped = [attempt(store, 1, index + 1, map_index=index) for index in range(3)]
        attempt(store, 5, 9, map_index=1).set("n", 5)
        mapped[0].set("n", 0)
        mapped[2].set("n", 2)
        with pytest.raises(StaleAttemptError):
            mapped[1].set("n", 1)

    @pytest.mark.parametrize("years", [1, 8000])
    def test_an_id_from_the_future_makes_no_later_one_stale(
        self, store: StateStore, clock: ManualClock, years: int
    ) -> None:
        """A clock that was wrong once begins no run made again, and does not lock out what comes after it."""
        milliseconds = clock() // 1000 + years * 365 * 86_400_000
        digits = f"{milliseconds:012x}"
        attempt(store, 1, 1).set("n", 1)
        wrong = store.task(
            DAG, RUN, TASK, try_number=2, attempt_id=f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"
        )
        assert wrong.get("n") == 1
        attempt(store, 2, 2).set("n", 2)
        assert contents(store) == {"n": 2}
        remade = attempt(store, 1, 3)
        assert remade.get("n") is None
        remade.set("n", 3)
        assert contents(store) == {"n": 3}

    def test_incarnations_follow_each_other(self, store: StateStore) -> None:
        """A run made again and again: each starts empty, each knows its own attempts, and all before are stale."""
        accessors: list[TaskStateStore] = []
        for number in range(1, 5):
            first, second = attempt(store, 1, 10 * number), attempt(store, 2, 10 * number + 1)
            assert first.get("n") is None
            first.set("n", number)
            assert second.get("n") == number
            for stale in [*accessors, first]:
                with pytest.raises(StaleAttemptError):
                    stale.set("n", 0)
            accessors += [first, second]
        assert contents(store) == {"n": 4}
        incarnations = [(one.incarnation, one.try_number) for one in store.attempts(DAG, RUN, TASK)]
        assert incarnations == [(4, 2), (4, 1), (3, 2), (3, 1), (2, 2), (2, 1), (1, 2), (1, 1)]

    @pytest.mark.parametrize("incarnations", [1, 2])
    @pytest.mark.parametrize("visited", ["by nobody", "by a person"])
    def test_an_attempt_goes_on_when_its_idle_task_instance_was_removed(
        self, store: StateStore, clock: ManualClock, incarnations: int, visited: str
    ) -> None:
        """Whether or not it had been made again before, and somebody has been there since."""
        accessors = [attempt(store, 1, order) for order in range(1, incarnations + 1)]
        for accessor in accessors:
            accessor.set("n", 0)
        live = accessors[-1]
        clock.advance(timedelta(days=31))
        assert store.cleanup().scopes > 0
        if visited == "by a person":
            attempt(store).set("m", 0)
        live.set("n", 8)
        live.set("n", 9)
        assert live.get("n") == 9
        with pytest.raises(StaleAttemptError):
            attempt(store, 1, 0).set("n", 0)
        attempt(store, 2, 10).set("n", 10)
        with pytest.raises(StaleAttemptError, match="attempt 2 has begun since"):
            live.set("n", 11)

    def test_an_attempt_of_a_deleted_run_is_late_for_good(self, store: StateStore) -> None:
        """Whatever its number, also from a process that has not used the store before, and after the run was made again."""
        for number in (1, 2, 3):
            attempt(store, number, 10 + number).set("k", number)
        store.delete_run(DAG, RUN)
        for number in (1, 2, 3):
            with pytest.raises(StaleAttemptError):
                attempt(store, number, 10 + number).set("k", number)
        attempt(store).set("k", "a person's")
        for number in (1, 2, 3):
            with pytest.raises(StaleAttemptError):
                attempt(store, number, 10 + number).set("k", number)
        attempt(store, 1, 20).set("k", "made again")
        for number in (1, 2, 3):
            late = attempt(store, number, 10 + number)
            with pytest.raises(StaleAttemptError):
                late.get("k")
            with pytest.raises(StaleAttemptError):
                late.set("k", number)
        assert attempt(store, 1, 20).get("k") == "made again"
        assert [one.try_number for one in store.attempts(DAG, RUN, TASK)] == [1]


def _version_of_n(store: StateStore) -> int:
    entry = attempt(store).entry("n")
    return entry.version if entry else 0


def _everything(store: StateStore) -> list[Any]:
    person = attempt(store)
    return [
        person.entries(),
        [person.history(key) for key in ("n", "kept", "old", "m", "position")],
        store.attempts(DAG, RUN, TASK),
        store.task_instances(DAG, RUN),
        store.runs(),
    ]


def _without_fingerprint(found: dict[str, Any]) -> dict[str, Any]:
    if "position" in found:
        del found["position"]["fingerprint"]
    return found


def _plain(found: object) -> object:
    return list(found) if isinstance(found, type({}.items())) else found
