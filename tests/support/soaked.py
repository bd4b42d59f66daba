"""A client of a soak: ``python -m tests.support.soaked URL NAME TRY SEED JOURNAL``, until it is killed.

It writes down each change before it asks for it, and its answer afterwards: what was asked for and not answered may have
applied or not, and everything else is certain. Its journal is read by `tests.backends.test_soak`.
"""

from __future__ import annotations

import json
import random
import sys
from typing import IO, TYPE_CHECKING, Any

from keepstate.connect import connect
from keepstate.settings import Settings

if TYPE_CHECKING:
    from keepstate.accessors import TaskStateStore

SCOPE = ("etl", "soak")
SHARED = "shared"
VERBS = ("set", "pair", "count", "share", "toggle")


class Client:
    """A task that changes its own entries, and a counter that all of them share."""

    def __init__(self, own: TaskStateStore, shared: TaskStateStore, journal: IO[str], seed: int) -> None:
        self._own, self._shared, self._journal = own, shared, journal
        self._random = random.Random(seed)

    def work(self, number: int) -> None:
        """Change something, again and again; each change has a number of its own."""
        while True:
            number += 1
            verb = self._random.choice(VERBS)
            self._note({"asked": verb, "number": number})
            self._note({"answered": verb, "number": number, "answer": getattr(self, f"_{verb}")(number)})

    def _note(self, line: dict[str, Any]) -> None:
        # what the system has is safe from a kill
        self._journal.write(json.dumps(line) + "\n")
        self._journal.flush()

    def _set(self, number: int) -> None:
        self._own.set("set", number)

    def _pair(self, number: int) -> None:
        self._own.set_many({"left": number, "right": number})

    def _count(self, number: int) -> float:
        return self._own.increment("count")

    def _share(self, number: int) -> float:
        return self._shared.increment("count")

    def _toggle(self, number: int) -> None:
        if number % 2:
            self._own.set("toggle", number)
        else:
            self._own.delete("toggle")


def main() -> None:
    """Do what the command line says."""
    url, name, try_number, seed, journal = sys.argv[1:]
    # a database that crashed is back within seconds, on a machine that has time
    with connect(url, settings=Settings(retry_timeout=120)) as store, open(journal, "a") as file:  # noqa: PTH123
        own = store.task(*SCOPE, name, try_number=int(try_number))
        client = Client(own, store.task(*SCOPE, SHARED), file, int(seed))
        client.work(int(try_number) * 1_000_000)


if __name__ == "__main__":
    main()
