"""An attempt is killed by SIGKILL; what the next one does follows from what was left behind, and from nothing else.

Each case is a story: attempts in processes of their own, over one SQLite store and one real job system, the last of
which is left alive. `RULES` says what that one has to do, `impossible` which combinations can't happen. Neither knows
how keepstate is made.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, get_args

import pytest

from tests.jobs.attempts import KEY, SUBMISSION, Attempts, Find, Ran, Status, Stop, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from keepstate.testing.spool import Submission

# --------------------------------------------------------------------------------------------------------- the cases

SUBMITTING: tuple[Stop, ...] = (
    "before intent",
    "after intent",
    "after submit",
    "id stored",
    "waiting",
    "completed",
    "result known",
)
FOLLOWING: tuple[Stop, ...] = ("status known", "waiting", "completed", "result known")


@dataclass(frozen=True)
class Chapter:
    """What comes before the attempt that is killed at the moment in question, and which moments it passes.

    ``begins``: where the attempt before it is killed (``None``: there is none). ``job_ends``: how its job ends then.
    ``found``: whether the job is known by its token alone. ``resubmits``: whether the job in question is a second one.
    """

    name: str
    moments: tuple[Stop, ...]
    begins: Stop | None = None
    job_ends: Literal["succeeded", "failed"] | None = None
    found: bool = False
    resubmits: bool = False


CHAPTERS = (
    Chapter("first submission", SUBMITTING),
    Chapter("reconnection", FOLLOWING, begins="waiting"),
    Chapter(
        "reconnection by token", ("found", "found id stored", *FOLLOWING), begins="after submit", found=True
    ),
    Chapter("collection", ("status known", "result known"), begins="waiting", job_ends="succeeded"),
    Chapter("resubmission", SUBMITTING, begins="waiting", job_ends="failed", resubmits=True),
    Chapter(
        "resubmission after a find",
        SUBMITTING,
        begins="after submit",
        job_ends="failed",
        found=True,
        resubmits=True,
    ),
)


@dataclass(frozen=True)
class Case:
    """One story. ``knows_failure``: the class has `is_job_failed`."""

    chapter: Chapter
    moment: Stop
    find_job: Find
    status: Status
    knows_failure: bool

    def __str__(self) -> str:
        guide = "" if self.knows_failure else ", no is_job_failed"
        return f"{self.chapter.name}, {self.moment}; find_job {self.find_job}; {self.status}{guide}"


class Left(Enum):
    """What a killed attempt leaves behind of the submission in question."""

    NOTHING = "nothing"
    INTENT = "an intent, and no job"
    ORPHAN = "an intent, and a job whose id is not stored"
    RECORD = "a job whose id is stored"


def left_by(case: Case) -> Left:
    """Say what is there when the attempt was killed at that moment."""
    if case.moment == "before intent":
        # a second submission has not begun, so the first job's id still stands
        return Left.RECORD if case.chapter.resubmits else Left.NOTHING
    if case.moment == "after intent":
        return Left.INTENT
    return Left.ORPHAN if case.moment in {"after submit", "found"} else Left.RECORD


def impossible(case: Case) -> str | None:  # noqa: PLR0911 - one line per reason
    """Return why a combination can't happen, or ``None``."""
    no_job = left_by(case) in {Left.NOTHING, Left.INTENT}
    if no_job != (case.status == "no job"):
        return "a job has a status, and no job has none"
    if case.chapter.found and case.find_job != "finds":
        return "only a search that works leads there"
    if case.moment == "completed" and case.status == "active":
        return "the job has ended"
    if case.moment == "result known" and case.status in {"active", "failed"}:
        return "only a job that succeeded has a result"
    if case.chapter.job_ends == "succeeded" and case.status in {"active", "failed"}:
        return "a job that succeeded stays so"
    if case.chapter.resubmits and case.moment == "before intent" and case.status in {"active", "succeeded"}:
        return "a job that failed stays so"
    if not case.knows_failure and case.chapter.begins and case.status != "unknown":
        return "seen in the first submission; is_job_failed makes no difference to the others"
    return None


def every_case() -> Iterator[Case]:
    """Yield the full cross product, with what is impossible."""
    for chapter in CHAPTERS:
        dimensions = (chapter.moments, get_args(Find), get_args(Status), (True, False))
        for values in itertools.product(*dimensions):
            yield Case(chapter, *values)


CASES = [case for case in every_case() if impossible(case) is None]


# --------------------------------------------------------------------------------------------------------- the rules


class Action(Enum):
    """What the surviving attempt has to do."""

    SUBMIT_ANEW = "submit with a new token"
    SUBMIT_AGAIN = "submit with the token of the intent"
    WAIT = "wait for the job and return its result"
    COLLECT = "return the job's result without waiting"
    REFUSE = "UnknownJobStatusError"
    GIVE_UP = "StatusQueryError"


BY_STATUS: dict[tuple[Status, bool], Action] = {
    ("active", True): Action.WAIT,
    ("active", False): Action.WAIT,
    ("succeeded", True): Action.COLLECT,
    ("succeeded", False): Action.COLLECT,
    ("failed", True): Action.SUBMIT_ANEW,
    ("failed", False): Action.SUBMIT_ANEW,
    ("unknown", True): Action.REFUSE,
    # the guide's rule: what is neither active nor succeeded has failed
    ("unknown", False): Action.SUBMIT_ANEW,
    ("query raises", True): Action.GIVE_UP,
    ("query raises", False): Action.GIVE_UP,
}
"""What to do about a job whose id is known, by what is said of it and whether the class has `is_job_failed`."""


@dataclass(frozen=True)
class Expected:
    """What the surviving attempt does, and what it asks on the way."""

    action: Action
    searches: bool
    asks_status: bool
    warns: bool


def rule(case: Case, status: Status) -> Expected:
    """Say what has to happen, from what is left behind, the search, and the job's status."""
    left = left_by(case)
    if left is Left.NOTHING:
        return Expected(Action.SUBMIT_ANEW, searches=False, asks_status=False, warns=False)
    by_status = BY_STATUS.get((status, case.knows_failure))
    if left is Left.RECORD:
        assert by_status
        return Expected(by_status, searches=False, asks_status=True, warns=by_status is Action.SUBMIT_ANEW)
    if case.find_job == "absent":
        return Expected(Action.SUBMIT_AGAIN, searches=False, asks_status=False, warns=True)
    if left is Left.INTENT or case.find_job == "finds nothing":
        return Expected(Action.SUBMIT_AGAIN, searches=True, asks_status=False, warns=False)
    assert by_status
    return Expected(by_status, searches=True, asks_status=True, warns=by_status is Action.SUBMIT_ANEW)


# ----------------------------------------------------------------------------------------------------------- running


def tell(case: Case, world: World) -> None:
    """Make every attempt of the story but the last, and put the job in the state in question."""
    chapter = case.chapter
    if chapter.begins:
        world.killed(chapter.begins)
        if chapter.job_ends:
            world.say(world.spool.submissions()[0].id, chapter.job_ends)
    ending = "failed" if case.status == "failed" else "succeeded"
    world.killed(case.moment, outcome=ending)
    jobs = world.spool.submissions()
    if case.status != "no job":
        world.say(jobs[-1].id, case.status)
    elif jobs:
        # whoever asked for this one's status now would be asking for the wrong job's
        world.say(jobs[-1].id, "query raises")


def check(world: World, ran: Ran, before: list[Submission], expected: Expected) -> None:
    """Compare what an attempt did, its calls and what it left in the store, with what it had to do."""
    submissions = world.spool.submissions()
    submitted = submissions[len(before) :]
    anew = expected.action in {Action.SUBMIT_ANEW, Action.SUBMIT_AGAIN}
    assert len(submitted) == anew, "the number of submissions is wrong"
    assert len(ran.seen("find")) == expected.searches
    assert len(ran.seen("status")) == expected.asks_status
    assert bool(ran.warnings) == expected.warns

    job = submissions[-1]
    if expected.action is Action.SUBMIT_ANEW:
        assert job.token not in {None, *(earlier.token for earlier in before)}
    assert set(ran.seen("status")) <= {earlier.id for earlier in before[-1:]}
    assert ran.seen("wait") == [job.id] * (anew or expected.action is Action.WAIT)
    assert ran.seen("token") == [job.token] * len(ran.seen("wait"))
    if expected.action in {Action.REFUSE, Action.GIVE_UP}:
        assert (ran.error, ran.seen("fetch")) == (expected.action.value, [])
    else:
        assert (ran.error, ran.seen("fetch"), ran.result) == (None, [job.id], job.payload)
    assert world.stored() == {KEY: job.id, SUBMISSION: {"token": job.token, "state": "submitted"}}


def run(case: Case, world: World) -> None:
    """Tell a story and check its end; after trouble with the status, once more when that is over."""
    tell(case, world)
    intent = world.stored().get(SUBMISSION, {})
    before = world.spool.submissions()
    expected = rule(case, case.status)
    ran = world.attempt()
    check(world, ran, before, expected)
    if expected.searches:
        assert ran.seen("find") == [intent["token"]]
    if expected.action is Action.SUBMIT_AGAIN:
        assert ran.seen("submit") == [intent["token"]]
    if expected.action in {Action.REFUSE, Action.GIVE_UP}:
        job = before[-1]
        world.spool.restore_status(job.id)
        truth: dict[str, Status] = {"RUNNING": "active", "SUCCEEDED": "succeeded", "FAILED": "failed"}
        action = BY_STATUS[truth[world.spool.status(job.id)], case.knows_failure]
        # its id is stored by now, however it was found
        again = Expected(action, searches=False, asks_status=True, warns=action is Action.SUBMIT_ANEW)
        check(world, world.attempt(), before, again)


def story(case: Case, folder: Path, attempts: Attempts, *, four_verbs: bool) -> None:
    """Run one case over the given kind of store."""
    always = {"find_job": case.find_job, "knows_failure": case.knows_failure, "four_verbs": four_verbs}
    with World(folder, attempts, **always) as world:
        run(case, world)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_was_left_behind_decides(case: Case, tmp_path: Path, attempts: Attempts) -> None:
    """After a kill the next attempt submits, waits, collects or refuses, as the rules say."""
    story(case, tmp_path, attempts, four_verbs=False)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_four_verbs_are_enough(case: Case, tmp_path: Path, attempts: Attempts) -> None:
    """The same rules hold over a store with the guide's four verbs only."""
    story(case, tmp_path, attempts, four_verbs=True)


def test_combinations_are_left_out_for_a_reason() -> None:
    """Every moment of every chapter is killed at with every search; what is left out can't happen."""
    reasons = Counter(impossible(case) for case in every_case())
    assert reasons.pop(None) == len(CASES)
    assert len(reasons) == 7
    for chapter in CHAPTERS:
        searches: set[Find] = {"finds"} if chapter.found else set(get_args(Find))
        assert {(case.moment, case.find_job) for case in CASES if case.chapter is chapter} == set(
            itertools.product(chapter.moments, searches)
        )
