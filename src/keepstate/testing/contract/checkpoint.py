"""`checkpoint`: what is done is not done again, and what is not done is not skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from keepstate.errors import CheckpointMismatchError, InvalidInputError
from keepstate.testing.contract.ground import Ground, attempt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.accessors import TaskStateStore
    from keepstate.store import StateStore


class _DiedError(Exception):
    """An attempt's end in the middle of an item."""


_NEVER = object()


def _work(
    tss: TaskStateStore, source: Any, done: list[Any], *, die_at: object = _NEVER, **options: Any
) -> None:
    for item in tss.checkpoint(source, **options):
        if item == die_at:
            raise _DiedError
        done.append(item)


class Checkpoints(Ground):
    """Attempts that die, one after another, over one source."""

    def test_each_item_is_done_once_over_all_attempts(self, store: StateStore) -> None:
        """But for the one in flight, which the next attempt begins with."""
        done: list[int] = []
        for number, die_at in enumerate((0, 3, 4, 4, 9, None), start=1):
            if die_at is None:
                _work(attempt(store, number, number), range(10), done)
            else:
                with pytest.raises(_DiedError):
                    _work(attempt(store, number, number), range(10), done, die_at=die_at)
                assert done == list(range(die_at))
        assert done == list(range(10))
        _work(attempt(store, 7, 7), range(10), done)
        assert done == list(range(10))

    def test_the_position_is_a_plain_value(self, store: StateStore) -> None:
        """Position, total and done, for progress bars; and the fingerprint of the last item done."""
        tss = attempt(store, 1)
        with pytest.raises(_DiedError):
            _work(tss, ["a", "b", "c"], [], die_at="c")
        found = tss.get("position")
        assert len(found.pop("fingerprint")) == 24
        assert found == {"position": 2, "total": 3, "done": False}
        _work(attempt(store, 2), ["a", "b", "c"], [])
        found = tss.get("position")
        del found["fingerprint"]
        assert found == {"position": 3, "total": 3, "done": True}

    def test_an_empty_source_is_done_at_once(self, store: StateStore) -> None:
        """And that is stored too."""
        done: list[int] = []
        for number in (1, 2):
            _work(attempt(store, number), [], done)
        assert done == []
        assert attempt(store).get("position") == {"position": 0, "total": 0, "done": True}

    def test_a_source_that_has_grown_goes_on(self, store: StateStore) -> None:
        """What came after the end is what is left."""
        done: list[int] = []
        _work(attempt(store, 1), [1, 2], done)
        _work(attempt(store, 2), [1, 2, 3, 4], done)
        assert done == [1, 2, 3, 4]

    @pytest.mark.parametrize("source", [["a", "x", "c"], ["a"], [], ["b", "a", "c"]])
    def test_another_item_at_the_place_is_an_error(self, store: StateStore, source: list[str]) -> None:
        """Instead of skipping the wrong ones; nothing is done, and the position stays."""
        with pytest.raises(_DiedError):
            _work(attempt(store, 1), ["a", "b", "c"], [], die_at="c")
        before = attempt(store).get("position")
        done: list[str] = []
        with pytest.raises(CheckpointMismatchError, match="2 items are done") as caught:
            _work(attempt(store, 2), source, done)
        assert (caught.value.key, caught.value.position) == ("position", 2)
        assert done == []
        assert attempt(store).get("position") == before
        attempt(store, 2).delete("position")
        _work(attempt(store, 2), source, done)
        assert done == source

    def test_a_source_that_can_seek_begins_at_the_position(self, store: StateStore) -> None:
        """A callable gets the number of items done, and gives the rest."""
        asked: list[int] = []

        def pages(start: int) -> Iterator[int]:
            asked.append(start)
            yield from range(start, 5)

        done: list[int] = []
        with pytest.raises(_DiedError):
            _work(attempt(store, 1), pages, done, die_at=3, total=5)
        _work(attempt(store, 2), pages, done)
        assert asked == [0, 3]
        assert done == [0, 1, 2, 3, 4]
        assert attempt(store).get("position") == {
            "position": 5,
            "total": 5,
            "done": True,
            "fingerprint": attempt(store).get("position")["fingerprint"],
        }

    def test_items_may_be_anything(self, store: StateStore) -> None:
        """Where an item is no JSON there is no fingerprint, and position alone counts."""
        done: list[object] = []
        items: list[object] = [object(), {1, 2}, b"x", ("t", 1), None]
        with pytest.raises(_DiedError):
            _work(attempt(store, 1), items, done, die_at=b"x")
        assert "fingerprint" not in attempt(store).get("position")
        _work(attempt(store, 2), iter(items), done)
        assert done == items

    def test_two_loops_have_two_keys(self, store: StateStore) -> None:
        """Each has its position; one key for both in one attempt is an error."""
        tss = attempt(store, 1)
        done: list[int] = []
        _work(tss, [1, 2], done, key="first")
        _work(tss, [3, 4], done, key="second")
        with pytest.raises(InvalidInputError, match="used twice"):
            tss.checkpoint([5], key="first")
        assert done == [1, 2, 3, 4]
        assert tss.get("first")["position"] == tss.get("second")["position"] == 2

    @pytest.mark.parametrize(
        "value", [7, "x", [1], {}, {"position": "3"}, {"position": -1}, {"position": True}]
    )
    def test_a_key_that_holds_something_else_is_an_error(self, store: StateStore, value: Any) -> None:
        """It is not overwritten."""
        tss = attempt(store, 1)
        tss.set("position", value)
        with pytest.raises(CheckpointMismatchError, match="holds no checkpoint"):
            list(tss.checkpoint([1]))
        assert tss.get("position") == value

    @pytest.mark.parametrize("every", [1, 2, 3, 10])
    def test_a_throttle_loses_nothing_on_the_way_out(self, store: StateStore, every: int) -> None:
        """Whatever it holds back is written when the loop is left by an exception, by break, or at its end."""
        for number, die_at in ((1, 5), (2, 8)):
            with pytest.raises(_DiedError):
                _work(attempt(store, number), range(10), [], die_at=die_at, every=every)
            assert attempt(store).get("position")["position"] == die_at
        for item in attempt(store, 3).checkpoint(range(10), every=every):
            if item == 9:
                break
        assert attempt(store).get("position")["position"] == 9

    def test_an_asset_has_checkpoints_too(self, store: StateStore) -> None:
        """Of a source that many runs read."""
        assert list(store.asset("orders").checkpoint([1, 2])) == [1, 2]
        assert list(store.asset("orders").checkpoint([1, 2, 3])) == [3]
