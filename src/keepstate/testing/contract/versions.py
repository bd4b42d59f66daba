"""Versions: a number that rises by one with every change in a scope, and compare-and-set over it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from keepstate.backends.requests import Batch, Change, Delete, Put
from keepstate.errors import InvalidTypeError, InvalidValueError, VersionConflictError
from keepstate.scope import Writer
from keepstate.testing.contract.ground import DAG, RUN, SCOPE, TASK, Ground, attempt, contents

if TYPE_CHECKING:
    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock


class Versions(Ground):
    """What a version says, and writing only over the one that is expected."""

    def test_every_change_has_the_next_version(self, store: StateStore) -> None:
        """Whatever key it touches; an entry's version is that of its own last change."""
        tss = attempt(store, 1)
        tss.set("a", 1)
        tss.set("b", 1)
        tss.set("a", 2)
        tss.set_many({"c": 1, "d": 1})
        tss.increment("b")
        assert _versions(tss) == {"a": 3, "b": 5, "c": 4, "d": 4}
        tss.delete("c")
        tss.set("c", 2)
        assert _versions(tss)["c"] == 7
        tss.clear()
        tss.set("a", 3)
        assert _versions(tss) == {"a": 9}

    def test_what_changes_nothing_has_no_version(self, store: StateStore) -> None:
        """Deleting what is absent, clearing what is empty, writing no values, and being refused."""
        tss = attempt(store, 1)
        tss.set("a", 1)
        tss.delete("absent")
        tss.set_many({})
        with pytest.raises(VersionConflictError):
            tss.set("a", 2, if_version=7)
        store.task(DAG, RUN, TASK, map_index=0).clear()
        tss.set("a", 2)
        assert _versions(tss) == {"a": 2}
        tss.delete("a")
        tss.clear()
        tss.set("a", 3)
        assert _versions(tss) == {"a": 4}

    def test_versions_of_each_scope_are_its_own(self, store: StateStore) -> None:
        """Map indices, tasks and assets count by themselves."""
        attempt(store, 1).set("a", 1)
        attempt(store, 1).set("a", 2)
        attempt(store, 1, map_index=0).set("a", 1)
        store.asset("orders").set("a", 1)
        assert _versions(attempt(store)) == {"a": 2}
        assert _versions(attempt(store, map_index=0)) == {"a": 1}
        found = store.asset("orders").entry("a")
        assert found is not None
        assert found.version == 1

    def test_a_write_over_the_expected_version_applies(self, store: StateStore) -> None:
        """Another key's change does not matter to it."""
        tss = attempt(store, 1)
        tss.set("a", 1, if_version=0)
        tss.set("b", 1)
        tss.set("a", 2, if_version=1)
        tss.set("a", 3, if_version=3)
        assert dict(tss.items()) == {"a": 3, "b": 1}

    @pytest.mark.parametrize(("expected", "actual"), [(0, 2), (1, 2), (3, 2), (99, 2)])
    def test_a_write_over_another_version_is_refused(
        self, store: StateStore, expected: int, actual: int
    ) -> None:
        """With both versions in the error, and nothing changed."""
        tss = attempt(store, 1)
        tss.set("a", 1)
        tss.set("a", 2)
        with pytest.raises(VersionConflictError, match="read it again") as caught:
            tss.set("a", 3, if_version=expected)
        assert (caught.value.key, caught.value.expected, caught.value.actual) == ("a", expected, actual)
        assert tss.get("a") == 2
        assert len(tss.history("a")) == 2

    def test_an_absent_key_stands_at_version_0(self, store: StateStore) -> None:
        """Never written, deleted, or cleared: only ``if_version=0`` writes."""
        tss = attempt(store, 1)
        for make_absent in ("nothing", "delete", "clear"):
            if make_absent == "delete":
                tss.delete("a")
            elif make_absent == "clear":
                tss.clear()
            for version in (1, 2, 3):
                with pytest.raises(VersionConflictError) as caught:
                    tss.set("a", 1, if_version=version)
                assert caught.value.actual == 0
            tss.set("a", 1, if_version=0)

    def test_an_asset_compares_and_sets_too(self, store: StateStore) -> None:
        """The same promise for assets."""
        asset = store.asset("orders")
        asset.set("a", 1, if_version=0)
        asset.set("a", 2, if_version=1)
        with pytest.raises(VersionConflictError):
            asset.set("a", 3, if_version=1)
        assert asset.get("a") == 2

    @pytest.mark.parametrize(
        "changes",
        [
            (Put("a", "9", None), Put("b", "9", None, expected=7)),
            (Put("b", "9", None, expected=7), Put("a", "9", None)),
            (Put("a", "9", None, expected=1), Delete("b", expected=1)),
            (Delete("a"), Delete("absent", expected=1)),
            (Delete("b", expected=2), Put("new", "9", None), Put("a", "9", None, expected=0)),
        ],
    )
    def test_a_batch_applies_as_a_whole_or_not_at_all(
        self, store: StateStore, clock: ManualClock, changes: tuple[Change, ...]
    ) -> None:
        """One expectation that fails leaves every key as it was, wherever in the batch it stands."""
        attempt(store).set("a", 1)
        attempt(store).set("b", 1)
        with pytest.raises(VersionConflictError):
            store.backend.apply(Batch(SCOPE, changes, clock(), Writer("api")))
        assert _versions(attempt(store)) == {"a": 1, "b": 2}
        assert contents(store) == {"a": 1, "b": 1}

    def test_a_batch_that_is_refused_registers_no_attempt(self, store: StateStore) -> None:
        """The attempt that it would have registered has not begun, nor its task instance."""
        attempt(store, 1).set("a", 1)
        with pytest.raises(VersionConflictError):
            attempt(store, 2).set("a", 2, if_version=9)
        attempt(store, 1).set("a", 3)
        with pytest.raises(VersionConflictError):
            store.task(DAG, "another", TASK, try_number=1).set("a", 1, if_version=1)
        assert [info.run_id for info in store.runs()] == [RUN]

    def test_a_batch_may_expect_all_it_changes(self, store: StateStore, clock: ManualClock) -> None:
        """Puts and deletes with the versions they expect apply together, under one version."""
        attempt(store).set("a", 1)
        attempt(store).set("b", 1)
        applied = store.backend.apply(
            Batch(
                SCOPE,
                (Put("a", "2", None, 1), Delete("b", 2), Put("c", "3", None, 0), Delete("absent", 0)),
                clock(),
                Writer("api"),
            )
        )
        assert applied.version == 3
        assert contents(store) == {"a": 2, "c": 3}
        assert _versions(attempt(store)) == {"a": 3, "c": 3}

    def test_writing_many_is_one_change(self, store: StateStore) -> None:
        """``set_many`` writes all or none: one bad value, and no key is written."""
        tss = attempt(store, 1)
        tss.set_many({"a": 1, "b": [2], "c": {"d": 3}})
        assert contents(store) == {"a": 1, "b": [2], "c": {"d": 3}}
        refused: list[tuple[Any, type[Exception]]] = [
            (None, InvalidValueError),
            (float("nan"), InvalidValueError),
            ((1,), InvalidTypeError),
        ]
        for bad, error in refused:
            with pytest.raises(error):
                tss.set_many({"a": 9, "bad": bad, "e": 9})
        assert contents(store) == {"a": 1, "b": [2], "c": {"d": 3}}
        assert set(_versions(tss).values()) == {1}

    def test_updating_gives_the_function_what_stands_there(self, store: StateStore) -> None:
        """Or the default where nothing does; the new value is stored and returned."""
        tss = attempt(store, 1)
        seen: list[object] = []

        def extend(value: list[int] | None) -> list[int]:
            seen.append(value)
            return [*(value or []), len(seen)]

        assert tss.update("pages", extend) == [1]
        assert tss.update("pages", extend, [7]) == [1, 2]
        assert tss.update("other", extend, [7]) == [7, 3]
        assert seen == [None, [1], [7]]
        assert contents(store) == {"pages": [1, 2], "other": [7, 3]}

    @pytest.mark.parametrize(
        ("result", "error"),
        [(None, InvalidValueError), ((1,), InvalidTypeError), (float("inf"), InvalidValueError)],
    )
    def test_an_update_to_what_is_no_value_is_refused(
        self, store: StateStore, result: object, error: type[Exception]
    ) -> None:
        """``fn`` returning ``None`` is a ``ValueError``; nothing changes."""
        tss = attempt(store, 1)
        tss.set("a", 1)
        with pytest.raises(error):
            tss.update("a", lambda _: result)  # type: ignore[arg-type, return-value]
        assert contents(store) == {"a": 1}

    def test_an_error_of_the_update_function_is_the_callers(self, store: StateStore) -> None:
        """It comes through as it is, and nothing changes."""
        tss = attempt(store, 1)
        tss.set("a", 1)
        with pytest.raises(ZeroDivisionError):
            tss.update("a", lambda value: value / 0)
        assert contents(store) == {"a": 1}

    def test_incrementing_adds_and_tells_the_sum(self, store: StateStore) -> None:
        """From 0 where there is nothing; whole numbers stay whole, however large."""
        tss = attempt(store, 1)
        assert tss.increment("n") == 1
        assert tss.increment("n", 41) == 42
        assert tss.increment("n", -44) == -2
        assert tss.increment("n", 10**30) == 10**30 - 2
        assert type(tss.get("n")) is int
        assert tss.increment("x", 0.5) == 0.5
        assert tss.increment("x") == 1.5
        assert tss.increment("n", 0.0) == 1e30

    @pytest.mark.parametrize("value", ["1", True, [1], {"n": 1}])
    def test_incrementing_what_is_no_number_is_refused(self, store: StateStore, value: object) -> None:
        """A ``TypeError`` that shows what is there; nothing changes."""
        tss = attempt(store, 1)
        tss.set("n", value)  # type: ignore[arg-type]
        with pytest.raises(InvalidTypeError, match="no number"):
            tss.increment("n")
        assert contents(store) == {"n": value}

    @pytest.mark.parametrize("by", ["1", True, None, [1]])
    def test_incrementing_by_what_is_no_number_is_refused(self, store: StateStore, by: object) -> None:
        """A ``TypeError`` too, and no key is made."""
        with pytest.raises(InvalidTypeError, match="number"):
            attempt(store, 1).increment("n", by)  # type: ignore[arg-type]
        assert contents(store) == {}

    def test_an_increment_past_what_json_holds_is_refused(self, store: StateStore) -> None:
        """Infinity is no value; the largest number stays."""
        tss = attempt(store, 1)
        tss.set("n", 1.7976931348623157e308)
        with pytest.raises(InvalidValueError):
            tss.increment("n", 1.7976931348623157e308)
        assert contents(store) == {"n": 1.7976931348623157e308}

    @pytest.mark.parametrize(
        ("stored", "by"), [(10**400, 0.5), (0.5, 10**400), (0.5, 10**5000)], ids=["stored", "added", "untold"]
    )
    def test_an_integer_that_no_float_can_hold_is_not_added_to_one(
        self, store: StateStore, stored: float, by: float
    ) -> None:
        """What stood there stays; integers are added to each other, however large."""
        tss = attempt(store, 1)
        tss.set("n", stored)
        with pytest.raises(
            InvalidValueError, match=r"increment\('n'\) would add a float and an integer"
        ) as refused:
            tss.increment("n", by)
        assert refused.value.path == "value"
        assert contents(store) == {"n": stored}
        tss.set("n", 10**400)
        assert tss.increment("n") == 10**400 + 1


def _versions(tss: TaskStateStore) -> dict[str, int]:
    return {entry.key: entry.version for entry in tss.entries()}
