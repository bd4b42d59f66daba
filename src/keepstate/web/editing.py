"""Adding, editing, deleting and clearing entries, in a dialog: over what was seen, and not over what somebody wrote since."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from keepstate.backends.requests import Clear, Delete, Put
from keepstate.clock import optional_datetime
from keepstate.server.rest.changing import change, change_what_stands
from keepstate.server.rest.conditions import Condition
from keepstate.server.roles import Right
from keepstate.values import as_text, check_key, size_of
from keepstate.web.addresses import ASSET, MAPPED, TASK
from keepstate.web.asked import LARGEST_FORM, page
from keepstate.web.forms import DEFAULT, KEEP, Problems, Typed, typed, understood
from keepstate.web.place import Place, place_of, standing
from keepstate.web.rendering import render
from keepstate.web.shown import EntryShown, Token, difference_of, entry_shown, pretty, tokens

if TYPE_CHECKING:
    from datetime import datetime

    from keepstate.backends.answers import StoredEntry
    from keepstate.settings import Settings
    from keepstate.web.asked import Asked
    from keepstate.web.difference import Difference

_CONFLICT = 409
_INVALID = 422
_NOT_AS_SEEN = 412
# a byte of a value in three, or a small number on a line of its own; the rest is for the other fields
_FORM_GROWTH = 8
_AROUND = 65_536


@dataclass(frozen=True)
class Conflict:
    """What stands there now instead of what the dialog was opened with; ``entry`` is ``None`` where it is gone.

    ``adding``: it was to be a new entry.
    """

    adding: bool
    entry: EntryShown | None
    text: str
    difference: Difference | None


@dataclass(frozen=True)
class EntryForm:
    """The dialog of an entry: what is typed in it, what is the matter with that, and who came between."""

    place: Place
    typed: Typed
    problems: Problems
    default_days: int
    expires_at: datetime | None
    conflict: Conflict | None = None

    @property
    def is_new(self) -> bool:
        """Whether the dialog adds an entry."""
        return self.typed.version == 0

    @property
    def key_stands(self) -> bool:
        """Whether the key can't be typed anew: that of an entry, or one with a line break, which a text field would drop."""
        return not self.is_new or any(sign in self.typed.key for sign in "\r\n")


@dataclass(frozen=True)
class Checks:
    """What is the matter with what is typed so far."""

    problems: Problems
    size: int | None
    limit: int


@dataclass(frozen=True)
class Whole:
    """A value as a whole."""

    key: str
    tokens: tuple[Token, ...]
    size: int


@dataclass(frozen=True)
class Removal:
    """The question before an entry is deleted. ``changed``: it is another one than was seen."""

    place: Place
    entry: EntryShown
    days: int
    changed: bool = False


@dataclass(frozen=True)
class Clearing:
    """The question before all entries are removed."""

    place: Place
    count: int
    days: int
    running: bool


# ------------------------------------------------------------------------------------------------ one entry


def show_form(asked: Asked) -> Response:
    """Show the dialog: empty, or with the entry that the query names."""
    place, key = place_of(asked), asked.query("key")
    if not key:
        return _form(asked, place, Typed("", "", DEFAULT, "", 0), None)
    entry = standing(asked, place, key)
    if entry is None:
        raise _gone(key)
    return _form(asked, place, Typed(key, pretty(entry.text), KEEP, "", entry.version), entry)


def check(asked: Asked) -> Response:
    """Tell what is the matter with what is typed so far; nothing is stored."""
    place, form = place_of(asked), typed(asked.fields)
    settings = asked.store.settings
    entry = standing(asked, place, form.key) if form.version else None
    found = understood(form, entry, settings, asked.store.clock(), unfinished=True)
    checks = Checks(found.problems, found.size, settings.max_value_storage_bytes)
    return HTMLResponse(render("_checks.html", checks))


def _largest_checked(settings: Settings) -> int:
    """Return how many bytes of what is typed are looked at; whether more can be saved, saving it tells."""
    limit = settings.max_value_storage_bytes
    return min(limit * _FORM_GROWTH + _AROUND, LARGEST_FORM) if limit else LARGEST_FORM


def save(asked: Asked) -> Response:
    """Store what is typed, over the version that was seen."""
    place, form = place_of(asked), typed(asked.fields)
    entry = standing(asked, place, form.key)
    found = understood(form, entry, asked.store.settings, asked.store.clock())
    if found.problems:
        return _form(asked, place, form, entry, found.problems, status=_INVALID)
    keeps = form.expiry == KEEP

    def decide(there: StoredEntry | None) -> Put:
        expires_at = there.expires_at if keeps and there else found.expires_at
        return Put(form.key, found.text, expires_at if place.expires else None)

    condition = Condition(frozenset({form.version})) if form.version else Condition(absent=True)
    try:
        change_what_stands(asked.store, place.scope, asked.writer, form.key, decide, condition)
    except HTTPException as exc:
        if exc.status_code != _NOT_AS_SEEN:
            raise
        return _conflict(asked, place, form, found.text)
    return done(f"Saved {form.key}")


def _conflict(asked: Asked, place: Place, form: Typed, text: str) -> Response:
    """Show what stands there beside what was typed; saving once more writes over that."""
    entry = standing(asked, place, form.key)
    if entry is None:
        conflict = Conflict(form.version == 0, None, "", None)
    else:
        shown = entry_shown(entry, place.scope, asked)
        changes = difference_of(entry.text, text)
        conflict = Conflict(form.version == 0, shown, pretty(entry.text), changes)
    again = Typed(form.key, form.value, form.expiry, form.expires_at, entry.version if entry else 0)
    return _form(asked, place, again, entry, conflict=conflict, status=_CONFLICT)


def _form(
    asked: Asked,
    place: Place,
    form: Typed,
    entry: StoredEntry | None,
    problems: Problems | None = None,
    *,
    conflict: Conflict | None = None,
    status: int = 200,
) -> Response:
    context = EntryForm(
        place,
        form,
        problems or Problems(),
        asked.store.settings.default_retention_days,
        optional_datetime(entry.expires_at) if entry else None,
        conflict,
    )
    return HTMLResponse(render("_entry_form.html", context), status)


def show_value(asked: Asked) -> Response:
    """Show a value as a whole."""
    place, key = place_of(asked), asked.query("key")
    entry = standing(asked, place, key)
    if entry is None:
        raise _gone(key)
    text = pretty(entry.text)
    return HTMLResponse(render("_value.html", Whole(key, tokens(text), size_of(as_text(entry.text)))))


def ask_delete(asked: Asked) -> Response:
    """Ask whether an entry is to be deleted."""
    place, key = place_of(asked), asked.query("key")
    entry = standing(asked, place, key)
    if entry is None:
        raise _gone(key)
    return _removal(asked, place, entry)


def delete(asked: Asked) -> Response:
    """Delete an entry as it was seen; one that has changed since is asked about again."""
    place, form = place_of(asked), typed(asked.fields)
    condition = Condition(frozenset({form.version}))
    store = asked.store
    try:
        change(store, place.scope, asked.writer, Delete(check_key(form.key)), condition, now=store.clock())
    except HTTPException as exc:
        if exc.status_code != _NOT_AS_SEEN:
            raise
        entry = standing(asked, place, form.key)
        if entry is not None:
            return _removal(asked, place, entry, changed=True)
    return done(f"Deleted {form.key}")


def _removal(asked: Asked, place: Place, entry: StoredEntry, *, changed: bool = False) -> Response:
    shown = entry_shown(entry, place.scope, asked)
    context = Removal(place, shown, asked.store.settings.history_days, changed)
    return HTMLResponse(render("_delete.html", context), _CONFLICT if changed else 200)


# ------------------------------------------------------------------------------------------------------ all


def ask_clear(asked: Asked) -> Response:
    """Ask whether all entries are to be removed, and say what that costs."""
    place = place_of(asked)
    info = place.task_instance or place.asset
    context = Clearing(
        place,
        info.entries if info else 0,
        asked.store.settings.history_days,
        place.task_instance is not None and place.task_instance.state == "running",
    )
    return HTMLResponse(render("_clear.html", context))


def clear(asked: Asked) -> Response:
    """Remove all entries; with ``forget``, their history too."""
    place, store = place_of(asked), asked.store
    request = Clear(
        scope=place.scope,
        now=store.clock(),
        writer=asked.writer,
        history=store.history_policy,
        forget="forget" in asked.fields,
        known=True,
    )
    asked.backend.clear(request)
    return done("Cleared all entries")


# --------------------------------------------------------------------------------------------------- shared


def _gone(key: str) -> HTTPException:
    return HTTPException(404, f"The entry {key} no longer exists: it was deleted, or has expired.")


def done(message: str) -> Response:
    """Answer that a change is made: the page closes its dialog, says so, and shows what there is now."""
    return Response(None, 204, {"HX-Trigger": json.dumps({"keepstate:done": {"message": message}})})


routes = [
    route
    for base in (TASK, MAPPED, ASSET)
    for route in (
        page(f"{base}/entries/form", show_form, right=Right.WRITE),
        page(f"{base}/entries/check", check, method="POST", largest=_largest_checked),
        page(f"{base}/entries", save, right=Right.WRITE, method="POST"),
        page(f"{base}/entries/value", show_value),
        page(f"{base}/entries/delete", ask_delete, right=Right.WRITE),
        page(f"{base}/entries/delete", delete, right=Right.WRITE, method="POST"),
        page(f"{base}/entries/clear", ask_clear, right=Right.WRITE),
        page(f"{base}/entries/clear", clear, right=Right.WRITE, method="POST"),
    )
]
