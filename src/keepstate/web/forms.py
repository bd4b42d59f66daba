"""What somebody types into the dialog of an entry, and what is the matter with it: the rules are the store's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from keepstate.clock import to_micros
from keepstate.errors import InvalidInputError, InvalidTypeError
from keepstate.retention import LAST_INSTANT, expiry
from keepstate.server.strict_json import strictly
from keepstate.values import check_key, encode, size_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keepstate.backends.answers import StoredEntry
    from keepstate.settings import Settings

KEEP, DEFAULT, NEVER, CUSTOM = "keep", "default", "never", "custom"
_EXPIRIES = frozenset({KEEP, DEFAULT, NEVER, CUSTOM})
_MOST_DIGITS = 18


@dataclass(frozen=True)
class Typed:
    """The fields of the dialog. ``version`` is the one that the dialog was opened at, 0 for a new entry."""

    key: str
    value: str
    expiry: str
    expires_at: str
    version: int


@dataclass(frozen=True)
class Problems:
    """What is the matter with each field, in a sentence; ``None`` where nothing is."""

    key: str | None = None
    value: str | None = None
    expiry: str | None = None

    def __bool__(self) -> bool:
        return any((self.key, self.value, self.expiry))


@dataclass(frozen=True)
class Understood:
    """What the fields come to. Where there are ``problems``, the rest is not to be used."""

    problems: Problems
    text: str = ""
    expires_at: int | None = None
    size: int | None = None


def typed(fields: Mapping[str, str]) -> Typed:
    """Return the fields that were sent."""
    how, version = fields.get("expiry", DEFAULT), fields.get("version", "")
    return Typed(
        fields.get("key", ""),
        # as the browser shows it: forms send other line ends
        fields.get("value", "").replace("\r\n", "\n"),
        how if how in _EXPIRIES else DEFAULT,
        fields.get("expires_at", ""),
        int(version) if version.isascii() and version.isdigit() and len(version) <= _MOST_DIGITS else 0,
    )


def understood(
    form: Typed, standing: StoredEntry | None, settings: Settings, now: int, *, unfinished: bool = False
) -> Understood:
    """Return what the fields come to, given the entry that stands there.

    ``unfinished``: somebody is typing still, so what is empty is no problem yet.
    """
    key_problem = None if unfinished and not form.key else _key_problem(form.key)
    text, value_problem = ("", None) if unfinished and not form.value.strip() else _value(form.value)
    if not value_problem and not _is_untouched(form, text, standing):
        value_problem = _size_problem(text, settings.max_value_storage_bytes)
    moment, expiry_problem = _expiry(form, standing, settings, now, unfinished=unfinished)
    return Understood(
        Problems(key_problem, value_problem, expiry_problem), text, moment, size_of(text) if text else None
    )


def _is_untouched(form: Typed, text: str, standing: StoredEntry | None) -> bool:
    """Whether the value is the one that the dialog was opened with: a task may have written more than people may."""
    return standing is not None and standing.version == form.version and standing.text == text


def _key_problem(key: str) -> str | None:
    try:
        check_key(key)
    except InvalidInputError as exc:
        return sentence(str(exc))
    return None


def _value(text: str) -> tuple[str, str | None]:
    """Return the JSON text that the store would keep, and what is the matter."""
    if not text.strip():
        return "", 'Enter a value: any JSON except null. Text needs double quotes, like "done".'
    try:
        value = strictly(text)
        return encode(value), None
    except json.JSONDecodeError as exc:
        hint = "" if text.lstrip()[:1] in '{["' else ' Text needs double quotes, like "done".'
        what = exc.msg[:1].lower() + exc.msg[1:].removesuffix(" at")
        return "", f"This is not valid JSON. Line {exc.lineno}, column {exc.colno}: {what}.{hint}"
    except RecursionError:
        return "", "The value is nested too deeply."
    except (InvalidInputError, InvalidTypeError, ValueError) as exc:
        return "", sentence(str(exc))


def _size_problem(text: str, limit: int) -> str | None:
    size = size_of(text)
    if not limit or size <= limit:
        return None
    return (
        f"The value takes {size:,} bytes, and at most {limit:,} are allowed (max_value_storage_bytes). "
        "Keep the data elsewhere, and store its location here."
    )


def _expiry(
    form: Typed, standing: StoredEntry | None, settings: Settings, now: int, *, unfinished: bool
) -> tuple[int | None, str | None]:
    if form.expiry == KEEP and standing is not None:
        return standing.expires_at, None
    if form.expiry == NEVER:
        return None, None
    if form.expiry != CUSTOM:
        return expiry(None, now=now, default_days=settings.default_retention_days), None
    if not form.expires_at:
        return None, None if unfinished else "Choose when the entry expires."
    return _moment(form.expires_at, now)


def _moment(text: str, now: int) -> tuple[int | None, str | None]:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None, "This is not a date and time."
    if moment.tzinfo is None:
        return None, "The time needs its offset from UTC."
    micros = to_micros(moment)
    if micros <= now:
        return None, "This time is in the past. Choose a later one."
    return (micros, None) if micros <= LAST_INSTANT else (None, "The last possible year is 9999.")


def sentence(text: str) -> str:
    """Return what an error says as people read it: with a capital letter and a full stop."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "…")) else f"{text}."
