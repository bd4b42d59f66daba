"""What is typed into the dialog, and what is the matter with it."""

from __future__ import annotations

import json
import tracemalloc
from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qsl, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from keepstate.backends.answers import StoredEntry
from keepstate.clock import to_micros
from keepstate.settings import Settings
from keepstate.web.asked import fields_of
from keepstate.web.forms import CUSTOM, DEFAULT, KEEP, NEVER, Typed, typed, understood

NOW = to_micros(datetime(2026, 1, 1, tzinfo=timezone.utc))
SETTINGS = Settings()


def form(**fields: object) -> Typed:
    """Return a form that is fine but for what is given."""
    return Typed(**{"key": "k", "value": "1", "expiry": DEFAULT, "expires_at": "", "version": 0, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ('{"a": 1,\n "b": }', "This is not valid JSON. Line 2, column 7: expecting value."),
        ("done", 'Line 1, column 1: expecting value. Text needs double quotes, like "done".'),
        ("[1, 2", "Line 1, column 6"),
        ("1 2", "Line 1, column 3: extra data"),
        ("", "Enter a value"),
        ("   ", "Enter a value"),
        ("null", "Value is None"),
        ("NaN", "NaN is no JSON"),
        ("[1e999]", "inf"),
        ('"\\ud800"', "lone surrogate"),
        ("1" * 5000, "4300"),
        ("[" * 300 + "]" * 300, "nested deeper"),
        ("[" * 100_000, "nested too deep"),
        ('{"a": 1, "a": 2}', 'the name "a" stands twice'),
        (f'"{"é" * 40_000}"', "80,002 bytes, and at most 65,535 are allowed"),
    ],
)
def test_a_value_that_can_not_be_stored_is_explained(value: str, problem: str) -> None:
    """Where JSON ends, with line and column; in all else with the store's own words."""
    found = understood(form(value=value), None, SETTINGS, NOW)
    assert found.problems.value is not None
    assert problem.lower() in found.problems.value.lower()
    assert found.problems.value.endswith(".")


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", "must not be empty"),
        ("x" * 513, "at most 512"),
        ("a\0b", "NUL"),
        ("a/../b", "between slashes"),
        (".", "between slashes"),
    ],
)
def test_a_key_that_breaks_the_rules_is_explained(key: str, problem: str) -> None:
    """In the store's own words."""
    assert problem in (understood(form(key=key), None, SETTINGS, NOW).problems.key or "")


@pytest.mark.parametrize("key", ["a/b", "emoji 🎉", 'q"uote', "<script>", "שלום", "a" * 512, "..."])
def test_all_other_keys_are_fine(key: str) -> None:
    """Whatever they look like."""
    assert not understood(form(key=key), None, SETTINGS, NOW).problems


@pytest.mark.parametrize(
    ("how", "text", "expires"),
    [
        (DEFAULT, "", timedelta(days=30)),
        (NEVER, "", None),
        (CUSTOM, "2026-01-02T00:00:00Z", timedelta(days=1)),
        (CUSTOM, "2026-01-01T02:00:00.001+01:00", timedelta(hours=1, milliseconds=1)),
    ],
)
def test_an_entry_expires_as_chosen(how: str, text: str, expires: timedelta | None) -> None:
    """After the configured time, never, or at an instant."""
    found = understood(form(expiry=how, expires_at=text), None, SETTINGS, NOW)
    assert not found.problems
    assert found.expires_at == (None if expires is None else NOW + expires // timedelta(microseconds=1))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Choose when"),
        ("2026-01-01T00:00:00Z", "is in the past"),
        ("2020-01-01T00:00:00Z", "is in the past"),
        ("2026-01-02T00:00:00", "offset from UTC"),
        ("tomorrow", "not a date and time"),
    ],
)
def test_a_time_that_can_not_be_is_explained(text: str, problem: str) -> None:
    """One that has passed above all."""
    found = understood(form(expiry=CUSTOM, expires_at=text), None, SETTINGS, NOW)
    assert problem in (found.problems.expiry or "")


def test_what_is_unchanged_always_saves() -> None:
    """Even a value that a task wrote above the limit of people; its expiry stays."""
    text = json.dumps("x" * 100_000)
    standing = StoredEntry("k", text, 7, NOW, NOW + 5)
    fine = understood(form(value=text, expiry=KEEP, version=7), standing, SETTINGS, NOW)
    assert not fine.problems
    assert fine.expires_at == NOW + 5
    larger = understood(
        form(value=json.dumps("x" * 100_001), expiry=KEEP, version=7), standing, SETTINGS, NOW
    )
    assert larger.problems.value


def test_what_is_not_typed_yet_is_no_problem() -> None:
    """While somebody is typing."""
    empty = form(key="", value="", expiry=CUSTOM)
    assert not understood(empty, None, SETTINGS, NOW, unfinished=True).problems
    assert understood(empty, None, SETTINGS, NOW).problems


def test_fields_are_taken_as_sent_or_not_at_all() -> None:
    """Forms write line ends their own way; what no form of ours sends is as if it were absent."""
    assert typed({"key": "k", "value": "[1,\r\n2]", "version": "3"}) == form(value="[1,\n2]", version=3)
    assert typed({"expiry": "sometime", "version": "-1"}) == form(key="", value="")
    assert typed({"version": "9" * 30}).version == 0


# ------------------------------------------------------------------------------------------------ as it is sent


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=20)), max_size=5), st.booleans())
def test_a_form_is_read_as_it_was_sent(fields: list[tuple[str, str]], everything: bool) -> None:
    """Whatever is in it, and however much of that a browser escapes."""

    def sent(text: str) -> str:
        return "".join(f"%{byte:02x}" for byte in text.encode()) if everything else quote_plus(text)

    body = "&".join(f"{sent(name)}={sent(value)}" for name, value in fields)
    assert fields_of(body.encode()) == dict(fields) == dict(parse_qsl(body, keep_blank_values=True))


@pytest.mark.parametrize("body", [b"a=%", b"a=%4", b"a=%zz", b"a=%\n41", b"a=%FF", b"a=\xff", b"&" * 50])
def test_what_is_no_form_is_refused(body: bytes) -> None:
    """Half an escape, another encoding, more fields than any form has."""
    with pytest.raises(HTTPException):
        fields_of(body)


def test_a_large_form_takes_a_few_times_its_size() -> None:
    """However much of it is escaped, and not eighty times."""
    body = b"key=a&value=" + b"%41%22a" * 1_000_000
    tracemalloc.start()
    fields = fields_of(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fields["value"] == 'A"a' * 1_000_000
    assert peak < 5 * len(body)
