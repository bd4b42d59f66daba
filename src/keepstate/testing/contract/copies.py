"""Copies of whole scopes: equal to their originals, fenced like them, and made again at will."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from keepstate import copies
from keepstate.backends.images import Fate, Image, Selection, Tally
from keepstate.backends.memory import MemoryBackend
from keepstate.backends.requests import Begin, Clear, End, Fence, Holder
from keepstate.errors import AlreadyRunningError, StaleAttemptError, VersionConflictError
from keepstate.scope import AssetScope, RunScope, TaskScope, Writer
from keepstate.settings import Settings
from keepstate.store import StateStore
from keepstate.testing.contract.ground import DAG, RUN, SCOPE, TASK, Ground, attempt, attempt_id, contents

if TYPE_CHECKING:
    from keepstate.testing import ManualClock

ALL = Selection()
HOUR = timedelta(hours=1)


def images(store: StateStore, selection: Selection = ALL) -> list[Image]:
    """Return what a store holds, without what was copied into it, and with what every backend knows of attempts."""
    return [
        replace(one, origin=None, attempts=tuple(replace(at, item=None) for at in one.attempts))
        for batch in copies.images_of(store, selection)
        for one in batch
    ]


def copy(source: StateStore, target: StateStore, *, overwrite: bool = False) -> copies.Progress:
    """Copy everything."""
    return copies.take_in(target, copies.images_of(source, ALL), overwrite=overwrite)


def _ids(scope: TaskScope) -> tuple[str, str, str]:
    return scope.dag_id, scope.run_id, scope.task_id


class Copies(Ground):
    """What `keepstate copy`, `export` and `import` stand on."""

    @pytest.fixture
    def other(self, clock: ManualClock) -> StateStore:
        """Another store, in memory."""
        return StateStore(MemoryBackend(), settings=Settings(), clock=clock)

    def fill(self, store: StateStore, clock: ManualClock) -> None:
        """Write some of everything that there is."""
        backend, holder = store.backend, Holder("host", 7, "then")
        run = RunScope(DAG, RUN)
        backend.begin(Begin(run, attempt_id(1), holder, store.clock(), 10**9))
        first = backend.begin(Begin(SCOPE, attempt_id(2), holder, store.clock(), 10**9, item="a"))
        state = store.bound(
            SCOPE, Fence(1, attempt_id(2), "a", first.incarnation), Writer("task", try_number=1)
        )
        state.set_many({"page": 1, "é/💾": {"a": [1.5, None, "\u2028"]}, "gone": True})
        clock.advance(HOUR)
        state.set("page", 2, retention=HOUR * 5)
        state.set("brief", 1, retention=HOUR)
        state.delete("gone")
        fence = Fence(1, attempt_id(2), incarnation=first.incarnation)
        backend.end(End(SCOPE, fence, "success", store.clock(), reason="x", result="[1]", arguments="f"))
        store.task(DAG, RUN, TASK, map_index=3, try_number=2).set("k", "v")
        store.task("b", "r", "t").set("k", "v")
        store.delete_run("b", "r")
        store.asset("orders", uri="s3://orders", writer=Writer("watcher", name="w")).set("at", 5)
        store.asset("empty").clear()
        clock.advance(HOUR)

    def test_a_copy_is_its_original(self, store: StateStore, other: StateStore, clock: ManualClock) -> None:
        """There and back: entries with versions, times and writers, history, attempts, runs, assets; nothing that has expired."""
        self.fill(store, clock)
        assert copy(store, other).copied == 7
        assert images(other) == images(store)
        for scope in [one.head.scope for one in images(store)]:
            if isinstance(scope, AssetScope):
                store.delete_asset(scope.name)
        # what the first copy came from is replaced as a whole: it stands as it was copied
        attempt(other).set("page", 3)
        assert copy(other, store).left_alone == 0
        assert images(store, Selection(dag_id=DAG)) == images(other, Selection(dag_id=DAG))
        assert contents(store) == {"page": 3, "é/💾": {"a": [1.5, None, "\u2028"]}}
        assert [one.value for one in attempt(store).history("page")] == [3, 2, 1]
        assert [one.action for one in attempt(store).history("gone")] == ["delete", "set"]
        assert store.asset("orders").get("at") == 5
        assert store.backend.outcome(SCOPE) == other.backend.outcome(SCOPE) is not None

    def test_fences_and_versions_go_along(
        self, store: StateStore, other: StateStore, clock: ManualClock
    ) -> None:
        """What is stale there is stale here; a living attempt holds its scope, and goes on; compare-and-set goes on."""
        self.fill(other, clock)
        attempt(other, 2, 4).set("page", 9)
        attempt(other).set("n", 1)
        entry = attempt(other).entry("n")
        assert entry is not None
        version = entry.version
        copy(other, store)
        with pytest.raises(StaleAttemptError):
            attempt(store, 1, 2).set("page", 0)
        attempt(store, 2, 4).set("page", 10)
        with pytest.raises(AlreadyRunningError):
            store.backend.begin(
                Begin(RunScope(DAG, RUN), attempt_id(9), Holder("h", 8, "x"), store.clock(), 10**12)
            )
        with pytest.raises(VersionConflictError):
            attempt(store).set("n", 2, if_version=version - 1)
        attempt(store).set("n", 2, if_version=version)
        # it ran before its run was deleted
        with pytest.raises(StaleAttemptError):
            store.bound(TaskScope("b", "r", "t"), Fence(1, attempt_id(0), incarnation=1), Writer("task")).set(
                "k", 1
            )

    def test_an_overwriting_copy_restores(
        self, store: StateStore, other: StateStore, clock: ManualClock
    ) -> None:
        """What the target has changed since, or lost, is as in the source again; done once more, there is nothing to do."""
        self.fill(other, clock)
        copy(other, store)
        attempt(store).set("page", 99)
        store.asset("orders").set("at", 99)
        store.delete_run("b", "r")
        assert copy(other, store).copied == 0
        done = copy(other, store, overwrite=True)
        assert (done.copied, done.left_alone) == (2, 0)
        assert images(store) == images(other)
        store.delete_run(DAG, RUN)
        assert copy(other, store, overwrite=True).copied == 3
        assert contents(store) == contents(other)
        assert copy(other, store, overwrite=True).copied == 0

    def test_a_second_copy_brings_what_is_new(
        self, store: StateStore, other: StateStore, clock: ManualClock
    ) -> None:
        """And nothing else; what the target has written by itself stays, and where both have, that is told."""
        self.fill(other, clock)
        copy(other, store)
        again = copy(other, store)
        assert (again.copied, again.unchanged) == (0, 7)
        attempt(store).set("own", 1)
        assert copy(other, store).copied == 0
        other.task(DAG, RUN, "new").set("k", 1)
        attempt(other, map_index=3).set("k", "w")
        clock.advance(HOUR)
        assert copy(other, store).copied == 2
        assert attempt(store, map_index=3).get("k") == "w"
        attempt(other).set("page", 99)
        before = images(store)
        done = copy(other, store)
        assert (done.copied, done.left_alone, done.conflicts) == (0, 1, (str(SCOPE),))
        assert images(store) == before
        assert copy(other, store, overwrite=True).copied == 1
        assert attempt(store).get("own") is None
        assert attempt(store).get("page") == 99

    def test_what_is_there_by_itself_is_left_alone(
        self, store: StateStore, other: StateStore, clock: ManualClock
    ) -> None:
        """A scope of the same ids, or an asset of which only half the name is the same."""
        attempt(store).set("k", "mine")
        store.asset("a", uri="one").set("k", "mine")
        store.asset("b", uri="two").set("k", "mine")
        clock.advance(HOUR)
        attempt(other).set("k", "other")
        other.asset("a", uri="two").set("k", "other")
        before = images(store)
        assert copy(other, store).left_alone == 3
        assert images(store) == before
        done = copy(other, store, overwrite=True)
        assert (done.copied, done.left_alone) == (3, 0)
        assert contents(store) == {"k": "other"}
        # the one that had its uri is still there, by its name
        assert store.asset(uri="two").get("k") == "other"
        assert store.asset("b").get("k") == "mine"

    def test_an_asset_that_was_renamed(
        self, store: StateStore, other: StateStore, clock: ManualClock
    ) -> None:
        """Its copy is renamed with it."""
        other.asset("a", uri="one").set("k", 1)
        copy(other, store)
        clock.advance(HOUR)
        other.asset("a", uri="two").set("k", 2)
        assert copy(other, store).copied == 1
        assert store.asset(uri="two").get("k") == 2
        assert [one.uri for one in store.assets()] == ["two"]

    def test_uris_that_were_moved_around(
        self, store: StateStore, other: StateStore, clock: ManualClock
    ) -> None:
        """Whatever order they come in, each asset ends up with its own; one of the target's own keeps its uri."""
        for number in range(4):
            other.asset(f"n{number}", uri=f"u{number}").set("k", number)
        copy(other, store)
        clock.advance(HOUR)
        other.asset("n0", uri="aside").set("k", 0)
        for number, uri in ((3, "u0"), (2, "u3"), (1, "u2"), (0, "u1")):
            other.asset(f"n{number}", uri=uri).set("k", number)
        assert (copy(other, store).copied, copy(other, store).copied) == (4, 0)
        assert images(store) == images(other)
        assert [store.asset(uri=f"u{number}").get("k") for number in range(4)] == [3, 0, 1, 2]
        # a new one takes the uri of a known one
        other.asset("n3", uri="aside").set("k", 3)
        other.asset("n4", uri="u0").set("k", 4)
        assert copy(other, store).left_alone == 0
        assert store.asset(uri="u0").get("k") == 4
        store.asset("n1").set("k", "own")
        other.asset("n1", uri="elsewhere").set("k", 1)
        other.asset("n0", uri="u2").set("k", 0)
        done = copy(other, store)
        assert (done.copied, done.left_alone) == (0, 2)
        assert store.asset(uri="u2").get("k") == "own"
        assert copy(other, store, overwrite=True).left_alone == 0
        assert images(store) == images(other)

    def test_only_what_goes_on_from_there_replaces(
        self, store: StateStore, other: StateStore, clock: ManualClock
    ) -> None:
        """Not an earlier state that comes late, nor another store's, however much has happened there."""
        attempt(other, 1).set("k", 1)
        old = [one for batch in copies.images_of(other, ALL) for one in batch]
        attempt(other, 2).set("k", 2)
        copy(other, store)
        done = copies.take_in(store, [old])
        assert (done.copied, done.conflicts) == (0, (str(SCOPE),))
        with pytest.raises(StaleAttemptError):
            attempt(store, 1).set("k", 0)
        clock.advance(HOUR)
        stranger = StateStore(MemoryBackend(), settings=Settings(), clock=clock)
        for number in range(3):
            attempt(stranger, number + 2).set("k", number)
        assert copy(stranger, store).left_alone == 2
        assert contents(store) == {"k": 2}
        # by way of a third, and from there back to where it began
        copy(store, third := StateStore(MemoryBackend(), settings=Settings(), clock=clock))
        attempt(other, 3).set("k", 3)
        assert (copy(other, third).left_alone, contents(third)) == (0, {"k": 3})
        attempt(third, 4).set("k", 4)
        assert (copy(third, other).left_alone, contents(other)) == (0, {"k": 4})

    def test_of_a_store_and_its_duplicate_one_replaces_what_is_its_own(
        self, store: StateStore, other: StateStore, clock: ManualClock
    ) -> None:
        """Not what the other has written since: a duplicated file has the name of its original, and not its course."""
        second = TaskScope(DAG, RUN, "second")
        run = RunScope(DAG, RUN)
        attempt(other).set("k", 1)
        other.task(*_ids(second)).set("k", 1)
        copy(other, duplicate := StateStore(MemoryBackend(), settings=Settings(), clock=clock))
        copy(other, store)
        clock.advance(HOUR)
        attempt(other).set("k", 2)
        other.backend.begin(Begin(run, attempt_id(1), Holder("h", 1, "x"), other.clock(), 10**9))
        assert copy(other, store).left_alone == 0
        clock.advance(HOUR)
        attempt(duplicate).set("k", 3)
        attempt(duplicate).set("k", 4)
        duplicate.task(*_ids(second)).set("k", 5)
        duplicate.backend.begin(Begin(run, attempt_id(1), Holder("h", 2, "x"), duplicate.clock(), 10**9))
        name = next(iter(copies.images_of(other, ALL)))[0].store
        disguised = [[replace(one, store=name, origin=None) for one in images(duplicate)]]
        before = contents(store)
        done = copies.take_in(store, disguised)
        assert (done.copied, set(done.conflicts)) == (1, {str(run), str(SCOPE)})
        assert contents(store) == before == {"k": 2}
        assert store.task(*_ids(second)).get("k") == 5
        assert copies.take_in(store, disguised, overwrite=True).left_alone == 0
        assert contents(store) == {"k": 4}

    def test_what_comes_back_to_its_own_store_changes_nothing(
        self, store: StateStore, other: StateStore, clock: ManualClock
    ) -> None:
        """It is not held to be a copy, which another store might replace."""
        attempt(store).set("k", "own")
        assert copies.take_in(store, list(copies.images_of(store, ALL))).copied == 0
        clock.advance(HOUR)
        attempt(other).set("k", "other")
        assert copy(other, store).left_alone == 2
        assert contents(store) == {"k": "own"}

    def test_what_was_deleted_and_made_again(
        self, store: StateStore, other: StateStore, clock: ManualClock
    ) -> None:
        """It goes on in the copy, with whatever number its versions begin."""
        other.asset("a").set("k", 1)
        other.asset("a").set("k", 2)
        attempt(other, 3).set("k", 1)
        copy(other, store)
        clock.advance(HOUR)
        other.delete_asset("a")
        other.delete_run(DAG, RUN)
        assert copy(other, store).left_alone == 0
        assert (contents(store), store.asset("a").get("k")) == ({}, 2)
        clock.advance(HOUR)
        other.asset("a").set("k", 3)
        attempt(other).set("k", 2)
        assert copy(other, store).left_alone == 0
        assert (contents(store), store.asset("a").get("k")) == ({"k": 2}, 3)

    def test_parts(self, store: StateStore, clock: ManualClock) -> None:
        """Runs of a dag, of a pattern, of an id; assets by theirs; and counts of each."""
        self.fill(store, clock)
        for dag_id in ("etl_1", "etl_2"):
            store.task(dag_id, "r", "t").set("k", 1)

        def names(**selection: str) -> list[str]:
            chosen = Selection(**selection)
            found = images(store, chosen)
            tally = store.backend.tally(chosen, now=store.clock())  # type: ignore[attr-defined]
            shown = [one for one in found if not one.head.deleted]
            assert tally == Tally(
                sum(isinstance(one.head.scope, TaskScope) for one in shown),
                sum(isinstance(one.head.scope, RunScope) for one in shown),
                sum(isinstance(one.head.scope, AssetScope) for one in shown),
                sum(entry.text is not None for one in shown for entry in one.entries),
                sum(len(one.attempts) for one in shown),
            )
            return [str(one.head.scope) for one in shown]

        assert len(names()) == 9
        assert names(dag_id="etl_1") == ["etl_1 / r / t", "etl_1 / r"]
        assert names(dags="etl_*", run_id="r") == [*names(dag_id="etl_1"), *names(dag_id="etl_2")]
        assert names(dags="nothing*") == []
        assert names(assets="s3://*") == ["asset orders"]
        assert names(assets="*", dag_id="etl_2") == ["asset orders", "asset empty", *names(dag_id="etl_2")]

    def test_what_changes_meanwhile(self, store: StateStore, other: StateStore, clock: ManualClock) -> None:
        """Whatever is made behind the place where a copy is comes last; what is gone does not stop it."""
        for number in range(6):
            store.task(DAG, "r", f"t{number}").set("k", number)
        backend = copies.copyable(store)
        first = backend.images(ALL, now=store.clock(), after=0, limit=3)
        assert [place for place, _ in first] == sorted(place for place, _ in first)
        assert len(first) == 3
        store.task(DAG, "r", "late").set("k", 1)
        store.backend.clear(Clear(TaskScope(DAG, "r", "t5"), store.clock(), Writer("cli"), forget=True))
        rest = backend.images(ALL, now=store.clock(), after=first[-1][0], limit=100)
        found = [one.head.scope for _, one in (*first, *rest)]
        assert found[-1] == TaskScope(DAG, "r", "late")
        assert len(found) == len(set(found)) == 8
        fates = copies.copyable(other).take_in([one for _, one in rest], now=clock())
        assert set(fates) == {Fate.COPIED}
