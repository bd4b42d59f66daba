"""`keepstate run`."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Annotated

from keepstate.cli import options, output, times
from keepstate.cli.declared import Argument, Option
from keepstate.cli.stores import opened
from keepstate.runtime.supervisor import GRACE, RETRY_DELAY, supervise
from keepstate.settings import Settings

if TYPE_CHECKING:
    from keepstate.runtime.supervisor import Event

_NAMES = "Names"
_AGAIN = "Retries and time limits"


def run_(
    command: Annotated[
        list[str],
        Argument("COMMAND...", help="The program and its arguments, best after --."),
    ],
    dag_id: Annotated[
        str | None,
        Option(
            "--dag-id",
            metavar="ID",
            help="The dag.",
            panel=_NAMES,
            default="the program's name",
        ),
    ] = None,
    run_id: Annotated[
        str | None,
        Option(
            "--run-id",
            metavar="ID",
            help="The run.",
            panel=_NAMES,
            default="the dag's newest unfinished run, else a new one",
        ),
    ] = None,
    task_id: Annotated[
        str | None,
        Option(
            "--task-id",
            metavar="ID",
            help="The task.",
            panel=_NAMES,
            default="the program's name",
        ),
    ] = None,
    map_index: Annotated[
        int,
        Option(
            "--map-index",
            metavar="N",
            minimum=-1,
            help="The index of a mapped task's instance.",
            panel=_NAMES,
        ),
    ] = -1,
    retries: Annotated[
        int,
        Option(
            "--retries",
            metavar="N",
            minimum=0,
            help="How many times to start it again.",
            panel=_AGAIN,
        ),
    ] = 0,
    retry_delay: Annotated[
        str | None,
        Option(
            "--retry-delay",
            metavar="TIME",
            help="How long to wait before a retry: 30s, 10m, 1h.",
            panel=_AGAIN,
            default=f"{RETRY_DELAY.total_seconds():g}s",
        ),
    ] = None,
    backoff: Annotated[
        bool,
        Option("--exponential-backoff", help="Double the wait after each failure.", panel=_AGAIN),
    ] = False,
    max_retry_delay: Annotated[
        str | None,
        Option(
            "--max-retry-delay",
            metavar="TIME",
            help="The longest wait.",
            panel=_AGAIN,
            default="24h",
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        Option(
            "--timeout",
            metavar="TIME",
            help="End an attempt that takes longer; it counts as failed.",
            panel=_AGAIN,
        ),
    ] = None,
    grace: Annotated[
        str | None,
        Option(
            "--grace",
            metavar="TIME",
            help="How long the command has to end after SIGTERM, before it is killed.",
            panel=_AGAIN,
            default=f"{GRACE.total_seconds():g}s",
        ),
    ] = None,
    take_over: Annotated[
        bool,
        Option(
            "--take-over",
            help="Start even if another process runs it; writes by that process are refused from then on.",
        ),
    ] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Don't report attempts on stderr.")] = False,
    url: options.Url = None,
) -> int:
    """Run a command, and start it again if it fails, is killed or hangs; it can store where it was.

    In the command, `keepstate get` and `set` need no options: they use its own task instance, whose entries outlive
    each attempt. While it runs, a second start is refused (exit code 75). Signals are passed on. A run that has
    succeeded is not run again. The exit code is that of the last attempt.

    Examples:
      keepstate run --retries 10 --retry-delay 10m -- ./load.sh
      keepstate run --run-id "$(date +%F)" --retries 3 --timeout 2h -- python nightly.py
      keepstate run --dag-id etl --run-id r1 --task-id load --take-over -- ./load.sh
    """
    # what runs for hours has time to collect its garbage
    gc.enable()
    delay = (
        RETRY_DELAY
        if retry_delay is None
        else times.duration(retry_delay, "--retry-delay", longest=times.WAIT)
    )
    longest = (
        None
        if max_retry_delay is None
        else times.duration(max_retry_delay, "--max-retry-delay", longest=times.WAIT)
    )
    limit = (
        None
        if timeout is None
        else times.duration(timeout, "--timeout", longer_than_zero=True, longest=times.WAIT)
    )
    mercy = GRACE if grace is None else times.duration(grace, "--grace", longest=times.WAIT)
    with opened(url, Settings.load(), purge=True) as store:
        return supervise(
            store,
            command,
            dag_id=dag_id,
            run_id=run_id,
            task_id=task_id,
            map_index=map_index,
            retries=retries,
            retry_delay=delay,
            retry_exponential_backoff=backoff,
            max_retry_delay=longest,
            timeout=limit,
            grace=mercy,
            take_over=take_over,
            url=url,
            on_event=None if quiet else Teller(retries).tell,
        )


class Teller:
    """Tells of attempts: a line when one begins, and one when it fails that also says what comes next."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._failed = ""

    def tell(self, event: Event) -> None:
        """Print what there is to say of an event, together with the failure that it follows."""
        if event.kind in {"succeeded", "lost"}:
            # the exit code says the one, and the library warns of the other
            return
        if event.kind == "failed":
            self._failed = str(event)
            return
        # that there is no retry left is news only where there were some
        what_next = "" if event.kind == "exhausted" and not self._retries else str(event)
        output.say("; ".join(filter(None, (self._failed, what_next))))
        self._failed = ""
