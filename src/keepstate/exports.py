"""An export: a store's scopes as JSON Lines, one scope a line between a header and a last line that tells the end.

The header names the format, whose number rises when an older reader would misunderstand what is written. A line is the image
of a scope as `keepstate.backends.images` has it, without what is at its default. Values are JSON text, so that they come back
exactly as they were.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from keepstate.backends.answers import StoredVersion
from keepstate.backends.images import Head, Image, KeptAttempt, KeptEntry
from keepstate.errors import InvalidInputError, KeepstateError, StoreCorruptedError
from keepstate.scope import AssetScope, RunScope, Writer, check_attempt
from keepstate.values import check_key
from keepstate.wire import codec
from keepstate.wire.annotations import codec_of
from keepstate.wire.bounds import ENDS, KINDS, LAST_INSTANT
from keepstate.wire.rules import stored_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FORMAT = 1
"""The format that this version writes, and the only one that it reads."""

_KIND = "keepstate-export"
_STATES = frozenset({*ENDS, "running", "deleted"})
_ACTIONS = frozenset({"set", "delete", "clear", "reset"})
_LARGEST = 2**63 - 1
# with room to go on from there
_MOST_CHANGES = 2**62
_MOST_INCARNATIONS = 2**30
_STORE = re.compile("[0-9a-f]{0,40}")

# what a check raises for something that is not as keepstate would have written it
_FAULTS = (KeepstateError, TypeError, AttributeError, ValueError)
_CURE = "; write the key anew, delete it, bring it back with `keepstate restore`, or leave it out with --skip-damaged"
_CURE_OF_PAST = (
    "; it is in the history, which `keepstate clear --forget` erases, or leave it out with --skip-damaged"
)

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)


def lines_of(
    batches: Iterable[list[Image]],
    *,
    version: str,
    now: int,
    left_out: Callable[[str], object] | None = None,
) -> Iterator[str]:
    """Yield the lines of an export, without their ends.

    What is damaged, and no import would take, ends it with ``StoreCorruptedError``: an export is whole, or tells that it is
    not. Where ``left_out`` is given, it is told each such thing with its place, and all else goes out.
    """
    yield _encoder.encode({"kind": _KIND, "format": FORMAT, "keepstate": version, "exported_at": now})
    count = faults = 0

    def fault(where: str, wrong: Exception, cure: str) -> None:
        nonlocal faults
        if left_out is None:
            raise StoreCorruptedError(f"{where} is damaged, and stopped the export: {wrong}{cure}") from wrong
        faults += 1
        left_out(where)

    for batch in batches:
        for image in batch:
            line = _line(image, fault)
            if line is not None:
                count += 1
                yield line
    end = {"end": True, "scopes": count}
    yield _encoder.encode({**end, "left_out": faults} if faults else end)


def _line(image: Image, fault: Callable[[str, Exception, str], None]) -> str | None:
    """Return the line of a scope, without the parts that ``fault`` was told of; ``None`` where there is nothing left."""
    scope = image.head.scope
    entries, log = [], []
    for entry in image.entries:
        if (wrong := _fault_of(_checked_entry, entry)) is None:
            entries.append(entry)
        else:
            fault(f"the key {entry.key!r:.200} of {scope}", wrong, _CURE)
    kept = {entry.key for entry in entries}
    for past in image.log:
        if past.key not in kept:
            # the history of a key goes where the key goes
            continue
        if (wrong := _fault_of(_checked_version, past)) is None:
            log.append(past)
        else:
            fault(f"version {past.version} of the key {past.key!r:.200} of {scope}", wrong, _CURE_OF_PAST)
    sound = replace(image, entries=tuple(entries), log=tuple(log))
    try:
        _checked_head(sound.head)
        for attempt in sound.attempts:
            _checked_attempt(attempt)
        _checked_image(sound)
        return _encoder.encode(codec_of(Image).encode(sound))
    except _FAULTS as exc:
        fault(f"{scope}", exc, "")
        return None


def _fault_of(check: Callable[[Any], object], one: KeptEntry | StoredVersion) -> Exception | None:
    try:
        check(one)
    except _FAULTS as exc:
        return exc
    return None


def images_in(lines: Iterable[bytes]) -> Iterator[Image]:
    """Yield the images of an export, each checked. Raises ``InvalidInputError`` with the number of the first bad line.

    An export without its last line was cut short: that is told when all before it has been yielded.
    """
    number = 0
    ended = False
    for number, line in enumerate(lines, start=1):
        data = _parsed(line, number)
        if number == 1:
            _check_header(data)
        elif ended:
            raise _bad(number, "stands behind the last line of the export")
        elif type(data) is dict and "end" in data:
            if data["end"] is not True or type(data.get("scopes")) is not int:
                raise _bad(number, "is neither a scope nor the last line of an export")
            if data["scopes"] != number - 2:
                raise _bad(
                    number,
                    f"says that there are {data.get('scopes')!r:.40} scopes, and {number - 2:,} came before it",
                )
            ended = True
        else:
            yield _image_of(data, number)
    if number == 0:
        raise InvalidInputError("there is nothing to import: an export begins with a header")
    if not ended:
        raise _bad(number + 1, "is missing: the export was cut short")


def _bad(number: int, problem: str) -> InvalidInputError:
    return InvalidInputError(
        f"line {number:,} {problem}; nothing of it, or of what comes behind it, was taken in. Scopes of earlier lines may have been, "
        "and importing them again does no harm"
    )


def _parsed(line: bytes, number: int) -> Any:
    try:
        data = json.loads(line.decode())
        if b"\\ud" in line.lower():
            # half a character, which no database takes
            json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _bad(number, "has a lone surrogate, which is no character") from None
    except UnicodeDecodeError:
        raise _bad(number, "is no UTF-8") from None
    except (ValueError, RecursionError):
        cut = "" if line.endswith(b"\n") else ": it is cut short"
        raise _bad(number, f"is no JSON{cut}") from None
    return data


def _check_header(data: Any) -> None:
    if type(data) is not dict or data.get("kind") != _KIND:
        raise InvalidInputError("this is no export of keepstate's: its first line does not say so")
    if type(data.get("format")) is not int or data["format"] != FORMAT:
        raise InvalidInputError(
            f"the export has the format {data.get('format')!r:.40}, and this keepstate reads format {FORMAT}; import it with the "
            f"version that wrote it, {data.get('keepstate')!r:.40}"
        )


def _image_of(data: Any, number: int) -> Image:
    try:
        image: Image = codec.reading(_IMAGE, data, codec.Reader(strict=True, rules=_RULES), "it")
    except KeepstateError as exc:
        raise _bad(number, f"can't be taken in: {exc}") from exc
    return image


# ----------------------------------------------------------------------------- what a line may hold, beyond the types


def _refuse(problem: str) -> None:
    raise InvalidInputError(problem)


def _check_number(name: str, value: int | None, most: int = _LARGEST, least: int = 0) -> None:
    if value is not None and not least <= value <= most:
        _refuse(f"{name} must be a whole number from {least} to {most}, not {value}")


def _check_moments(one: Any, *names: str) -> None:
    for name in names:
        _check_number(name, getattr(one, name), LAST_INSTANT)


def _with_compact_text(one: Any) -> Any:
    """Return an entry or a version with its value in the form in which it is stored."""
    if type(one.text) is bytes:
        _refuse(f"{one.text!r:.60} is no text")
    if one.text is None or (text := stored_text(one.text)) == one.text:
        return one
    return replace(one, text=text)


def _check_writer(text: str | None) -> None:
    if text is None:
        return
    try:
        # what a newer keepstate adds is ignored, here as where it is read
        reader = codec.Reader(strict=False)
        writer = codec.reading(_WRITER, json.loads(text), reader, "writer")
        text.encode()
        writer.to_text().encode()
    except (ValueError, TypeError, AttributeError, RecursionError, KeepstateError):
        writer = None
    if writer is None or writer.kind not in KINDS:
        _refuse(f"{text!r:.60} is no writer")


def _checked_head(head: Head) -> Head:
    _check_number("version", head.version, _MOST_CHANGES)
    _check_number("incarnation", head.incarnation, _MOST_INCARNATIONS, 1)
    _check_moments(head, "created_at", "updated_at")
    check_attempt(1 if head.try_number is None else head.try_number, head.attempt_id, head.item)
    if head.state is not None and head.state not in _STATES:
        _refuse(f"there is no state {head.state!r:.40}")
    if isinstance(head.scope, AssetScope) and (head.deleted or None in (head.scope.name, head.scope.uri)):
        _refuse("an asset has a name and a uri, and is not marked as deleted")
    return head


def _checked_entry(entry: KeptEntry) -> KeptEntry:
    check_key(entry.key)
    _check_number("version", entry.version, _MOST_CHANGES, 1)
    _check_moments(entry, "updated_at", "expires_at")
    _check_writer(entry.writer)
    compact: KeptEntry = _with_compact_text(entry)
    return compact


def _checked_version(one: StoredVersion) -> StoredVersion:
    check_key(one.key)
    _check_number("version", one.version, _MOST_CHANGES, 1)
    _check_number("size", one.size)
    _check_moments(one, "written_at", "expires_at")
    if one.action not in _ACTIONS:
        _refuse(f"there is no action {one.action!r:.40}")
    _check_writer(one.writer)
    compact: StoredVersion = _with_compact_text(one)
    return compact


def _checked_attempt(one: KeptAttempt) -> KeptAttempt:
    _check_number("incarnation", one.incarnation, _MOST_INCARNATIONS, 1)
    _check_number("pid", one.pid)
    check_attempt(one.try_number, one.attempt_id or None, one.item)
    _check_moments(one, "started_at", "beat_at", "ended_at")
    if one.state not in _STATES:
        _refuse(f"there is no state {one.state!r:.40}")
    if one.result not in {None, "null"}:
        stored_text(one.result or "")
    return one


def _checked_image(image: Image) -> Image:
    head = image.head
    if not _STORE.fullmatch(image.store) or not _STORE.fullmatch(image.origin or ""):
        _refuse("store and origin are hexadecimal digits")
    if isinstance(head.scope, AssetScope):
        _check_bare_asset(image)
    if isinstance(head.scope, RunScope) and (image.entries or image.log):
        _refuse("a run as a whole holds no entries")
    keys = [entry.key for entry in image.entries]
    for what, those in (
        ("key", keys),
        ("version of a key", [(one.key, one.version) for one in image.log]),
        ("attempt", [(one.incarnation, one.try_number, one.attempt_id) for one in image.attempts]),
    ):
        if len(set(those)) != len(those):
            _refuse(f"it has the same {what} twice")
    if not {one.key for one in image.log} <= set(keys):
        _refuse("it has the history of a key that it does not have")
    versions = (*(one.version for one in image.entries), *(one.version for one in image.log))
    if max(versions, default=0) > head.version:
        _refuse(f"it has an entry of a later version than its own, {head.version}")
    return image


def _check_bare_asset(image: Image) -> None:
    head = image.head
    if image.attempts or (head.try_number, head.attempt_id, head.item, head.state) != (None,) * 4:
        _refuse("an asset has no attempts")
    if any(entry.text is not None and entry.expires_at is not None for entry in image.entries):
        _refuse("an entry of an asset does not expire")


_IMAGE = codec_of(Image)
_WRITER = codec_of(Writer)
_RULES: dict[Any, Callable[[Any], Any]] = {
    Head: _checked_head,
    KeptEntry: _checked_entry,
    StoredVersion: _checked_version,
    KeptAttempt: _checked_attempt,
    Image: _checked_image,
}
