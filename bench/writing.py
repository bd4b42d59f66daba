"""Several tasks that write at once, each in a process of its own, and how long each `set` took."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from statistics import quantiles
from time import monotonic, perf_counter_ns
from typing import IO, TYPE_CHECKING, cast

from bench.contenders import ContenderError, Load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keepstate import TaskScope


@contextmanager
def writers(url: str, scopes: list[TaskScope]) -> Iterator[Callable[[int], Load]]:
    """Start a writer for each scope; give what lets all of them write for so many seconds."""
    with ExitStack() as stack:
        pipes = [stack.enter_context(_writer(url, scope)) for scope in scopes]

        def load(seconds: int) -> Load:
            for requests, _ in pipes:
                requests.write(f"{seconds}\n")
                requests.flush()
            times = [time for _, answers in pipes for time in _times(answers)]
            cuts = quantiles(times, n=100)
            return Load(len(times), seconds, p50=cuts[49], p99=cuts[98])

        yield load


@contextmanager
def _writer(url: str, scope: TaskScope) -> Iterator[tuple[IO[str], IO[str]]]:
    # no multiprocessing: a contender's process may have no children of that kind
    command = [sys.executable, "-m", __name__, url, scope.dag_id, scope.run_id, scope.task_id]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
    finally:
        process.communicate()


def _times(answers: IO[str]) -> list[int]:
    line = answers.readline()
    if not line:
        raise ContenderError("a writer died")
    found: list[int] = json.loads(line)
    return found


def _write(url: str, dag_id: str, run_id: str, task_id: str) -> None:
    """Write a key again and again for as long as is asked, until nobody asks any more: what a writer's process runs."""
    from keepstate import connect

    with connect(url) as store:
        task = store.task(dag_id, run_id, task_id, try_number=1)
        for request in sys.stdin:
            times = []
            until = monotonic() + int(request)
            while monotonic() < until:
                start = perf_counter_ns()
                task.set("page", len(times))
                times.append(perf_counter_ns() - start)
            print(json.dumps(times), flush=True)


if __name__ == "__main__":
    _write(*sys.argv[1:])
