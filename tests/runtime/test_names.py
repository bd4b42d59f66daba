"""Names where nobody gave any, and pauses."""

from __future__ import annotations

import datetime as dt

import pytest

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


def test_pauses() -> None:
    """They never overflow, and never pass the bound."""
    policy = RetryPolicy.of(9, dt.timedelta(minutes=10), True, None)
    assert [policy.pause_after(n) for n in (1, 2, 3)] == [600, 1200, 2400]
    assert policy.pause_after(10_000) == 86_400
    assert RetryPolicy.of(1, 2, 3, dt.timedelta(seconds=17)).pause_after(3) == 17
    assert RetryPolicy.of(1, 0, True, None).pause_after(5) == 0
    assert RetryPolicy.of(1, 7, False, 3).pause_after(5) == 3
