"""What takes part: a contender runs in a process of its own and is asked for samples of one operation at a time."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_PATIENCE = 120.0
_TO_END = 60.0


class ContenderError(Exception):
    """A contender can't be measured; the message says why."""


@dataclass(frozen=True)
class Load:
    """What a server did under load: how many answers in how many seconds, and how long they took, in nanoseconds."""

    answers: int
    seconds: float
    p50: float
    p99: float

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.answers / self.seconds


Sampler = Callable[[int], "list[int] | Load"]
"""Does an operation so many times and returns how long each took, in nanoseconds; or loads a server for so many seconds."""


@dataclass(frozen=True)
class Manner:
    """How a contender runs: which version, how durable a write is by its own account, and what else to know."""

    version: str
    durability: str
    remark: str = ""


@dataclass(frozen=True)
class Opened:
    """A contender, ready: its operations, and how it says that it runs."""

    operations: Mapping[str, Sampler]
    manner: Manner


Opener = Callable[[str], AbstractContextManager[Opened]]
"""Opens a contender on a folder or server, in the contender's process. A module of its own is imported in there."""


@dataclass(frozen=True)
class Contender:
    """One who takes part, by the name that the tables show."""

    name: str
    open: Opener
    can_renew: bool = True
    """Whether it can be opened again and again in one process."""
    to_open: float = _PATIENCE
    """The seconds that opening it may take: some are installed first."""


@dataclass(frozen=True)
class Operation:
    """What is done over and over: so many samples of each contender in each of so many rounds."""

    name: str
    rounds: int
    samples: int
    warm_up: int
    """How often it is done before: once for all, or where the place is new each round, in each."""
    verb: str = ""
    """Which of a contender's operations, where the name says more than that."""
    renewed: bool = False
    """Whether each round has a new and empty place."""
    is_load: bool = False
    """Whether a server is loaded, and ``samples`` and ``warm_up`` are seconds."""
    patience: float = _PATIENCE
    """The seconds that a round of one contender may take."""
    by_p99: bool = False
    """Whether loads are compared by what one in a hundred took, rather than by how many there were a second."""


@dataclass(frozen=True)
class Group:
    """Contenders that do the same, and the baseline among them: the first."""

    name: str
    title: str
    contenders: tuple[Contender, ...]
    operations: tuple[Operation, ...]
    place: Callable[[], AbstractContextManager[str]]
    facts: dict[str, str] = field(default_factory=dict)
    """What ``place`` found out, such as the version of a server."""
    is_gain: bool = False
    """Whether a ratio says how many times as fast as the baseline one is, instead of how many times as long one takes."""

    @property
    def baseline(self) -> str:
        """The name of the contender that the others are divided by."""
        return self.contenders[0].name


def timed(operation: Callable[[], object], *, batch: int = 1) -> Sampler:
    """Return a sampler of ``operation``. Where a clock reading would weigh, a sample is the mean of a ``batch``."""

    def sample(count: int) -> list[int]:
        times = []
        repeats = range(batch)
        for _ in range(count):
            start = perf_counter_ns()
            for _ in repeats:
                operation()
            times.append((perf_counter_ns() - start) // batch)
        return times

    return sample


class Lane:
    """A contender's process. Apart from the others, so that nobody's threads or garbage slow down somebody else."""

    def __init__(self, contender: Contender, where: str) -> None:
        """Start the process and wait until it is ready. Raises ``ContenderError`` when it can't be."""
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(contender, where, theirs), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self.manner: Manner = self._answer(contender.to_open)
        except ContenderError:
            self.close()
            raise

    def sample(self, operation: Operation, *, warm_up: bool) -> list[int] | Load:
        """Return a round's times in nanoseconds or its load, or those of warming up; none where it has no such operation."""
        self._ours.send((operation, warm_up))
        found: list[int] | Load = self._answer(operation.patience)
        return found

    def close(self) -> None:
        """End the process in good order, or at once if it does not answer."""
        with suppress(OSError):
            self._ours.send(None)
        self._process.join(_TO_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._ours.close()

    def _answer(self, patience: float) -> Any:
        try:
            if not self._ours.poll(patience):
                raise ContenderError(f"no answer within {patience:g} s")
            error, answer = self._ours.recv()
        except EOFError as exc:
            raise ContenderError("its process died") from exc
        if error:
            raise ContenderError(error)
        return answer


def _serve(contender: Contender, where: str, requests: Connection) -> None:
    """Open the contender and answer its requests: what runs in its process."""
    for name in list(os.environ):
        # keepstate as it comes, and bytecode written and used as in everyday life
        if name.startswith(("KEEPSTATE_", "AIRFLOW__")) or name == "PYTHONDONTWRITEBYTECODE":
            del os.environ[name]
    try:
        with contender.open(where) as opened:
            requests.send((None, opened.manner))
            while request := requests.recv():
                operation, warm_up = request
                if operation.renewed:
                    found = _sample_anew(contender, where, operation)
                else:
                    found = _sample(opened, operation, operation.warm_up if warm_up else operation.samples)
                requests.send((None, found))
    except EOFError:
        return
    except ContenderError as exc:
        requests.send((str(exc), None))
    except ModuleNotFoundError as exc:
        requests.send((f"{exc.name} is not installed", None))
    except Exception as exc:  # noqa: BLE001 - whatever it is, it belongs into the report and not into a lost process
        requests.send((f"{type(exc).__name__}: {exc}", None))


def _sample(opened: Opened, operation: Operation, count: int) -> list[int] | Load:
    sampler = opened.operations.get(operation.verb or operation.name)
    return sampler(count) if sampler else []


def _sample_anew(contender: Contender, where: str, operation: Operation) -> list[int] | Load:
    if not contender.can_renew:
        return []
    # left there until the end: removing files is work for the file system that others would wait for
    with contender.open(tempfile.mkdtemp(dir=where)) as opened:
        _sample(opened, operation, operation.warm_up)
        return _sample(opened, operation, operation.samples)
