"""A worker process for tests of concurrency: ``python -m tests.support.hammer URL VERB ROUNDS NUMBER``.

It says ``ready``, waits for a line, does its rounds, and says what it saw, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from keepstate.connect import connect
from keepstate.errors import VersionConflictError
from keepstate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.accessors import TaskStateStore


def increment(tss: TaskStateStore, rounds: int, number: int) -> list[int]:
    """Add one, again and again; return every sum."""
    return [tss.increment("n") for _ in range(rounds)]


def update(tss: TaskStateStore, rounds: int, number: int) -> int:
    """Note pages in one list."""
    for page in range(rounds):
        tss.update("pages", lambda pages, page=page: [*pages, [number, page]], [])
    return rounds


def set_many(tss: TaskStateStore, rounds: int, number: int) -> list[bool]:
    """Write pairs, and look at pairs."""
    alike = []
    for turn in range(rounds):
        tss.set_many({"left": [number, turn], "right": [number, turn]})
        seen = dict(tss.items())
        alike.append(seen["left"] == seen["right"])
    return alike


def compare_and_set(tss: TaskStateStore, rounds: int, number: int) -> list[int]:
    """Write over each version in turn; return those that were won."""
    won = []
    while (version := _version(tss)) <= rounds:
        try:
            tss.set("k", number, if_version=version)
        except VersionConflictError:
            continue
        won.append(version)
    return won


def _version(tss: TaskStateStore) -> int:
    entry = tss.entry("k")
    return entry.version if entry else 0


VERBS: dict[str, Callable[[TaskStateStore, int, int], Any]] = {
    "increment": increment,
    "update": update,
    "set_many": set_many,
    "compare_and_set": compare_and_set,
}


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    """Do what the command line says."""
    url, verb, rounds, number = sys.argv[1:]
    with connect(url, settings=Settings(token=os.environ.get("KEEPSTATE_TOKEN"))) as store:
        tss = store.task("etl", "2026-11-29", "load", try_number=1, attempt_id="one")
        _say("ready")
        sys.stdin.readline()
        _say(json.dumps(VERBS[verb](tss, int(rounds), int(number))))


if __name__ == "__main__":
    main()
