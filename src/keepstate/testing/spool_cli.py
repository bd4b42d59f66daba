"""The spool job system on the command line: ``python -m keepstate.testing.spool DIR submit|status|wait|…``."""

from __future__ import annotations

import argparse
import json
import os
import sys

from keepstate.testing.spool import SpoolError, SpoolJobSystem

__all__ = ["main"]


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m keepstate.testing.spool", description="A small real job system in a directory."
    )
    parser.add_argument("directory", metavar="DIR")
    verbs = parser.add_subparsers(dest="verb", required=True)
    submit = verbs.add_parser("submit", help="start a job and print its id")
    submit.add_argument("--seconds", type=float, default=60.0, help="how long it works (60)")
    submit.add_argument("--token", help="a tag to find it by")
    submit.add_argument("--outcome", choices=("succeeded", "failed"), default="succeeded")
    submit.add_argument("--payload", type=json.loads, metavar="JSON", help="what its result is")
    wait = verbs.add_parser(
        "wait", help="wait for a job's end: exit 0 SUCCEEDED, 1 any other, 75 still running"
    )
    wait.add_argument("--timeout", type=float, metavar="SECONDS")
    others = {
        "status": "print a job's status",
        "result": "print a succeeded job's result as JSON",
        "release": "let a job end now",
        "cancel": "kill a job",
    }
    for verb in (wait, *(verbs.add_parser(name, help=text) for name, text in others.items())):
        verb.add_argument("job_id", metavar="ID")
    verbs.add_parser("find", help="print the id of the newest job with a token; exit 1 if none").add_argument(
        "token"
    )
    verbs.add_parser("submissions", help="print the ledger, one JSON object a line")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run one command line; return its exit code: 0 done, 1 no (see `wait`, `find`), 2 misused, 75 timed out."""
    arguments = _arguments(argv)
    system = SpoolJobSystem(arguments.directory)
    try:
        code, output = _run_verb(system, arguments)
    except (SpoolError, TimeoutError) as error:
        sys.stderr.write(f"{error}\n")
        return os.EX_TEMPFAIL if isinstance(error, TimeoutError) else 1
    if output:
        sys.stdout.write(f"{output}\n")
    return code


def _run_verb(system: SpoolJobSystem, arguments: argparse.Namespace) -> tuple[int, str | None]:
    options = {k: v for k, v in vars(arguments).items() if k not in {"directory", "verb"}}
    if arguments.verb == "find":
        found = system.find_by_token(arguments.token)
        return (1 if found is None else 0), found
    if arguments.verb == "submissions":
        return 0, "\n".join(json.dumps(vars(submission)) for submission in system.submissions())
    value = getattr(system, arguments.verb)(**options)
    if arguments.verb == "wait":
        return (0 if value == "SUCCEEDED" else 1), value
    return 0, json.dumps(value) if arguments.verb == "result" else value
