"""Patterns of dag ids and asset names: ``*`` is any characters, ``?`` is one, all else is itself, case included."""

from __future__ import annotations

import re

# what no id and no asset name has, so that a pattern with one of these fits nothing
_NEVER = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# the longest thing that there is to fit, an asset's name
_LONGEST = 1500


def fits(pattern: str, text: str) -> bool:
    """Whether ``text`` as a whole fits ``pattern``, in time proportional to the product of their lengths."""
    # a regular expression would take exponential time for a row of stars with letters between
    at = star = rest = 0
    starred = False
    place = 0
    while place < len(text):
        if at < len(pattern) and pattern[at] == "*":
            starred, star, rest = True, at, place
            at += 1
        elif at < len(pattern) and pattern[at] in {"?", text[place]}:
            at += 1
            place += 1
        elif starred:
            # the last star takes one character more; earlier ones need not be tried again
            rest += 1
            at, place = star + 1, rest
        else:
            return False
    return not pattern[at:].strip("*")


def compacted(pattern: str) -> str | None:
    """Return a pattern that fits the same and is no longer than it need be, or ``None`` where it can fit no name at all."""
    if _NEVER.search(pattern) or len(pattern) - pattern.count("*") > _LONGEST:
        return None
    return re.sub(r"\*+", "*", pattern)
