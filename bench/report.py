"""A run and how it is shown: in the terminal, as JSON, and in the documentation."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import Console

    from bench.budgets import Verdict
    from bench.rounds import Figure, Measurement

UNMEASURED = "No whole run was made on a calm machine yet."
"""What stands in the page instead of a suite's tables."""
_COLORS = {"met": "green", "not met": "red", "not measured": "yellow", "machine busy": "yellow"}
_FIGURE = ("contender", "median", "min to max", "ratio", "min to max")
_LOAD = ("contender", "a second", "min to max", "median", "p99", "ratio", "min to max")


@dataclass(frozen=True)
class Run:
    """Everything that one run found out."""

    date: str
    machine: dict[str, str]
    titles: dict[str, str]
    """The groups measured, by name."""
    measurements: tuple[Measurement, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def complete(self) -> bool:
        """Whether every budget of the groups could be measured."""
        return all(verdict.ratio is not None for verdict in self.verdicts)

    def contenders(self, group: str) -> list[Figure]:
        """Return a figure of each contender of a group: for what it says about the contender."""
        figures = (figure for one in self.measurements if one.group == group for figure in one.figures)
        return list({figure.contender: figure for figure in figures}.values())


# ------------------------------------------------------------------------------------------------- terminal


def show(run: Run, console: Console) -> None:
    """Print the run as tables."""
    for group, title in run.titles.items():
        for measurement in run.measurements:
            if measurement.group == group:
                _print(console, f"{title}: {measurement.operation}", *_table(measurement))
        for figure in run.contenders(group):
            console.print(f"  {figure.contender}: {_manner(figure)}", style="dim", highlight=False)
        console.print()
    rows = (
        (
            verdict.budget.what,
            verdict.budget.shown,
            _ratio(verdict.ratio),
            f"[{_COLORS[verdict.says]}]{verdict.says}[/]",
        )
        for verdict in run.verdicts
    )
    _print(console, "Budgets: ratios of medians", ("what", "budget", "measured", "verdict"), rows)
    console.print(" · ".join(f"{name}: {value}" for name, value in run.machine.items()), style="dim")


def _print(console: Console, title: str, headings: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> None:
    table = Table(title=title, title_justify="left")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=number > 0)
    for row in rows:
        table.add_row(*row)
    console.print(table)


# ------------------------------------------------------------------------------------------------------ JSON


def to_json(run: Run) -> str:
    """Return the run as JSON: times in nanoseconds."""
    whole = asdict(run)
    for verdict, plain in zip(run.verdicts, whole["verdicts"], strict=True):
        plain["verdict"] = verdict.says
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


# ------------------------------------------------------------------------------------------------- Markdown


def marks(suite: str) -> tuple[str, str]:
    """Return what stands in the page before and after the tables of a suite."""
    return f"<!-- bench {suite}: begin -->", f"<!-- bench {suite}: end -->"


def write_into(page: Path, run: Run, suite: str) -> None:
    """Replace what stands between a suite's markers in a page. Raises ``ValueError`` when it has none."""
    text = page.read_text(encoding="utf-8")
    first, last = marks(suite)
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{page} has no {first} … {last} to write between")
    page.write_text(f"{before}{begin}\n\n{to_markdown(run)}\n{end}{after}", encoding="utf-8")


def to_markdown(run: Run) -> str:
    """Return the run as Markdown: headings of the third level, and tables."""
    return "\n".join(_markdown(run)) + "\n"


def _markdown(run: Run) -> Iterator[str]:
    yield from ("### Budgets", "")
    yield from _headings("ratio of medians", "budget", "measured", "")
    for verdict in run.verdicts:
        budget = verdict.budget
        yield f"| {budget.what} | {budget.shown} | {_ratio(verdict.ratio)} | **{verdict.says}** |"
    missed = [verdict.budget for verdict in run.verdicts if verdict.says == "not met"]
    if missed:
        yield ""
        yield from (f"- {budget.what}: {budget.why or 'not looked into yet.'}" for budget in missed)
    for group, title in run.titles.items():
        yield from ("", f"### {title}")
        for measurement in run.measurements:
            if measurement.group == group:
                yield from _measured(measurement)
        yield from ("", "How each runs:", "")
        yield from (f"- **{figure.contender}** {_manner(figure)}" for figure in run.contenders(group))
    yield from ("", "### Machine", "", f"Measured on {run.date}.", "")
    yield from _headings("", "")
    yield from (f"| {name} | {value} |" for name, value in run.machine.items())


def _measured(measurement: Measurement) -> Iterator[str]:
    samples = max((figure.samples for figure in measurement.figures), default=0)
    headings, rows = _table(measurement)
    of_each = "" if headings is _LOAD else f", {samples} samples of each"
    yield from ("", f"`{measurement.operation}`, {measurement.rounds} rounds{of_each}:", "")
    yield from _headings(*headings)
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _headings(*headings: str) -> tuple[str, str]:
    return f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)


# --------------------------------------------------------------------------------------------------- figures


def _table(measurement: Measurement) -> tuple[tuple[str, ...], Iterator[tuple[str, ...]]]:
    """Return the headings and rows of an operation."""
    headings = _LOAD if any(figure.answers for figure in measurement.figures) else _FIGURE
    return headings, (_row(figure, len(headings)) for figure in measurement.figures)


def _row(figure: Figure, width: int) -> tuple[str, ...]:
    if figure.missing:
        return (figure.contender, "not measured", *[""] * (width - 2))
    answers = figure.answers
    measured = (
        (_time(figure.median), f"{_time(figure.lowest)} to {_time(figure.highest)}")
        if answers is None
        else (
            f"{answers.rate:,.0f}",
            f"{answers.lowest:,.0f} to {answers.highest:,.0f}",
            _time(figure.median),
            _time(answers.p99),
        )
    )
    return (
        figure.contender,
        *measured,
        "" if figure.ratio is None else _ratio(figure.ratio),
        "" if figure.ratio is None else f"{_ratio(figure.lowest_ratio)} to {_ratio(figure.highest_ratio)}",
    )


def _manner(figure: Figure) -> str:
    if figure.manner is None:
        return f"was not measured: {figure.missing}"
    manner = figure.manner
    return "; ".join(part for part in (manner.version, manner.durability, manner.remark) if part)


def _ratio(ratio: float | None) -> str:
    return "not measured" if ratio is None else f"{ratio:.2f}"


def _time(nanoseconds: float) -> str:
    if nanoseconds < 100_000:
        return f"{nanoseconds / 1000:.1f} µs"
    return f"{nanoseconds / 1_000_000:.2f} ms"
