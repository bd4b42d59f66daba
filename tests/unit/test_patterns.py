"""Patterns: two wildcards, and no blow-up."""

from __future__ import annotations

import re
import sqlite3
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepstate.backends.sql.dialects import SQLITE
from keepstate.patterns import compacted, fits

texts = st.text("ab[]*?%_!\\^é", max_size=8)


@given(pattern=texts, text=texts)
def test_it_is_the_regular_expression(pattern: str, text: str) -> None:
    """A star is any characters, a question mark is one, and all else is itself."""
    translated = "".join(".*" if one == "*" else "." if one == "?" else re.escape(one) for one in pattern)
    assert fits(pattern, text) == (re.fullmatch(translated, text, re.DOTALL) is not None)


@given(pattern=texts, text=texts)
def test_a_compacted_pattern_fits_the_same_in_the_database_too(pattern: str, text: str) -> None:
    """SQLite's GLOB, given the pattern as the dialect writes it, agrees."""
    shorter = compacted(pattern)
    assert shorter is not None
    assert fits(shorter, text) == fits(pattern, text)
    connection = sqlite3.connect(":memory:")
    try:
        params = {"text": text, "pattern": SQLITE.pattern(shorter)}
        found = connection.execute(f"SELECT :text {SQLITE.fits}", params).fetchone()
    finally:
        connection.close()
    assert bool(found[0]) == fits(pattern, text)


@pytest.mark.parametrize("pattern", ["\0", "a\n*", "\ud800", "?" * 1501])
def test_what_no_name_can_fit_is_known_beforehand(pattern: str) -> None:
    """No id and no asset's name has control characters or lone surrogates, or is that long."""
    assert compacted(pattern) is None


def test_many_stars_take_no_time() -> None:
    """Where a regular expression would try every way to share the text among the stars."""
    since = time.process_time()
    assert not fits("*a" * 100 + "b", "a" * 1500)
    assert time.process_time() - since < 5
