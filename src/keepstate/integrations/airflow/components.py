"""Which of Airflow's components this process is, as its listeners are told."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_SCHEDULER = "SchedulerJob"
_PATIENCE = 60.0


def if_scheduler(component: Any, action: Callable[[], None]) -> None:
    """Run ``action`` on a thread of its own if ``component`` turns out to be the scheduler's job.

    Airflow tells of a job while it is being made, a moment before it knows what kind of job it is.
    """
    if not hasattr(component, "job_type"):
        return

    def wait() -> None:
        deadline = time.monotonic() + _PATIENCE
        while component.job_type is None and time.monotonic() < deadline:
            time.sleep(0.1)
        if component.job_type == _SCHEDULER:
            action()

    threading.Thread(target=wait, name="keepstate-scheduler", daemon=True).start()
