"""Names where nobody gave any, fingerprints of arguments, and pauses."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from keepstate.runtime.arguments import fingerprint, fingerprint_of
from keepstate.runtime.names import new_run_id, program_name, safe_id
from keepstate.runtime.retries import RetryPolicy
from keepstate.scope import TaskScope


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["./load.sh"], "load.sh"),
        (["/opt/etl/load.sh", "x"], "load.sh"),
        (["python", "nightly.py", "--all"], "nightly.py"),
        (["/usr/bin/python3.11", "-u", "-X", "dev", "etl/nightly.py"], "nightly.py"),
        (["perl", "-e", "print 1"], "perl"),
        (["python3", "-m", "etl.nightly", "x"], "etl.nightly"),
        (["python3", "-c", "print(1)"], "python3"),
        (["python3", "-"], "python3"),
        (["python3"], "python3"),
        (["bash", "-e", "load.sh"], "load.sh"),
        (["sh", "-c", "exit 3"], "sh"),
        (["node", "app/"], "app"),
        (["/"], "_"),
        ([".."], "_"),
        (["a\nb"], "a_b"),
        (["x" * 300], "x" * 250),
    ],
)
def test_program_names(command: list[str], name: str) -> None:
    """The program's file, past an interpreter and its options, made fit for an id."""
    assert program_name(command) == name
    TaskScope(name, name, name)


def test_safe_ids() -> None:
    """Whatever it is made of, it can be used."""
    for text in ("", ".", "..", "a/b", "\x00", "\ud800", "ü \U0001f642", " "):
        TaskScope("d", "r", safe_id(text))
    assert safe_id("ü \U0001f642") == "ü \U0001f642"


def test_run_ids_tell_when() -> None:
    """In Airflow's form, with microseconds."""
    assert new_run_id("manual", lambda: 1_796_000_000_000_007) == "manual__2026-11-30T00:53:20.000007+00:00"


@dataclasses.dataclass
class Config:
    """A value with an equality of its own."""

    name: str
    tags: set[str]


class Colour(enum.Enum):
    """Members compare by name."""

    RED = 1
    BLUE = 2


class Client:
    """Something that is equal to itself alone."""


SAME: list[tuple[Any, Any]] = [
    ([1, (2,)], (1, [2])),
    ({"a": 1, "b": {2: "x"}}, {"b": {2: "x"}, "a": 1}),
    ({"x", "y", "z"}, {"z", "y", "x"}),
    (Config("a", {"x", "y"}), Config("a", {"y", "x"})),
    (Client(), Client()),
    (Colour.RED, Colour(1)),
    (dt.date(2026, 11, 29), dt.date(2026, 11, 29)),
    (b"x", b"x"),
    (print, print),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (1, 2),
    (1, 1.5),
    (1, "1"),
    (None, "None"),
    ([1, 2], [2, 1]),
    ({"a": 1}, {"a": 2}),
    ({"1": 1}, {1: 1}),
    ({1}, [1]),
    (Config("a", {"x"}), Config("a", {"y"})),
    (Client(), Colour.RED),
    (Colour.RED, Colour.BLUE),
    (dt.date(2026, 11, 29), dt.date(2026, 11, 30)),
    (dt.timedelta(1), dt.timedelta(2)),
    (decimal.Decimal("1.0"), decimal.Decimal("1.5")),
    (pathlib.Path("/a"), pathlib.Path("/b")),
    (b"x", b"y"),
    (print, len),
    (Config, Client),
]


def test_fingerprints() -> None:
    """Equal values have the same one, others another; of objects without an equality only the type counts."""
    for one, other in SAME:
        assert fingerprint_of({"x": one}) == fingerprint_of({"x": other}), (one, other)
    for one, other in DIFFERENT:
        assert fingerprint_of({"x": one}) != fingerprint_of({"x": other}), (one, other)


def test_fingerprints_of_what_is_hard() -> None:
    """What contains itself, can't be pickled, or is no valid text has one too."""

    class Odd:
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            return True

        def __reduce__(self) -> Any:
            raise RuntimeError

    endless: list[Any] = []
    endless.append(endless)
    for value in (endless, Odd(), "\ud800", float("nan"), lambda: 1):
        assert fingerprint_of({"x": value}) == fingerprint_of({"x": value})
    assert fingerprint(lambda *a, **k: 0, (1,), {"b": 2}) != fingerprint(lambda *a, **k: 0, (1,), {"b": 3})
    assert fingerprint(max, (1, 2), {}) != fingerprint(max, (1, 3), {})


def test_fingerprints_are_the_same_in_every_process() -> None:
    """Whatever seed the hashes of that process have."""
    code = (
        "import datetime as dt\n"
        "from keepstate.runtime.arguments import fingerprint_of\n"
        "print(fingerprint_of({'x': [{'a', 'b', 'c'}, {'k': (1, 2.5)}, dt.date(2026, 11, 29)]}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {fingerprint_of({"x": [{"a", "b", "c"}, {"k": (1, 2.5)}, dt.date(2026, 11, 29)]})}


def test_pauses() -> None:
    """They never overflow, and never pass the bound."""
    policy = RetryPolicy.of(9, dt.timedelta(minutes=10), True, None)
    assert [policy.pause_after(n) for n in (1, 2, 3)] == [600, 1200, 2400]
    assert policy.pause_after(10_000) == 86_400
    assert RetryPolicy.of(1, 2, 3, dt.timedelta(seconds=17)).pause_after(3) == 17
    assert RetryPolicy.of(1, 0, True, None).pause_after(5) == 0
    assert RetryPolicy.of(1, 7, False, 3).pause_after(5) == 3
