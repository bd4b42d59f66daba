"""What keepstate may cost, as ratios, and for what is out of reach why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.rounds import Measurement


@dataclass(frozen=True)
class Budget:
    """The most that a contender's ratio to the baseline may be, or the least."""

    what: str
    group: str
    operation: str
    contender: str
    limit: float
    why: str = ""
    """Where the budget is out of reach: what the time is spent on, and what it buys."""
    at_least: bool = False
    """Whether the limit is the least, as for how many times as fast one is."""

    @property
    def shown(self) -> str:
        """The limit as the tables have it."""
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


@dataclass(frozen=True)
class Verdict:
    """A budget and what was measured."""

    budget: Budget
    ratio: float | None
    calm: bool = True
    """Whether the machine was left alone, without which a ratio means nothing."""

    @property
    def says(self) -> str:
        """``met``, ``not met``, ``not measured``, or ``machine busy`` where what was measured means nothing."""
        if self.ratio is None:
            return "not measured"
        if not self.calm:
            return "machine busy"
        # what is shown is what is judged
        shown, limit = round(self.ratio, 2), self.budget.limit
        return "met" if (shown >= limit if self.budget.at_least else shown <= limit) else "not met"


_EMBEDDED_SET = (
    "a `set` keeps three rows (the scope's version, which is the fence; the entry; its history) where the bare driver "
    "keeps one. Those three rows, written by the bare driver in one transaction, were measured at 1.33 to 1.36 times its "
    "one-row statement on this disk, which syncs in a tenth of a millisecond; the rest is Python: checking, encoding, the fence."
)

_HTTP = {
    "set": (
        "an embedded `set`, and one request around it. Of processor time that was measured at 0.13 ms in the client and 0.4 ms in "
        "the server, the commit included: uvicorn, the way to the endpoint, checking what was sent, and the hand-over to "
        "the one thread that writes. HTTPX in the client took 0.4 ms more."
    ),
    "get": (
        "one request. Of processor time that was measured at 0.12 ms in the client and 0.31 ms in the server: uvicorn, the "
        "way to the endpoint, and the hand-over to the thread that reads, without which it took 0.1 ms less."
    ),
}

_READS = "at the limit: 10.27, 10.95 and 9.88 in three runs."

BUDGETS: dict[str, Budget] = {
    "embedded set": Budget(
        "embedded `set` / the bare sqlite3 driver's durable upsert",
        "embedded",
        "set",
        "keepstate",
        1.5,
        _EMBEDDED_SET,
    ),
    "embedded set, new file": Budget(
        "the same, in a new file", "embedded", "set, new file", "keepstate", 1.5, "as above."
    ),
    "embedded get": Budget(
        "embedded `get` / the bare sqlite3 driver's select", "embedded", "get", "keepstate", 4
    ),
    "postgres set": Budget(
        "PostgreSQL `set` / bare psycopg's upsert",
        "postgres",
        "set",
        "keepstate",
        1.5,
        "one statement, and so one round trip, writes four rows where the bare upsert writes one: the scope's version, "
        "the request's number, the entry and its history. That statement through bare psycopg was measured at 1.25 to 1.3, "
        "and as a function in the database it was no faster; the rest is Python: the pool, checking and encoding take 8 µs "
        "on warm caches, and four times as long right after a wait.",
    ),
    "import": Budget(
        '`python -c "import keepstate"` / `python -c pass`', "startup", "start", "import keepstate", 2
    ),
    "run": Budget("`keepstate run -- true` / `python -c pass`", "startup", "start", "keepstate run", 10),
    "airflow import": Budget(
        "loading Airflow with keepstate installed / without it",
        "airflow-import",
        "load",
        "with keepstate",
        1.02,
        "at the limit: 1.02 and 1.03 in two runs in a row.",
    ),
    **{
        f"in-task {verb} {contender}": Budget(
            f"in-task `{verb}`: Airflow's own / {contender}",
            "in-task",
            verb,
            contender,
            limit,
            _HTTP[verb] if contender.endswith("HTTP") else "",
            at_least=True,
        )
        for contender, limit in (("keepstate", 20), ("keepstate, HTTP", 10))
        for verb in ("set", "get")
    },
    **{
        f"{group} {verb}": Budget(
            f"`{verb}` at 10 million entries / at 10 thousand, {where}",
            group,
            verb,
            "10 million entries",
            1.5,
        )
        for group, where in (("size-sqlite", "SQLite"), ("size-postgres", "PostgreSQL"))
        for verb in ("get", "set")
    },
    **{
        f"{group} set": Budget(
            f"p99 of 8 writers' `set` while 1 million of 10 million entries are cleaned up / without, {where}",
            group,
            "set",
            "during cleanup",
            5,
        )
        for group, where in (("cleanup-sqlite", "SQLite"), ("cleanup-postgres", "PostgreSQL"))
    },
    **{
        f"server {method}": Budget(
            f"{what} a second over PostgreSQL: keepstate's server / Airflow's",
            "server",
            method,
            "keepstate, PostgreSQL",
            10,
            _READS if method == "GET" else "",
            at_least=True,
        )
        for method, what in (("PUT", "durable writes"), ("GET", "reads"))
    },
}
"""Why a budget is out of reach stands next to it, and on the page while it is missed."""


def judge(measurements: Sequence[Measurement], groups: Sequence[str], *, calm: bool) -> list[Verdict]:
    """Compare with the budgets of those groups."""
    found = {(one.group, one.operation): one for one in measurements}
    verdicts = []
    for budget in BUDGETS.values():
        if budget.group in groups:
            measurement = found.get((budget.group, budget.operation))
            figure = measurement.of(budget.contender) if measurement else None
            verdicts.append(Verdict(budget, figure.ratio if figure else None, calm))
    return verdicts
