"""The command: ``python -m bench``."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import (
    airflow_import,
    clean,
    cleanup,
    embedded,
    in_task,
    machine,
    places,
    postgres,
    report,
    server,
    size,
    startup,
)
from bench.budgets import judge
from bench.rounds import Measurement, measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.contenders import Group, Operation

# The large stores take many times as long to fill as all the rest to measure: they are a run of their own.
SUITES = {
    "usual": (
        embedded.GROUP,
        postgres.GROUP,
        startup.GROUP,
        airflow_import.GROUP,
        in_task.GROUP,
        server.GROUP,
    ),
    "size": (size.SQLITE, size.POSTGRES, cleanup.SQLITE, cleanup.POSTGRES, clean.GROUP),
}
GROUPS = {group.name: group for suite in SUITES.values() for group in suite}
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "performance.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report. Exits with 1 when a budget could not be measured, never because one is not met."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure keepstate, as ratios in one run."
    )
    parser.add_argument(
        "--suite", choices=SUITES, default="usual", help="which groups (default: %(default)s)"
    )
    parser.add_argument("--only", choices=GROUPS, help="measure one group")
    parser.add_argument(
        "--quick", action="store_true", help="few rounds: to see that it works, not how fast it is"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to FILE")
    parser.add_argument("--write-docs", action="store_true", help=f"also write the tables into {PAGE.name}")
    options = parser.parse_args(arguments)
    if options.write_docs and (options.quick or options.only):
        parser.error("--write-docs takes a whole run: leave --quick and --only away")

    # a table of what servers do is wider than what a pipe is taken for
    console = Console(width=None if sys.stdout.isatty() else 120)
    groups = [GROUPS[options.only]] if options.only else list(SUITES[options.suite])
    run = _run(groups, quick=options.quick)
    report.show(run, console)
    if options.json:
        options.json.write_text(report.to_json(run), encoding="utf-8")
    if options.write_docs:
        report.write_into(PAGE, run, options.suite)
        console.print(f"written into {PAGE}")
    return 0 if run.complete else 1


def _run(groups: Sequence[Group], *, quick: bool) -> report.Run:
    facts = machine.describe(places.disk())
    neighbours = machine.Neighbours()
    measurements: list[Measurement] = []
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    ) as progress:
        for group in groups:
            measurements += _measure(group, progress, quick=quick)
            facts |= group.facts
    share = neighbours.share()
    facts["Processors' time taken by others"] = "unknown" if share is None else f"{share:.0%}"
    names = [group.name for group in groups]
    return report.Run(
        date=f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        machine=facts,
        titles={group.name: group.title for group in groups},
        measurements=tuple(measurements),
        verdicts=tuple(judge(measurements, names, calm=share is None or share <= neighbours.CALM)),
    )


def _measure(group: Group, progress: Progress, *, quick: bool) -> list[Measurement]:
    bars = {
        operation.name: progress.add_task(f"{group.name} {operation.name}", total=None, start=False)
        for operation in group.operations
    }

    def on_round(operation: Operation, number: int) -> None:
        bar = bars[operation.name]
        if number == 0:
            progress.start_task(bar)
        progress.update(bar, total=operation.rounds, completed=number)

    return measure(group, quick=quick, on_round=on_round)


if __name__ == "__main__":
    sys.exit(main())
