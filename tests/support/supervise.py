"""The supervisor as a program of its own: what `keepstate run` is, without the command line's manners."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from keepstate import KeepstateError, connect
from keepstate.runtime.supervisor import Event, supervise


def main() -> int:
    """Supervise the command after ``--``."""
    parser = argparse.ArgumentParser()
    for option in ("dag-id", "run-id", "task-id", "url", "events"):
        parser.add_argument(f"--{option}")
    for option in ("retry-delay", "timeout", "grace", "max-retry-delay"):
        parser.add_argument(f"--{option}", type=float)
    parser.add_argument("--retries", type=int, default=0)
    parser.add_argument("--map-index", type=int, default=-1)
    parser.add_argument("--take-over", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = vars(parser.parse_args())
    events = options.pop("events")
    command = options.pop("command")[1:]
    given = {name: value for name, value in options.items() if value is not None}

    def note(event: Event) -> None:
        with Path(events).open("a") as file:
            file.write(json.dumps({**vars(event), "scope": str(event.scope)}) + "\n")

    with connect(options["url"]) as store:
        try:
            return supervise(store, command, on_event=note, **{"retry_delay": 0.05, **given})
        except KeepstateError as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            return 75


if __name__ == "__main__":
    sys.exit(main())
