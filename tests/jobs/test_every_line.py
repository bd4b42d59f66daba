"""An attempt is killed before a line that it executes; whichever it was, no job is submitted twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal, get_args

import pytest

from tests.jobs.attempts import KEY, SUBMISSION, Attempts, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Story = Literal["first submission", "resubmission", "reconnection by token"]


@pytest.fixture(scope="module")
def helpers() -> Iterator[list[Attempts]]:
    """Two processes that attempts are forked from, one for each core of a small machine."""
    with Attempts() as one, Attempts() as other:
        yield [one, other]


def begin(story: Story, world: World) -> None:
    """Make the attempts before the one that is killed at a line."""
    if story == "first submission":
        return
    if story == "reconnection by token":
        world.killed("after submit")
        return
    world.killed("waiting")
    world.say(world.spool.submissions()[0].id, "failed")


def lines_of(story: Story, folder: Path, helper: Attempts, files: str, *, four_verbs: bool) -> int:
    """Count the lines that the attempt executes when nothing happens to it."""
    with World(folder, helper, four_verbs=four_verbs) as world:
        begin(story, world)
        return world.attempt(die_at_line=0, lines_of=files).lines


def die_at(line: int, story: Story, folder: Path, helper: Attempts, files: str, *, four_verbs: bool) -> None:
    """Kill the attempt before that line, let the next one finish, and count what was submitted."""
    with World(folder, helper, four_verbs=four_verbs) as world:
        begin(story, world)
        ran = world.attempt(die_at_line=line, lines_of=files)
        assert ran.signal == 9, f"line {line}: it was not killed: {ran}"
        ran = world.attempt()
        jobs = world.spool.submissions()
        assert len(jobs) == (2 if story == "resubmission" else 1), f"line {line}: {jobs}"
        assert len({job.token for job in jobs}) == len(jobs), f"line {line}: {jobs}"
        assert (ran.error, ran.result) == (None, jobs[-1].payload), f"line {line}: {ran}"
        stored = world.stored()
        assert stored[KEY] == jobs[-1].id, f"line {line}: {stored}"
        assert stored[SUBMISSION]["token"] == jobs[-1].token, f"line {line}: {stored}"


def sweep(
    story: Story, folder: Path, helpers: list[Attempts], files: str, *, four_verbs: bool, stride: int
) -> None:
    """Kill an attempt of the story at every ``stride``-th line, on all helpers at once."""
    (folder / "count").mkdir()
    count = lines_of(story, folder / "count", helpers[0], files, four_verbs=four_verbs)
    assert count > 40

    def share(number: int) -> None:
        for line in range(1 + number * stride, count + 1, stride * len(helpers)):
            own = folder / str(line)
            own.mkdir()
            die_at(line, story, own, helpers[number], files, four_verbs=four_verbs)

    with ThreadPoolExecutor(len(helpers)) as threads:
        for _ in threads.map(share, range(len(helpers))):
            pass


def kinds_of_store(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test over both kinds of store, for each story."""
    test = pytest.mark.parametrize("four_verbs", [False, True], ids=["keepstate's store", "four verbs"])(test)
    return pytest.mark.parametrize("story", get_args(Story))(test)


@kinds_of_store
def test_killed_before_every_other_line_of_the_mixin(
    story: Story, four_verbs: bool, tmp_path: Path, helpers: list[Attempts]
) -> None:
    """Wherever in the mixin an attempt dies, a class with find_job submits each job once."""
    sweep(story, tmp_path, helpers, "jobs.py", four_verbs=four_verbs, stride=2)


@pytest.mark.slow
@kinds_of_store
def test_killed_before_every_line_of_the_mixin(
    story: Story, four_verbs: bool, tmp_path: Path, helpers: list[Attempts]
) -> None:
    """The same, without a gap."""
    sweep(story, tmp_path, helpers, "jobs.py", four_verbs=four_verbs, stride=1)


@pytest.mark.slow
@kinds_of_store
def test_killed_before_many_lines_of_all_keepstate(
    story: Story, four_verbs: bool, tmp_path: Path, helpers: list[Attempts]
) -> None:
    """The same, wherever in the store below: a transaction that was cut off never happened."""
    # all of them took eight minutes, and passed; every seventh is a sample
    sweep(story, tmp_path, helpers, "**/*.py", four_verbs=four_verbs, stride=7)
