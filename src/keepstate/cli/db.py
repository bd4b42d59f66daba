"""`keepstate db`: the tables of a SQL store."""

from __future__ import annotations

from typing import Annotated

from keepstate.cli import options, output
from keepstate.cli.declared import Argument, Group
from keepstate.cli.exit_codes import ExitCode, Stop
from keepstate.cli.stores import looked_after
from keepstate.clock import system_clock
from keepstate.settings import Settings


def db() -> None:
    """Create, check, upgrade or downgrade the tables of the store.

    A store creates and upgrades its tables when it is opened; with these commands you decide when. In an environment
    with Airflow, and without a URL, they work on the store of Airflow's tasks.

    Examples:
      keepstate db check
      keepstate db upgrade
    """


def upgrade(url: options.Url = None) -> None:
    """Create the tables, or upgrade them to the revision that this keepstate needs.

    Several processes may run it at the same time. A store made by a newer keepstate is refused.

    Examples:
      keepstate db upgrade
      KEEPSTATE_URL=postgresql://etl@db/state keepstate db upgrade
    """
    tables = looked_after(url, Settings.load())
    try:
        steps = tables.upgrade(now=system_clock())
    finally:
        tables.close()
    for step in steps:
        output.put(f"applied {step}")
    if not steps:
        output.put(f"{tables.address} is at revision {tables.latest}, the latest")


def check(as_json: options.AsJson = False, url: options.Url = None) -> int:
    """Check that the tables are at the latest revision, complete, and (SQLite) undamaged; change nothing.

    The exit code is 0 if everything is in order, else 1. It tells you whether you have to run `keepstate db upgrade`.

    Examples:
      keepstate db check
      keepstate db check --json
    """
    tables = looked_after(url, Settings.load())
    try:
        current = tables.current()
        problems = tables.problems() if current == tables.latest else []
    finally:
        tables.close()
    if current is None:
        problems = ["there are no tables yet; run `keepstate db upgrade`, or just use the store"]
    elif current < tables.latest:
        problems = [f"it is at revision {current} of {tables.latest}; run `keepstate db upgrade`"]
    elif current > tables.latest:
        problems = [
            f"it is at revision {current}, and this keepstate knows up to {tables.latest}; upgrade keepstate"
        ]
    if as_json:
        facts = {"address": tables.address, "current": current, "latest": tables.latest, "problems": problems}
        output.put_json({"ok": not problems, **facts})
    elif problems:
        raise Stop(f"{tables.address}: {'; '.join(problems)}")
    else:
        output.put(f"{tables.address} is at revision {current}, the latest, and complete")
    return ExitCode.FAILED if problems else ExitCode.OK


def show_current(as_json: options.AsJson = False, url: options.Url = None) -> None:
    """Print the revision of the tables, or `none`.

    It creates no tables; `keepstate db check` checks more.

    Examples:
      keepstate db current
      keepstate db current --json
    """
    tables = looked_after(url, Settings.load())
    try:
        number = tables.current()
    finally:
        tables.close()
    if as_json:
        output.put_json({"address": tables.address, "current": number, "latest": tables.latest})
    else:
        output.put("none" if number is None else str(number))


def downgrade(
    revision: Annotated[
        int,
        Argument("REVISION", minimum=0, help="The revision to downgrade to; 0 removes all tables."),
    ],
    yes: options.Yes = False,
    url: options.Url = None,
) -> None:
    """Downgrade the tables to an older REVISION. Data that only newer revisions have is lost; 0 deletes everything.

    It asks for confirmation; without a terminal, it needs --yes.

    Examples:
      keepstate db downgrade 1
      keepstate db downgrade 0 --yes
    """
    tables = looked_after(url, Settings.load())
    try:
        number = tables.current()
        if number is None:
            raise Stop(f"{tables.address} has no tables yet")
        if not yes:
            output.ask(
                f"Take {tables.address} from revision {number} back to {revision}, losing what it held?",
                may_go_unasked=False,
            )
        steps = tables.downgrade(revision)
    finally:
        tables.close()
    for step in steps:
        output.put(f"took back {step}")
    if not steps:
        output.put(f"{tables.address} is at revision {number} already")


db_ = Group(
    db,
    {"upgrade": upgrade, "check": check, "current": show_current, "downgrade": downgrade},
    callable_alone=False,
)
