"""The contest: contenders take turns in rounds, and each is compared with the baseline of the same round."""

from __future__ import annotations

import dataclasses
import random
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from bench.contenders import ContenderError, Group, Lane, Manner, Operation

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Figure:
    """One contender at one operation. Times are in nanoseconds, over all samples; ratios are of the rounds' medians."""

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
    with group.place() as where, ExitStack() as stack:
        lanes: dict[str, Lane] = {}
        missing: dict[str, str] = {}
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
    return dataclasses.replace(
        operation, rounds=3, samples=min(operation.samples, 5), warm_up=min(operation.warm_up, 3)
    )


def _measure(
    group: Group,
    operation: Operation,
    lanes: dict[str, Lane],
    missing: dict[str, str],
    on_round: Callable[[Operation, int], None],
) -> Measurement:
    times: dict[str, list[list[int]]] = {}
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
                times.setdefault(name, []).append(found)
        on_round(operation, number)
    base = times.get(group.baseline, []) if group.baseline not in absent else []
    figures = [
        Figure(contender.name, missing=absent[contender.name])
        if contender.name in absent
        else _figure(contender.name, lanes[contender.name].manner, times[contender.name], base)
        for contender in group.contenders
        if contender.name in absent or contender.name in times
    ]
    return Measurement(group.name, operation.name, operation.rounds, tuple(figures))


def _figure(name: str, manner: Manner, rounds: list[list[int]], base: list[list[int]]) -> Figure:
    samples = [time for one in rounds for time in one]
    ratios = [median(ours) / median(theirs) for ours, theirs in zip(rounds, base, strict=False)]
    return Figure(
        name,
        manner=manner,
        samples=len(samples),
        median=median(samples),
        lowest=min(samples),
        highest=max(samples),
        mean=sum(samples) / len(samples),
        ratio=median(ratios) if ratios else None,
        lowest_ratio=min(ratios, default=None),
        highest_ratio=max(ratios, default=None),
    )
