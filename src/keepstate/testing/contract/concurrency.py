"""Eight threads at once: nothing is lost, nothing is half seen, and versions are in the order of commits."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from keepstate.errors import StaleAttemptError, VersionConflictError
from keepstate.testing.contract.ground import DAG, RUN, TASK, Ground, attempt, contents

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.store import StateStore

R = TypeVar("R")

THREADS = 8


def together(work: Callable[[int], R], threads: int = THREADS) -> list[R]:
    """Run ``work(0)``, ``work(1)``, … at the same time, and return what each returned."""
    barrier = threading.Barrier(threads)

    def run(number: int) -> R:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))


def _add(item: object, items: list[object]) -> list[object]:
    return [*items, item]


class Concurrency(Ground):
    """One store, shared by threads."""

    rounds = 15
    """How often each of the eight threads does its work. A binding may set more."""

    def test_no_increment_is_lost(self, store: StateStore) -> None:
        """Each gets a sum of its own, and together they are all numbers from 1 on."""

        def work(_: int) -> list[int]:
            tss = attempt(store, 1, 1)
            return [tss.increment("n") for _ in range(self.rounds)]

        sums = sorted(total for totals in together(work) for total in totals)
        assert sums == list(range(1, THREADS * self.rounds + 1))
        assert contents(store) == {"n": THREADS * self.rounds}

    def test_no_update_is_lost(self, store: StateStore) -> None:
        """A set of finished pages, kept by many hands, has them all."""

        def work(number: int) -> None:
            tss = attempt(store, 1, 1)
            for page in range(self.rounds):
                tss.update("pages", functools.partial(_add, [number, page]), [])

        together(work)
        pages = contents(store)["pages"]
        assert sorted(pages) == [[number, page] for number in range(THREADS) for page in range(self.rounds)]

    def test_updates_of_different_keys_do_not_hinder_each_other(self, store: StateStore) -> None:
        """They share a scope, and each key comes out right."""

        def work(number: int) -> None:
            tss = attempt(store, 1, 1)
            for _ in range(self.rounds):
                tss.increment(f"n{number}")

        together(work)
        assert contents(store) == {f"n{number}": self.rounds for number in range(THREADS)}

    def test_many_values_are_seen_together(self, store: StateStore) -> None:
        """While ``set_many`` writes pairs, no reader ever sees half of one."""
        attempt(store, 1, 1).set_many({"left": [0, 0], "right": [0, 0]})

        def work(number: int) -> list[dict[str, object]]:
            tss = attempt(store, 1, 1)
            seen = []
            for turn in range(self.rounds):
                if number % 2:
                    tss.set_many({"left": [number, turn], "right": [number, turn]})
                else:
                    seen += [dict(tss.items()), tss.get_many(["right", "left"])]
            return seen

        views = [view for views in together(work) for view in views]
        assert len(views) == THREADS * self.rounds
        assert all(view["left"] == view["right"] for view in views)

    def test_of_many_writers_over_one_version_one_wins(self, store: StateStore) -> None:
        """The others get a conflict, every time."""
        attempt(store, 1, 1).set("k", -1)

        def work(number: int) -> list[int]:
            tss = attempt(store, 1, 1)
            won = []
            for version in range(1, self.rounds + 1):
                barrier.wait()
                try:
                    tss.set("k", number, if_version=version)
                except VersionConflictError:
                    continue
                won.append(version)
            return won

        barrier = threading.Barrier(THREADS)
        won = sorted(version for versions in together(work) for version in versions)
        assert won == list(range(1, self.rounds + 1))
        entry = attempt(store).entry("k")
        assert entry is not None
        assert entry.version == self.rounds + 1

    def test_versions_are_in_the_order_of_commits(self, store: StateStore) -> None:
        """The history of a key has every version once, without a gap."""

        def work(number: int) -> None:
            tss = attempt(store, 1, 1)
            for turn in range(2):
                tss.set("k", [number, turn])

        together(work)
        versions = [version.version for version in attempt(store).history("k")]
        assert versions == list(range(2 * THREADS, 0, -1))

    def test_many_may_meet_a_new_task_instance_at_once(self, store: StateStore) -> None:
        """It is made once, and every write is in it; so is its run."""
        together(lambda number: attempt(store, 1, 1).set(f"k{number}", number))
        assert contents(store) == {f"k{number}": number for number in range(THREADS)}
        assert [info.run_id for info in store.runs()] == [RUN]
        together(lambda number: attempt(store, 1, 1, map_index=number).set("k", number))
        assert len(store.task_instances(DAG, RUN)) == THREADS + 1
        assert len(store.runs()) == 1

    def test_many_may_meet_a_new_asset_at_once(self, store: StateStore) -> None:
        """By name, by uri or by both, it is made once."""

        def work(number: int) -> None:
            names = [("orders", "s3://orders"), (None, "s3://orders"), ("orders", "s3://orders")]
            name, uri = names[number % 3]
            store.asset(name, uri=uri).set(f"k{number}", number)

        store.asset("orders", uri="s3://orders").clear()
        together(work)
        assert dict(store.asset("orders").items()) == {f"k{number}": number for number in range(THREADS)}
        assert len(store.assets()) == 1

    def test_of_many_attempts_the_latest_stands(self, store: StateStore) -> None:
        """In whatever order they come; after it has come, no other one writes."""

        def work(number: int) -> bool:
            tss = attempt(store, number + 1, number + 1)
            try:
                tss.set("k", number + 1)
            except StaleAttemptError:
                return False
            return True

        wrote = together(work)
        assert wrote[-1]
        assert contents(store) == {"k": THREADS}
        begun = sorted(one.try_number for one in store.attempts(DAG, RUN, TASK))
        assert begun == [number + 1 for number in range(THREADS) if wrote[number]]
        for number in range(THREADS - 1):
            assert not work(number)

    def test_clearing_meets_writing(self, store: StateStore) -> None:
        """A pair written in one call is there as a whole or gone as a whole."""

        def work(number: int) -> None:
            tss = attempt(store, 1, 1)
            for turn in range(self.rounds):
                if number:
                    tss.set_many({"left": [number, turn], "right": [number, turn]})
                else:
                    tss.clear()

        together(work)
        left = contents(store)
        assert set(left) in (set(), {"left", "right"})
        assert left.get("left") == left.get("right")
