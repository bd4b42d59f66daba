"""``If-Match`` and ``If-None-Match``: changing an entry only as it was read (RFC 9110, 13.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from keepstate.server.answers import invalid

if TYPE_CHECKING:
    from starlette.requests import Request

NO_VERSION = 2**63 - 1
"""A version that no entry ever has: a change that expects it is refused, or finds its scope unknown."""

# people leave the quotes away, and there is nothing else that a bare number could mean
_ETAG = re.compile(r'(?P<quote>"?)(?P<version>[1-9][0-9]{0,17})(?P=quote)', re.ASCII)


@dataclass(frozen=True)
class Condition:
    """How an entry has to stand: at one of ``versions`` (``None``: at any, or absent); ``exists``; or ``absent``."""

    versions: frozenset[int] | None = None
    exists: bool = False
    absent: bool = False

    @property
    def at_once(self) -> bool:
        """Whether the change itself can carry the condition, as the one version that it expects."""
        return not self.exists and (self.versions is None or len(self.versions) <= 1)

    @property
    def expected(self) -> int | None:
        """The version that a change expects, where it can carry the condition."""
        if self.versions is not None:
            # both conditions can't hold
            return NO_VERSION if self.absent else next(iter(self.versions), NO_VERSION)
        return 0 if self.absent else None

    def holds(self, version: int) -> bool:
        """Whether an entry at ``version`` will do; 0 is an absent one."""
        if self.exists and not version:
            return False
        if self.absent and version:
            return False
        return self.versions is None or version in self.versions


ALWAYS = Condition()


def condition_of(request: Request) -> Condition:
    """Return the condition that the headers state. What is no version of ours holds never."""
    match, none_match = _stated(request, "if-match"), _stated(request, "if-none-match")
    if match is None and none_match is None:
        return ALWAYS
    if none_match is not None and none_match.strip() != "*":
        raise invalid(("header", "If-None-Match"), "must be *: only if there is no such entry")
    if match is None:
        return Condition(absent=True)
    if match.strip() == "*":
        return Condition(exists=True, absent=none_match is not None)
    found = (_ETAG.fullmatch(part.strip()) for part in match.split(","))
    return Condition(frozenset(int(one["version"]) for one in found if one), absent=none_match is not None)


def _stated(request: Request, name: str) -> str | None:
    """Return a header that is a list, and so may stand there more than once (RFC 9110, 5.3)."""
    lines = request.headers.getlist(name)
    return ", ".join(lines) if lines else None


def failed(key: str) -> HTTPException:
    """Make the answer to a change whose condition does not hold."""
    return HTTPException(
        412, f"key {key!r} does not meet the condition of the request; read it again and decide again"
    )


def etag(version: int) -> dict[str, str]:
    """Return the header that names an entry's version."""
    return {"ETag": f'"{version}"'}
