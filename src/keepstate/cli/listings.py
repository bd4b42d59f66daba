"""`keepstate list`, `history` and `restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from keepstate.cli import options, output
from keepstate.cli.declared import Argument, Option
from keepstate.cli.exit_codes import ExitCode, Stop
from keepstate.cli.scopes import choose, known
from keepstate.cli.stores import nothing, opened
from keepstate.cli.wording import names_of
from keepstate.clock import to_datetime
from keepstate.errors import VersionNotFoundError
from keepstate.settings import Settings

if TYPE_CHECKING:
    from datetime import datetime

    from keepstate.cli.scopes import Target
    from keepstate.scope import Entry, HistoryEntry


def list_(
    as_json: options.AsJson = False,
    named: options.Named = options.NOTHING,
    url: options.Url = None,
) -> None:
    """List the entries of a task instance or asset, by key.

    A checkpoint is shown as a progress bar, and other values are shortened; --json prints them in full, as an array.
    A damaged value is shown as such, and the exit code is then 74.

    Examples:
      keepstate list --dag-id etl --run-id 2026-11-29 --task-id load
      keepstate list --asset orders --json | jq '.[].key'
    """
    from keepstate.cli import shapes

    settings = Settings.load()
    target = choose(settings, named)
    with opened(url, settings, there=True) as store:
        entries = target.accessor(store).entries(damaged=True)
        absent = not entries and not known(store, target.scope)
        now = to_datetime(store.clock())
    if as_json:
        output.put_json([shapes.entry(entry) for entry in entries])
    if absent:
        raise nothing(f"{target.kind}: {target.name}", url, settings)
    if not as_json:
        _show_entries(entries, target, now)
    bad = [repr(entry.key) for entry in entries if entry.damaged is not None]
    if bad:
        raise Stop(
            f"keepstate did not write what is under {names_of('the key', bad)}; write it anew, or delete it",
            ExitCode.IO,
        )


def history_(
    key: options.Key,
    as_json: options.AsJson = False,
    limit: Annotated[
        int | None,
        Option("--limit", metavar="N", minimum=1, help="Show at most N."),
    ] = None,
    named: options.Named = options.NOTHING,
    url: options.Url = None,
) -> None:
    """List the versions of KEY that are kept, newest first, with their writers.

    The last KEEPSTATE_HISTORY_LIMIT versions of a key are kept; those of a deleted key for KEEPSTATE_HISTORY_DAYS.

    Examples:
      keepstate history job_id --dag-id etl --run-id 2026-11-29 --task-id load
      keepstate history offsets --asset orders --json
    """
    from keepstate.cli import shapes

    settings = Settings.load()
    target = choose(settings, named)
    with opened(url, settings, there=True) as store:
        accessor = target.accessor(store)
        versions = accessor.history(key, limit, damaged=True)
        # where no history is kept, a key may be there all the same
        absent = not versions and accessor.entry(key) is None
        now = to_datetime(store.clock())
    if as_json:
        output.put_json([shapes.version(version) for version in versions])
    if absent:
        raise nothing(f"key {key!r} in {target.scope}, nor a history of one", url, settings)
    if not as_json:
        _show_versions(versions, key, target, now)
    bad = [str(version.version) for version in versions if version.damaged is not None]
    if bad:
        raise Stop(
            f"keepstate did not write {names_of('version', bad)}, so it can't be restored; `keepstate clear --forget` erases it",
            ExitCode.IO,
        )


def restore_(
    key: options.Key,
    version: Annotated[
        int,
        Argument(
            "VERSION",
            minimum=1,
            help="The version to restore, as `history` shows it.",
        ),
    ],
    named: options.Named = options.NOTHING,
    url: options.Url = None,
) -> None:
    """Restore the value that KEY had at VERSION, as a new version; the expiry stays the same.

    It also brings back a deleted key. If the version is not, or no longer, kept, the exit code is 1.

    Examples:
      keepstate history page --dag-id etl --run-id 2026-11-29 --task-id load
      keepstate restore page 12 --dag-id etl --run-id 2026-11-29 --task-id load
    """
    settings = Settings.load()
    target = choose(settings, named)
    with opened(url, settings, there=True) as store:
        try:
            target.accessor(store).restore(key, version)
        except VersionNotFoundError as exc:
            # the library names its own verb last
            reason = str(exc).rpartition("; ")[0]
            raise Stop(f"{reason}; `keepstate history {key}` lists what can") from None


def _show_entries(entries: list[Entry], target: Target, now: datetime) -> None:
    from keepstate.cli import tables, times

    if not entries:
        output.say(f"there are no entries in {target.scope}")
        return
    tables.draw(
        (
            tables.Column("KEY"),
            tables.Column("VALUE", cut=True),
            tables.Column("VERSION", rank=2),
            tables.Column("UPDATED", rank=1),
            tables.Column("EXPIRES", rank=4),
            tables.Column("BY", rank=3),
        ),
        [
            (
                entry.key,
                tables.entry_cell(entry),
                str(entry.version),
                times.ago(entry.updated_at, now),
                times.ahead(entry.expires_at, now),
                tables.writer_cell(entry.writer),
            )
            for entry in entries
        ],
    )


def _show_versions(versions: list[HistoryEntry], key: str, target: Target, now: datetime) -> None:
    from keepstate.cli import tables, times

    if not versions:
        output.say(f"there is no history of key {key!r} in {target.scope}")
        return
    tables.draw(
        (
            tables.Column("VERSION"),
            tables.Column("ACTION"),
            tables.Column("VALUE", cut=True),
            tables.Column("BYTES", rank=3),
            tables.Column("WRITTEN", rank=1),
            tables.Column("BY", rank=2),
        ),
        [
            (
                str(version.version),
                version.action,
                tables.version_cell(version),
                f"{version.size:,}",
                times.ago(version.written_at, now),
                tables.writer_cell(version.writer),
            )
            for version in versions
        ],
    )
