"""How values, progress, lengths of time and long lists are shown."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepstate.states import BY_SERIOUSNESS, most_serious
from keepstate.values import encode
from keepstate.web.attempts import lasting
from keepstate.web.marks import Marks, digest
from keepstate.web.paging import pager
from keepstate.web.shown import Progress, pretty, preview, progress_of, tokens
from keepstate.web.states import LOOKS, look_of

values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(values, st.integers(0, 200))
def test_coloured_json_is_the_text_itself(value: Any, cut: int) -> None:
    """Whatever it is, and wherever it is cut off."""
    text = pretty(encode(value))
    assert json.loads(text) == value
    for part in (text, text[:cut]):
        assert "".join(token.text for token in tokens(part)) == part


def test_kinds_of_tokens_are_told_apart() -> None:
    """Names, texts, numbers and words."""
    kinds = {token.text: token.kind for token in tokens('{"a": "b: c", "d": [-1.5e3, true, null]}')}
    assert kinds['"a"'] == "name"
    assert kinds['"b: c"'] == "text"
    assert kinds["-1.5e3"] == "number"
    assert kinds["true"] == kinds["null"] == "word"


def test_a_large_value_is_shown_as_it_is_stored() -> None:
    """In one piece: laid out and coloured, a megabyte of numbers would take hundreds of megabytes."""
    text = encode([1] * 300_000)
    tracemalloc.start()
    (token,) = tokens(pretty(text))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert token.text == text
    assert peak < 2 * len(text)


def test_a_preview_is_short() -> None:
    """In lines and in characters, also of a text that is one line."""
    assert preview('{"a":1}') == ('{"a": 1}', False)
    lines, cut = preview(encode(list(range(100))))
    assert (lines.count("\n"), cut) == (7, True)
    assert preview(encode("x" * 30_000)) == ('"' + "x" * 479, True)


@pytest.mark.parametrize(
    ("text", "progress"),
    [
        ('{"position":3,"total":10,"done":false,"fingerprint":"a"}', Progress(3, 10, done=False)),
        ('{"position":3,"total":null,"done":true}', Progress(3, None, done=True)),
        ('{"position":3,"total":10}', None),
        ('{"position":3,"total":10,"done":false,"more":1}', None),
        ('{"position":-1,"total":10,"done":false}', None),
        ('{"position":true,"total":10,"done":false}', None),
        ('{"position":3,"total":"10","done":false}', None),
        ("[3,10]", None),
    ],
)
def test_progress_is_what_a_checkpoint_wrote(text: str, progress: Progress | None) -> None:
    """And nothing that only looks a little like it."""
    assert progress_of(text) == progress


def test_progress_in_per_cent() -> None:
    """Where the total is known; never more than all."""
    assert Progress(1, 3, done=False).percent == 33
    assert Progress(5, 3, done=False).percent == 100
    assert Progress(0, 0, done=True).percent == 100
    assert Progress(5, None, done=True).percent == 100
    assert Progress(5, None, done=False).percent is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.96, "10.0 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (7_260, "2 h 1 min"),
        (180_000, "2 d 2 h"),
    ],
)
def test_a_length_of_time_has_two_units(seconds: float, text: str) -> None:
    """The largest ones."""
    assert lasting(seconds) == text


def test_pages_of_a_list() -> None:
    """Which part is shown, and where the pages before and after it are; a page that is not there leads back."""
    one = pager("/x", 1, 120, q="a b")
    assert (one.first, one.last, one.before, one.after) == (1, 50, None, "/x?page=2&q=a+b")
    last = pager("/x", 3, 120)
    assert (last.first, last.last, last.before, last.after) == (101, 120, "/x?page=2", None)
    beyond = pager("/x", 9, 120)
    assert (beyond.before, beyond.after) == ("/x?page=3", None)
    assert pager("/x", 1, 0).first == 0


def test_each_state_has_a_look() -> None:
    """And one that is not known here its own name."""
    assert set(LOOKS) == {*BY_SERIOUSNESS, None}
    assert look_of("brand_new").label == "Brand new"


def test_the_most_serious_state_stands_for_several() -> None:
    """What has none, and what nobody here knows, stands back."""
    assert most_serious({"success", "running", "failed"}) == "failed"
    assert most_serious(["brand_new", "success", None]) == "success"
    assert most_serious([None, "brand_new"]) == "brand_new"
    assert most_serious([None]) is None
    assert most_serious([]) is None


def test_a_mark_is_looked_for_once_in_a_while() -> None:
    """However many ask; another fact is another mark."""
    asked = []
    marks = Marks()

    def look() -> object:
        asked.append(1)
        return {"version": 1}

    assert marks.get(("a",), look) == marks.get(("a",), look) == digest({"version": 1})
    assert len(asked) == 1
    assert digest({"version": 2}) != digest({"version": 1})
