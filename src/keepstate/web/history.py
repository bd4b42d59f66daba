"""What a key held before: its versions, how each differs from the one before, and the way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from keepstate.clock import to_datetime
from keepstate.server.rest.conditions import ALWAYS, Condition
from keepstate.server.rest.history import restore as restored
from keepstate.server.roles import Right
from keepstate.values import check_key, is_damaged
from keepstate.web.addresses import ASSET, MAPPED, TASK
from keepstate.web.asked import page
from keepstate.web.editing import done
from keepstate.web.forms import typed
from keepstate.web.frame import Crumb
from keepstate.web.live import events
from keepstate.web.place import Place, place_of, standing, watch
from keepstate.web.shown import Token, WriterShown, difference_of, preview, tokens, writer_shown

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.responses import Response

    from keepstate.backends.answers import StoredVersion
    from keepstate.web.asked import Asked
    from keepstate.web.difference import Difference
    from keepstate.web.frame import Frame

_NOT_AS_SEEN = 412
# two larger values are not compared: who waits for that reads neither
_COMPARED = 100_000

_ACTIONS = {"set": "Set", "delete": "Deleted", "clear": "Cleared", "reset": "Reset"}


@dataclass(frozen=True)
class VersionShown:
    """A version of a key. ``difference`` is the one from the version before, where both are kept."""

    version: int
    action: str
    written_at: datetime
    writer: WriterShown | None
    size: int
    tokens: tuple[Token, ...]
    cut: bool
    damaged: bool
    kept: bool
    difference: Difference | None
    restorable: bool
    current: bool


@dataclass(frozen=True)
class History:
    """The versions of a key that are kept, newest first. ``standing`` is the one that stands, 0 where the key is gone."""

    frame: Frame
    place: Place
    key: str
    standing: int
    versions: tuple[VersionShown, ...]
    may_write: bool
    limit: int


def show(asked: Asked) -> Response:
    """Show the history of a key."""
    place, key = place_of(asked), asked.query("key")
    store = asked.store
    now, limit = store.clock(), store.history_policy.limit
    rows = asked.backend.history(place.scope, check_key(key), now=now, limit=limit)
    entry = standing(asked, place, key)
    version = entry.version if entry else 0
    section = "dags" if place.task_instance else "assets"
    context = History(
        asked.frame(f"History of {key}", section, *place.crumbs, Crumb(f"History of {key}")),
        place,
        key,
        version,
        tuple(
            _shown(asked, place, row, rows[index + 1] if index + 1 < len(rows) else None, version)
            for index, row in enumerate(rows)
        ),
        asked.may_write,
        limit,
    )
    return asked.answer(context, "history.html", "_history.html")


def _shown(
    asked: Asked, place: Place, row: StoredVersion, before: StoredVersion | None, current: int
) -> VersionShown:
    text, cut = preview(row.text) if row.text is not None else ("", False)
    damaged = row.text is not None and is_damaged(row.text)
    return VersionShown(
        row.version,
        _ACTIONS.get(row.action, row.action),
        to_datetime(row.written_at),
        writer_shown(row.writer, place.scope, asked),
        row.size,
        tokens(text),
        cut,
        damaged,
        row.text is not None,
        _difference(before, row),
        row.text is not None and not damaged and row.version != current,
        row.version == current,
    )


def _difference(before: StoredVersion | None, after: StoredVersion) -> Difference | None:
    if before is None or before.text is None or after.text is None:
        return None
    if len(before.text) + len(after.text) > _COMPARED:
        return None
    return difference_of(before.text, after.text)


def restore(asked: Asked) -> Response:
    """Write the value of a version again, over what was seen to stand there."""
    place, form = place_of(asked), typed(asked.fields)
    seen = asked.fields.get("standing", "")
    condition = _over(int(seen)) if seen.isascii() and seen.isdigit() and len(seen) < 19 else ALWAYS  # noqa: PLR2004 - as many digits as versions have
    try:
        restored(asked.store, place.scope, asked.writer, check_key(form.key), form.version, condition)
    except HTTPException as exc:
        if exc.status_code != _NOT_AS_SEEN:
            raise
        raise HTTPException(
            _NOT_AS_SEEN,
            f"The entry {form.key} has changed since you opened this page. Check its current value before you restore.",
        ) from None
    return done(f"Restored version {form.version} of {form.key}")


def _over(version: int) -> Condition:
    return Condition(frozenset({version})) if version else Condition(absent=True)


routes = [
    route
    for base in (TASK, MAPPED, ASSET)
    for route in (
        page(f"{base}/history", show, watch=watch),
        events(f"{base}/history", watch),
        page(f"{base}/history/restore", restore, right=Right.WRITE, method="POST"),
    )
]
