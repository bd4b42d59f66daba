"""How two values differ."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepstate.web.difference import MOST_CHANGES, Change, difference


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({"page": 7}, {"page": 8}, [("page", "7", "8")]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 2, 3]}}, [("a.b[2]", None, "3")]),
        ({"a": 1, "b": 2}, {"b": 2}, [("a", "1", None)]),
        ([1, [2]], [1, [2, {"x": None}]], [("[1][1]", None, '{"x": null}')]),
        (1, 2, [("", "1", "2")]),
        (1, 1.0, [("", "1", "1.0")]),
        ([True], [1], [("[0]", "true", "1")]),
        ({"a b": 1, "c": 1}, {"a b": 2, "c": 1}, [('["a b"]', "1", "2")]),
        ({"a": 1}, [1], [("", '{"a": 1}', "[1]")]),
        ("é", "è", [("", '"é"', '"è"')]),
    ],
)
def test_places_that_differ_are_named(before: Any, after: Any, changes: list[tuple[str, str, str]]) -> None:
    """With what stood there and what stands there."""
    found = difference(before, after)
    assert list(found.changes) == [Change(*change) for change in changes]
    assert not found.more


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_equal_values_do_not_differ(value: Any) -> None:
    """Whatever they are."""
    assert difference(value, value).changes == ()


def test_many_differences_are_cut() -> None:
    """And it is said that there are more."""
    found = difference(list(range(100)), list(range(1, 101)))
    assert len(found.changes) == MOST_CHANGES
    assert found.more


def test_many_places_are_compared_one_by_one() -> None:
    """A large value does not take its size a hundred times over."""
    before, after = [7] * 300_000, [7] * 300_000
    tracemalloc.start()
    assert difference(before, after).changes == ()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_deep_values_and_long_texts_are_borne() -> None:
    """However deep values may be, and however long."""
    one: Any = 1
    for _ in range(190):
        one = [one]
    assert difference(one, [one]).changes
    (change,) = difference("x" * 1000, "y").changes
    assert change.before is not None
    assert len(change.before) == 200
