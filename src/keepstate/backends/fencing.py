"""Whether an attempt may go on, given the one that its scope stands at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from keepstate.clock import DAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.backends.requests import Fence, Holder

BURIED = 7 * DAY
"""How long an attempt of a deleted run is known as such; no task outlives its deleted run by more."""


@dataclass(frozen=True)
class Standing:
    """The attempt that a scope stands at: the one whose writes count. ``deleted`` when its run was deleted.

    When a person has written to it since, it stands at no try any more, and ``attempt_id`` is the last one's before.
    """

    try_number: int | None
    attempt_id: str | None
    incarnation: int
    item: str | None = None
    deleted: bool = False

    def at_other_item(self, fence: Fence) -> bool:
        """Whether an attempt works on another mapped item than the one that the scope's entries are of."""
        return None not in (fence.item, self.item) and fence.item != self.item

    def lacks_item(self, fence: Fence) -> bool:
        """Whether the item of the current attempt is not known yet: its first use, by another accessor, did not name it."""
        return self.item is None and fence.item is not None and fence.incarnation is None


NEW = Standing(try_number=None, attempt_id=None, incarnation=1)
"""A scope at which no attempt has stood yet."""


class Verdict(Enum):
    """What becomes of a request, given the attempt that the scope stands at."""

    CURRENT = "current"
    """It comes from the current attempt."""
    NEWER = "newer"
    """It comes from a later attempt, which becomes the current one."""
    NEW_INCARNATION = "new incarnation"
    """It comes from a task instance that was made again: it becomes current and starts empty."""
    STALE = "stale"
    """It comes from an attempt that has been superseded."""


def judge(  # noqa: PLR0911 - one line per rule
    standing: Standing, fence: Fence, known_in: Callable[[], int | None], now: int
) -> Verdict:
    """Decide what ``fence`` is to ``standing``. The one place where attempts are compared.

    ``known_in`` returns the incarnation in which exactly this attempt registered before, or ``None``; it is asked only
    when the answer matters. Rules: a higher try wins, a lower one is stale. An attempt id that is unknown, time-ordered
    (UUIDv7) and newer than the current one, on try 1, is a run made again. Who says in which incarnation it is was let in
    before, and begins no other one: neither as a run made again nor with another item. Where no attempt has stood yet it goes
    on: the scope had idled, and was removed. An id that says to be from more than a day after ``now`` is not taken for
    time-ordered: all that is made until then would be older.
    """
    if standing == NEW:
        return Verdict.NEWER
    if fence.incarnation is not None and fence.incarnation != standing.incarnation:
        return Verdict.STALE
    if standing.deleted or standing.try_number is None:
        registered = standing.deleted and fence.incarnation is not None
        old = registered or _ran_before(standing, fence, now) or known_in() is not None
        begun = Verdict.NEW_INCARNATION if standing.deleted else Verdict.NEWER
        return Verdict.STALE if old else begun
    same_try = fence.try_number == standing.try_number
    if same_try and (
        fence.attempt_id == standing.attempt_id or not (fence.attempt_id and standing.attempt_id)
    ):
        return Verdict.CURRENT
    if fence.incarnation is not None and standing.at_other_item(fence):
        return Verdict.STALE
    if fence.attempt_id is not None:
        known = known_in()
        if known is not None and (known < standing.incarnation or same_try):
            return Verdict.STALE
        newer = is_newer(fence.attempt_id, standing.attempt_id, now)
        if fence.try_number == 1 and newer and known is None and fence.incarnation is None:
            return Verdict.NEW_INCARNATION
        if same_try:
            # one try has one id; an unknown id that can't be ordered begins now
            return Verdict.STALE if newer is False else Verdict.NEWER
    return Verdict.NEWER if fence.try_number > standing.try_number else Verdict.STALE


def _ran_before(standing: Standing, fence: Fence, now: int) -> bool:
    """After a deletion all that ran before is stale; what can't be told from a new run is taken for one."""
    if fence.attempt_id is not None and fence.attempt_id == standing.attempt_id:
        return True
    return is_newer(fence.attempt_id, standing.attempt_id, now) is False


def outlived(standing: Standing, fence: Fence, known: int | None) -> bool:
    """Whether a stale attempt belongs to an earlier incarnation, whose entries are gone: it may not read these either."""
    if standing.deleted or standing.try_number is None or standing.at_other_item(fence):
        return True
    if fence.incarnation is not None and fence.incarnation != standing.incarnation:
        return True
    if known is not None:
        return known < standing.incarnation
    return fence.try_number == standing.try_number


def end_of_superseded(fence: Fence, holder: Holder | None) -> tuple[str, str]:
    """Return the state and the reason with which an attempt ends that was running when ``fence`` became current.

    Who begins with a process of its own (``holder``) does so where the one before is gone, or is taken over.
    """
    if holder is not None:
        return "lost", "its process is gone or was taken over"
    return "superseded", f"superseded by attempt {fence.try_number}"


def is_newer(one: str | None, other: str | None, now: int | None = None) -> bool | None:
    """Whether time-ordered id ``one`` was made after ``other``; ``None`` when either is no UUIDv7 (RFC 9562, 5.7).

    Nor is there an answer where one of them says that it was made more than a day after ``now``.
    """
    a, b = _uuid7(one), _uuid7(other)
    if a is None or b is None or (now is not None and _made_at(max(a, b)) > now + DAY):
        return None
    return a > b


def _made_at(uuid7: str) -> int:
    """Return when an id says that it was made: it begins with 48 bits of milliseconds."""
    return int(uuid7[:12], 16) * 1000


_UUID7 = re.compile(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", re.ASCII)


def _uuid7(text: str | None) -> str | None:
    digits = (text or "").replace("-", "").lower()
    return digits if _UUID7.fullmatch(digits) else None
