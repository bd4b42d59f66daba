"""`judge` and `outlived`: every kind of request against every kind of standing."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest

from keepstate.backends.fencing import Standing, Verdict, is_newer, judge, outlived
from keepstate.backends.requests import Fence
from keepstate.clock import DAY
from keepstate.testing.contract.ground import attempt_id

OLD, CURRENT, NEW = (attempt_id(order) for order in (1, 5, 9))
NOW = 0x019000000000 * 1000
"""When these ids were made, in microseconds."""
CURRENT_VERDICT, NEWER, REMADE, STALE = (
    Verdict.CURRENT,
    Verdict.NEWER,
    Verdict.NEW_INCARNATION,
    Verdict.STALE,
)


class Case(NamedTuple):
    """An attempt that asks, where the scope stands at try 2 with the id CURRENT, in incarnation 3."""

    try_number: int
    attempt_id: str | None
    known_in: int | None
    verdict: Verdict


# the rules, one line for each way in which they may be met
AT_TRY_2 = [
    # without an id, the number alone decides
    Case(1, None, None, STALE),
    Case(2, None, None, CURRENT_VERDICT),
    Case(3, None, None, NEWER),
    # the current id
    Case(2, CURRENT, 3, CURRENT_VERDICT),
    # an unknown, newer id: on try 1 a run made again, else a try that begins
    Case(1, NEW, None, REMADE),
    Case(2, NEW, None, NEWER),
    Case(3, NEW, None, NEWER),
    # an unknown, older id: a latecomer, unless its try is higher
    Case(1, OLD, None, STALE),
    Case(2, OLD, None, STALE),
    Case(3, OLD, None, NEWER),
    # an unknown id that can't be ordered: no new run, but a new try
    Case(1, "x", None, STALE),
    Case(2, "x", None, NEWER),
    Case(3, "x", None, NEWER),
    # known in this incarnation: superseded, unless its try is higher
    Case(1, OLD, 3, STALE),
    Case(1, NEW, 3, STALE),
    Case(1, "x", 3, STALE),
    Case(2, OLD, 3, STALE),
    Case(2, NEW, 3, STALE),
    Case(2, "x", 3, STALE),
    Case(3, OLD, 3, NEWER),
    Case(3, NEW, 3, NEWER),
    Case(3, "x", 3, NEWER),
    # known in an earlier incarnation: over, whatever its number
    *(Case(number, one, 2, STALE) for number in (1, 2, 3) for one in (OLD, NEW, "x")),
]


@pytest.mark.parametrize("case", AT_TRY_2, ids=str)
def test_an_attempt_is_judged_by_number_id_and_memory(case: Case) -> None:
    """As it is at its first use."""
    fence = Fence(case.try_number, case.attempt_id)
    assert judge(Standing(2, CURRENT, 3), fence, lambda: case.known_in, NOW) is case.verdict


@pytest.mark.parametrize("case", AT_TRY_2, ids=str)
def test_who_was_let_in_before_is_no_new_run(case: Case) -> None:
    """Else it makes no difference that an attempt says that it registered in this incarnation."""
    fence = Fence(case.try_number, case.attempt_id, incarnation=3)
    verdict = STALE if case.verdict is REMADE else case.verdict
    assert judge(Standing(2, CURRENT, 3), fence, lambda: case.known_in, NOW) is verdict


def test_the_table_is_complete() -> None:
    """Each number, with each kind of id, with each kind of memory that such an id can have."""
    covered = {(case.try_number, case.attempt_id, case.known_in) for case in AT_TRY_2}
    every = set(itertools.product((1, 2, 3), (OLD, NEW, "x"), (None, 2, 3)))
    every |= {(number, None, None) for number in (1, 2, 3)} | {(2, CURRENT, 3)}
    assert covered == every
    assert len(AT_TRY_2) == len(every)


@pytest.mark.parametrize("registered_in", [1, 2, 4])
@pytest.mark.parametrize(
    "standing",
    [Standing(2, CURRENT, 3), Standing(None, None, 3), Standing(2, CURRENT, 3, None, deleted=True)],
)
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("one", [None, OLD, CURRENT, NEW, "x"])
def test_who_registered_in_another_incarnation_is_stale(
    one: str | None, number: int, standing: Standing, registered_in: int
) -> None:
    """Whatever its number and id, and whatever the scope stands at."""
    fence = Fence(number, one, incarnation=registered_in)
    assert judge(standing, fence, lambda: None, NOW) is STALE
    assert outlived(standing, fence, None)


@pytest.mark.parametrize("number", [1, 2, 7])
@pytest.mark.parametrize("one", [None, OLD, "x"])
def test_the_first_attempt_begins(one: str | None, number: int) -> None:
    """Where none has been, any may."""
    assert judge(Standing(None, None, 1), Fence(number, one), lambda: None, NOW) is NEWER


@pytest.mark.parametrize(
    ("one", "verdict"),
    [(None, NEWER), (OLD, STALE), (CURRENT, STALE), (NEW, NEWER), ("x", NEWER)],
)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_after_a_person_wrote_to_a_deleted_run_older_ids_are_stale(
    one: str | None, verdict: Verdict, number: int
) -> None:
    """The scope stands at no try, and still knows the last id of before."""
    standing = Standing(None, CURRENT, 3)
    assert judge(standing, Fence(number, one), lambda: None, NOW) is verdict
    if verdict is STALE:
        assert outlived(standing, Fence(number, one), None)


@pytest.mark.parametrize(
    ("one", "verdict"),
    [(None, REMADE), (OLD, STALE), (CURRENT, STALE), (NEW, REMADE), ("x", REMADE)],
)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_after_a_deletion_what_ran_before_is_stale(one: str | None, verdict: Verdict, number: int) -> None:
    """What can't be told from a run made again is taken for one; who registered before is known by that."""
    standing = Standing(2, CURRENT, 3, deleted=True)
    assert judge(standing, Fence(number, one), lambda: None, NOW) is verdict
    assert judge(standing, Fence(number, one, incarnation=3), lambda: None, NOW) is STALE
    assert outlived(standing, Fence(number, one), None)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("one", [None, OLD, "x"])
def test_where_the_current_attempt_has_no_id_numbers_decide(one: str | None, number: int) -> None:
    """An id on one side alone tells nothing; but one that is known from an earlier incarnation does."""
    standing = Standing(2, None, 3)
    expected = {1: STALE, 2: CURRENT_VERDICT, 3: NEWER}[number]
    assert judge(standing, Fence(number, one), lambda: None, NOW) is expected
    if one is not None and number != 2:
        assert judge(standing, Fence(number, one), lambda: 2, NOW) is STALE


def test_the_memory_is_asked_only_when_it_matters() -> None:
    """The usual case costs no look at the attempts of before."""

    def ask() -> int | None:
        raise AssertionError("asked")

    assert judge(Standing(2, CURRENT, 3), Fence(2, CURRENT), ask, NOW) is CURRENT_VERDICT
    assert judge(Standing(2, None, 3), Fence(3), ask, NOW) is NEWER
    assert judge(Standing(2, CURRENT, 3), Fence(1), ask, NOW) is STALE


@pytest.mark.parametrize(
    ("try_number", "known_in", "over"),
    [(1, None, False), (1, 3, False), (1, 2, True), (2, None, True), (2, 3, False), (3, 2, True)],
)
def test_a_stale_attempt_of_this_incarnation_may_read(
    try_number: int, known_in: int | None, over: bool
) -> None:
    """One of an earlier incarnation may not; an unknown one on the current try is taken for such."""
    assert outlived(Standing(2, CURRENT, 3), Fence(try_number, OLD), known_in) is over


def made(days: float) -> str:
    """Return an id that says to be made so many days after ``NOW``."""
    digits = f"{(NOW + int(days * DAY)) // 1000:012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"


@pytest.mark.parametrize(("days", "verdict"), [(0.1, REMADE), (0.9, REMADE), (1.1, STALE), (40_000, STALE)])
def test_an_id_from_the_future_is_not_taken_for_time_ordered(days: float, verdict: Verdict) -> None:
    """Clocks differ a little; one that is off by more than a day must not make all that comes later look old."""
    assert judge(Standing(2, CURRENT, 3), Fence(1, made(days)), lambda: None, NOW) is verdict


@pytest.mark.parametrize("standing", [Standing(1, made(400), 3), Standing(1, made(400), 3, deleted=True)])
def test_what_follows_an_id_from_the_future_is_not_stale(standing: Standing) -> None:
    """However it came to be the current one."""
    verdict = judge(standing, Fence(1, made(0.5)), lambda: None, NOW)
    assert verdict is (REMADE if standing.deleted else NEWER)
    assert judge(standing, Fence(2, made(0.5)), lambda: None, NOW) in {REMADE, NEWER}


def test_ids_are_ordered_where_both_are_uuid7() -> None:
    """RFC 9562, 5.7, with or without dashes, in either case; anything else can't be ordered."""
    assert is_newer(NEW, OLD) is True
    assert is_newer(OLD, NEW) is False
    assert is_newer(OLD, OLD) is False
    assert is_newer(NEW.upper().replace("-", ""), OLD) is True
    version_4 = "01900000-0000-4000-8000-000000000009"
    variant_c = "01900000-0000-7000-c000-000000000009"
    no_number = "0190000g-0000-7000-8000-000000000009"
    for other in (None, "", "x", version_4, variant_c, no_number, OLD + "0"):
        assert is_newer(NEW, other) is None
        assert is_newer(other, NEW) is None
