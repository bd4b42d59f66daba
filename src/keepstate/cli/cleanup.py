"""`keepstate cleanup`."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Annotated

from keepstate.cli import options, output, progress
from keepstate.cli.declared import Option
from keepstate.cli.stores import opened
from keepstate.cli.wording import counted
from keepstate.settings import Settings

if TYPE_CHECKING:
    from keepstate.scope import CleanupReport
    from keepstate.store import StateStore

_KINDS = {
    "entries": ("entry", "entries"),
    "history": ("version in the history", "versions in the history"),
    "scopes": ("empty scope", "empty scopes"),
    "attempts": ("attempt", "attempts"),
    "sessions": ("client session", "client sessions"),
}


def cleanup_(
    dry_run: Annotated[bool, Option("--dry-run", help="Only count what would be removed.")] = False,
    as_json: options.AsJson = False,
    url: options.Url = None,
) -> None:
    """Remove what has expired, from every table, in batches.

    You rarely need this: the embedded store, a server and Airflow clean up by themselves. Use it to see how much has
    expired, or to free space now. Expired entries are never shown, cleaned up or not. You can stop it with Ctrl-C and
    run it again.

    Examples:
      keepstate cleanup --dry-run
      keepstate cleanup --json
    """
    gc.enable()
    settings = Settings.load()
    with opened(url, settings, there=True) as store:
        report = store.cleanup(dry_run=True) if dry_run else _clean(store, quietly=as_json)
    if as_json:
        from keepstate.cli import shapes

        output.put_json(shapes.cleanup(report))
    else:
        output.put(_sentence(report))


def _clean(store: StateStore, *, quietly: bool) -> CleanupReport:
    """Clean up, for a person under a progress bar, whose end is what a dry run counts."""
    with contextlib.nullcontext() if quietly else progress.shown("Cleaning up") as told:
        if told is None:
            return store.cleanup()
        # which takes a while where there are millions
        due = store.cleanup(dry_run=True).total
        return store.cleanup(on_progress=lambda sofar: told(sofar.total, due))


def _sentence(report: CleanupReport) -> str:
    parts = [counted(count, *_KINDS[kind]) for kind, count in report.counts.items() if count]
    verb = "would remove" if report.dry_run else "removed"
    return f"{verb} {', '.join(parts)}" if parts else "nothing has expired"
