"""`keepstate tail`."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Annotated

from keepstate.cli import options, output
from keepstate.cli.declared import Option
from keepstate.cli.scopes import choose
from keepstate.cli.stores import opened
from keepstate.clock import to_datetime
from keepstate.errors import BackendUnavailableError
from keepstate.scope import TaskScope, writer_of
from keepstate.settings import Settings
from keepstate.values import as_text, decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.backends.answers import ChangeNotice
    from keepstate.backends.requests import EntryScope
    from keepstate.scope import RunScope
    from keepstate.store import StateStore

# of a run with more task instances, so many are followed
_MOST_FOLLOWED = 1000
_FAR_AHEAD = 2**62
# characters of a value
_MOST_SHOWN = 100


def tail_(
    everything: Annotated[
        bool,
        Option("--all", "-a", help="Print the current entries first, then the changes."),
    ] = False,
    interval: Annotated[
        float, Option("--interval", metavar="SECONDS", minimum=0.05, help="Poll the store this often.")
    ] = 0.5,
    as_json: options.AsJson = False,
    named: options.Named = options.NOTHING,
    url: options.Url = None,
) -> None:
    """Follow changes as they happen, a line each, until Ctrl-C (exit code 130).

    Without --task-id it follows all task instances of the run. If a key changes several times between two polls, only
    its last value is shown. With --json each line is an object. A damaged value is shown as such. If the store can't
    be reached, it says so once and keeps trying.

    Examples:
      keepstate tail --dag-id etl --run-id 2026-11-29
      keepstate tail --dag-id etl --run-id 2026-11-29 --task-id load --all --json
      keepstate tail --asset orders
    """
    gc.enable()
    settings = Settings.load()
    with opened(url, settings) as store:
        run = named.run
        if run is not None:
            name = str(run)
            follower = Follower(store, lambda: _task_instances(store, run))
        else:
            target = choose(settings, named)
            name = str(target.scope)
            follower = Follower(store, lambda: {target.scope: None})
        if not everything:
            follower.skip()
        output.say(f"following {name}; Ctrl-C ends it")
        show = _show_json if as_json else _show_line
        _follow(follower, show, interval)


def _follow(follower: Follower, show: Callable[[ChangeNotice], None], interval: float) -> None:
    reached = True
    while True:
        try:
            for notice in follower.news():
                show(notice)
            output.flush()
            if not reached:
                output.say("the store can be reached again")
            reached = True
        except BackendUnavailableError as exc:
            if reached:
                output.say(f"{exc}; still trying")
            reached = False
        time.sleep(interval)


class Follower:
    """Remembers how far it has seen each scope, and tells what changed since.

    ``look`` returns the scopes to follow, each with its version where that is known without asking.
    """

    def __init__(self, store: StateStore, look: Callable[[], dict[EntryScope, int | None]]) -> None:
        self._store = store
        self._look = look
        self._seen: dict[EntryScope, int] = {}

    def skip(self) -> None:
        """Take what has happened so far as seen."""
        for scope, version in self._look().items():
            self._seen[scope] = self._changes(scope, _FAR_AHEAD)[0] if version is None else version

    def news(self) -> list[ChangeNotice]:
        """Return the keys that changed since the last look, oldest change first."""
        found: list[ChangeNotice] = []
        seen_now = dict(self._seen)
        for scope, version in self._look().items():
            seen = self._seen.get(scope, 0)
            if version == seen:
                continue
            seen_now[scope], notices = self._changes(scope, seen)
            if seen_now[scope] < seen:
                # it was deleted, and begins anew
                seen_now[scope], notices = self._changes(scope, 0)
            found += notices
        # only now, as what was read before some trouble has to be read again
        self._seen = seen_now
        return sorted(found, key=lambda notice: notice.updated_at)

    def _changes(self, scope: EntryScope, after: int) -> tuple[int, list[ChangeNotice]]:
        return self._store.backend.changes(scope, after=after, now=self._store.clock())


def _task_instances(store: StateStore, run: RunScope) -> dict[EntryScope, int | None]:
    found = store.task_instances(run.dag_id, run.run_id, limit=_MOST_FOLLOWED)
    return {instance.scope: instance.version for instance in found}


def _show_json(notice: ChangeNotice) -> None:
    from keepstate.cli import shapes

    output.put_json(shapes.change(notice))


def _show_line(notice: ChangeNotice) -> None:
    from keepstate.cli.tables import writer_cell

    moment = to_datetime(notice.updated_at).astimezone()
    scope = notice.scope
    place = scope.name_in_run if isinstance(scope, TaskScope) else str(scope)
    what = "deleted" if notice.text is None else f"= {_in_short(notice.text)}"
    by = writer_cell(writer_of(notice.writer))
    output.put(
        output.visible(f"{moment:%H:%M:%S}  {place}  {notice.key} {what}  (version {notice.version}, {by})")
    )


def _in_short(text: str) -> str:
    from keepstate.cli.tables import is_checkpoint, progress, shortened

    try:
        value = decode(text)
    except ValueError:
        return f"damaged: {shortened(as_text(text), _MOST_SHOWN)}"
    return progress(value) if is_checkpoint(value) else shortened(text, _MOST_SHOWN)
