"""The contest: contenders take turns in rounds, and each is compared with the baseline of the same round."""

from __future__ import annotations

import dataclasses
import random
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING

from bench.contenders import ContenderError, Group, Lane, Load, Manner, Operation

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Answers:
    """A server under load: answers a second by round, and the time that one in a hundred took longer than."""

    rate: float
    lowest: float
    highest: float
    p99: float


@dataclass(frozen=True)
class Figure:
    """One contender at one operation. Times are in nanoseconds, over all samples; ratios are of the rounds' medians.

    Under load, a sample is an answer, times are of the rounds' medians, and ratios are of the answers a second.
    """

    contender: str
    manner: Manner | None = None
    samples: int = 0
    median: float = 0
    lowest: float = 0
    highest: float = 0
    mean: float = 0
    ratio: float | None = None
    lowest_ratio: float | None = None
    highest_ratio: float | None = None
    answers: Answers | None = None
    missing: str = ""
    """Why there is no figure; empty where there is one."""


@dataclass(frozen=True)
class Measurement:
    """One operation of one group: the figures of all contenders, the baseline first."""

    group: str
    operation: str
    rounds: int
    figures: tuple[Figure, ...]

    def of(self, contender: str) -> Figure | None:
        """Return a contender's figure, if it took part."""
        return next((figure for figure in self.figures if figure.contender == contender), None)


def measure(group: Group, *, quick: bool, on_round: Callable[[Operation, int], None]) -> list[Measurement]:
    """Measure all operations of a group. Who can't take part is reported with the reason, and the rest go on."""
    lanes: dict[str, Lane] = {}
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        try:
            where = stack.enter_context(group.place())
        except ContenderError as exc:
            missing = {contender.name: str(exc) for contender in group.contenders}
        else:
            for contender in group.contenders:
                try:
                    lane = Lane(contender, where)
                except ContenderError as exc:
                    missing[contender.name] = str(exc)
                else:
                    stack.callback(lane.close)
                    lanes[contender.name] = lane
        return [
            _measure(group, _shortened(operation) if quick else operation, lanes, missing, on_round)
            for operation in group.operations
        ]


def _shortened(operation: Operation) -> Operation:
    samples, warm_up = (2, 1) if operation.is_load else (5, 3)
    return dataclasses.replace(
        operation,
        rounds=min(operation.rounds, 3),
        samples=min(operation.samples, samples),
        warm_up=min(operation.warm_up, warm_up),
    )


def _measure(
    group: Group,
    operation: Operation,
    lanes: dict[str, Lane],
    missing: dict[str, str],
    on_round: Callable[[Operation, int], None],
) -> Measurement:
    rounds: dict[str, list[list[int] | Load]] = {}
    absent = dict(missing)
    # seeded: the order changes from round to round, so that nobody always follows the same one
    order, shuffler = list(lanes), random.Random(operation.name)
    for number in range(operation.rounds + 1):
        shuffler.shuffle(order)
        for name in order:
            if name in absent:
                continue
            try:
                found = lanes[name].sample(operation, warm_up=number == 0)
            except ContenderError as exc:
                absent[name] = str(exc)
                continue
            if number and found:
                rounds.setdefault(name, []).append(found)
        on_round(operation, number)
    base = rounds.get(group.baseline, []) if group.baseline not in absent else []
    figures = [
        Figure(contender.name, missing=absent[contender.name])
        if contender.name in absent
        else _figure(
            lanes[contender.name].manner,
            contender.name,
            rounds[contender.name],
            base,
            is_gain=group.is_gain,
            took=_p99 if operation.by_p99 else _took,
        )
        for contender in group.contenders
        if contender.name in absent or contender.name in rounds
    ]
    return Measurement(group.name, operation.name, operation.rounds, tuple(figures))


def _figure(
    manner: Manner,
    name: str,
    rounds: list[list[int] | Load],
    base: list[list[int] | Load],
    *,
    is_gain: bool,
    took: Callable[[list[int] | Load], float],
) -> Figure:
    loads = [one for one in rounds if isinstance(one, Load)]
    times = [time for one in rounds if not isinstance(one, Load) for time in one]
    shown = [one.p50 for one in loads] or times
    ratios = [
        took(theirs) / took(ours) if is_gain else took(ours) / took(theirs)
        for ours, theirs in zip(rounds, base, strict=False)
    ]
    return Figure(
        name,
        manner=manner,
        samples=sum(one.answers for one in loads) or len(times),
        median=median(shown),
        lowest=min(shown),
        highest=max(shown),
        mean=sum(shown) / len(shown),
        ratio=median(ratios) if ratios else None,
        lowest_ratio=min(ratios, default=None),
        highest_ratio=max(ratios, default=None),
        answers=_answers(loads) if loads else None,
    )


def _took(found: list[int] | Load) -> float:
    """Return what a round says of the time that one operation takes; under load, side by side with others."""
    return 1 / found.rate if isinstance(found, Load) else median(found)


def _p99(found: list[int] | Load) -> float:
    """Return what a round says of the time that one operation in a hundred exceeds."""
    return found.p99 if isinstance(found, Load) else quantiles(found, n=100)[-1]


def _answers(loads: list[Load]) -> Answers:
    rates = [one.rate for one in loads]
    return Answers(median(rates), min(rates), max(rates), median(one.p99 for one in loads))
