"""Waits until an example has come as far as its page says: then it is killed there, on a slow machine as on a fast one.

``python -m tests.docs.until FILE PID EXPECTED``: until FILE holds the output that is expected; where none is, until the
process has begun an attempt of a task.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from keepstate import connect
from tests.docs.pages import matches

_DEADLINE = 60


def is_there(file: Path, pid: int, expected: str) -> bool:
    """Whether the example has come so far."""
    if expected:
        return matches(expected, file.read_text(encoding="utf-8"))
    with connect() as store:
        return any(
            attempt.pid == pid
            for run in store.runs()
            for ti in store.task_instances(run.dag_id, run.run_id)
            for attempt in store.attempts(run.dag_id, run.run_id, ti.scope.task_id)
        )


if __name__ == "__main__":
    printed, process, wanted = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    end = time.monotonic() + _DEADLINE
    while not is_there(printed, process, wanted) and time.monotonic() < end:
        time.sleep(0.05)
