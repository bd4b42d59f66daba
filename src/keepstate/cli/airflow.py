"""`keepstate airflow`: entries on their way between keepstate and Airflow 3.3's own tables."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Annotated

from keepstate.cli import options, output, progress
from keepstate.cli.declared import Group, Option
from keepstate.cli.stores import opened
from keepstate.cli.wording import Names, counted
from keepstate.integrations.airflow import moving
from keepstate.settings import Settings

if TYPE_CHECKING:
    from keepstate.store import StateStore

Keep = Annotated[bool, Option("--keep", help="Copy the entries instead of moving them.")]


def airflow() -> None:
    """Move entries between keepstate and Airflow 3.3's own tables.

    Run these commands in the environment of Airflow 3.3, while no task runs. keepstate's side is the store of --url
    or KEEPSTATE_URL; without these, keepstate's tables in Airflow's metadata database.

    Examples:
      keepstate airflow export
      keepstate airflow import
    """


def export(keep: Keep = False, as_json: options.AsJson = False, url: options.Url = None) -> None:
    """Move entries into Airflow's own tables, to use Airflow 3.3's own state store instead of keepstate.

    Expired entries are not moved. Existing entries in Airflow are not overwritten. Entries of runs and assets that
    Airflow doesn't know stay in keepstate, and so do damaged values. You can stop it and run it again.

    Examples:
      keepstate airflow export --keep
      keepstate airflow export --json
    """
    moving.demand_3_3()
    gc.enable()
    with _store(url) as store:
        _move(moving.export_to_airflow, store, keep=keep, as_json=as_json)


def take(keep: Keep = False, as_json: options.AsJson = False, url: options.Url = None) -> None:
    """Move entries from Airflow 3.3's own tables into keepstate, before keepstate becomes Airflow's state store.

    Existing entries in keepstate are not overwritten. Expired entries are left to Airflow, and so is what keepstate
    can't store, such as NaN. You can stop it and run it again.

    Examples:
      keepstate airflow import --keep
      keepstate airflow import --json
    """
    moving.demand_3_3()
    gc.enable()
    with _store(url) as store:
        _move(moving.import_from_airflow, store, keep=keep, as_json=as_json)


def _store(url: str | None) -> StateStore:
    settings = Settings.load()
    if url is not None or settings.url:
        return opened(url, settings)
    from keepstate.integrations.airflow import metadata

    return metadata.store()


def _move(work: moving.Work, store: StateStore, *, keep: bool, as_json: bool) -> None:
    refused = Names()
    with progress.shown("Moving") as told:
        moved = work(store, keep=keep, refused=refused.add, on_progress=told)
    if as_json:
        output.put_json(
            {
                "moved": moved.entries,
                "present": moved.present,
                "homeless": moved.homeless,
                "refused": moved.refused,
            }
        )
    else:
        parts = [f"moved {counted(moved.entries, 'entry', 'entries')}"]
        if moved.present:
            parts.append(f"{moved.present:,} were there already")
        if moved.homeless:
            parts.append(f"{moved.homeless:,} belong to runs or assets that Airflow doesn't know, and stay")
        if moved.refused:
            parts.append(f"{moved.refused:,} can't be moved, and stay")
        output.put("; ".join(parts))
    if moved.refused:
        output.say(f"these can't be moved: {refused}")


airflow_ = Group(airflow, {"import": take, "export": export}, callable_alone=False)
