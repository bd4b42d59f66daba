"""Between a value and its JSON text: what may be stored, how large it may be, and what comes back.

What is read equals what was written, in value and in type. So only the exact types that JSON gives back are
taken; a subclass, a tuple or a datetime would come back as something else, and is refused with the path to it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from keepstate.errors import InvalidKeyError, InvalidTypeError, InvalidValueError, ValueTooLargeError

JsonInput = str | int | float | bool | Sequence[Any] | Mapping[str, Any]
"""What may be written. Checked in full when it is: tuples and other look-alikes are refused."""

HARD_VALUE_LIMIT = 16 * 1024 * 1024
"""No value's JSON text may be larger than this many bytes, whatever the settings say."""

MAX_DEPTH = 200
"""How many containers may be nested. Far below Python's recursion limit, so that a value written from a shallow
call can be read from a deep one."""

MAX_KEY_LENGTH = 512

# CPython refuses to turn longer integers into text and back (sys.set_int_max_str_digits); all versions agree on it.
_MAX_INT_DIGITS = 4300
_TOO_LARGE_INT = 10**_MAX_INT_DIGITS
_SAFE_INT_BITS = 14_000

_NAMES = frozenset({str})
_SCALARS = frozenset({str, int, float, bool, type(None)})
_FEW = 100

_SURROGATE = re.compile("[\ud800-\udfff]")
_DOT_SEGMENT = re.compile(r"(?:^|/)\.\.?(?:/|$)")

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text:.40} is more than a float holds")
    return number


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)

_INSTEAD = {
    "datetime": "store value.isoformat() and read it back with datetime.fromisoformat()",
    "date": "store value.isoformat() and read it back with date.fromisoformat()",
    "time": "store value.isoformat() and read it back with time.fromisoformat()",
    "timedelta": "store value.total_seconds()",
    "tuple": "store list(value): JSON has no tuples, it would come back as a list",
    "set": "store sorted(value): JSON has no sets",
    "frozenset": "store sorted(value): JSON has no sets",
    "bytes": "store base64.b64encode(value).decode()",
    "bytearray": "store base64.b64encode(value).decode()",
    "Decimal": "store str(value) and read it back with Decimal()",
    "UUID": "store str(value) and read it back with UUID()",
    "Path": "store str(value)",
    "PosixPath": "store str(value)",
    "ndarray": "store value.tolist()",
}


def encode(value: object) -> str:
    """Return the compact JSON text of ``value``.

    Raises ``InvalidValueError`` (a ``ValueError``) for ``None`` at the top, NaN, infinities, lone surrogates, integers
    over 4,300 digits and nesting beyond 200 levels; ``InvalidTypeError`` (a ``TypeError``) for any other type than
    exactly ``str``, ``int``, ``float``, ``bool``, ``list``, ``dict``; ``ValueTooLargeError`` above 16 MiB. Each
    names the path inside the value.
    """
    if value is None:
        raise InvalidValueError(
            "value is None, which can't be told from an absent key; use delete() to remove a key",
            path="value",
        )
    text = _encode_flat(value)
    # ASCII has no surrogates, and a short text no integer of too many digits
    if text is None or not text.isascii() or len(text) >= _MAX_INT_DIGITS:
        _check(value)
        text = _encoder.encode(value) if text is None else text
    # UTF-8 takes at most four bytes a character: most texts need no counting
    if len(text) * 4 > HARD_VALUE_LIMIT and (size := size_of(text)) > HARD_VALUE_LIMIT:
        raise ValueTooLargeError(
            f"the value takes {size:,} bytes as JSON, and {HARD_VALUE_LIMIT:,} is the most keepstate stores; "
            "keep the data in a file or object store and store its location here",
            path="value",
            size=size,
            limit=HARD_VALUE_LIMIT,
        )
    return text


def decode(text: str) -> Any:
    """Return the value whose JSON text is ``text``. Raises ``ValueError`` for what `encode` would not have written."""
    try:
        # what keepstate wrote has no white space around it, and looking for that takes a third of the time
        value, end = _decoder.raw_decode(text)
    except (ValueError, TypeError, RecursionError):
        return _decode_carefully(text)
    # nor has it other escapes of this kind than those of control characters
    if end != len(text) or value is None or "\\u" in text:
        return _decode_carefully(text)
    return value


def _decode_carefully(text: str) -> Any:
    if type(text) is not str:
        raise ValueError(f"it is of type {type(text).__name__}, and no text")
    try:
        value = _decoder.decode(text)
        surrogate = "\\u" in text and _SURROGATE.search(_encoder.encode(value))
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if value is None:
        raise ValueError("null is no value")
    if surrogate:
        raise ValueError("it has a lone surrogate")
    return value


def is_damaged(stored: Any) -> bool:
    """Whether what a table has in a value's place is none that keepstate wrote: `decode` refuses it."""
    try:
        decode(stored)
    except ValueError:
        return True
    return False


def as_text(stored: object) -> str:
    """Return what a table has in a value's place as text, which it need not be where somebody else has written it."""
    return stored if isinstance(stored, str) else repr(stored)


def size_of(text: str) -> int:
    """Return the size of a JSON text in UTF-8 bytes: what every limit counts."""
    return len(text) if text.isascii() else len(text.encode())


def check_key(key: object) -> str:
    """Return ``key`` if it may name an entry; raise ``InvalidKeyError`` or ``InvalidTypeError`` if not."""
    if type(key) is not str:
        raise InvalidTypeError(f"a key must be a str, not {type(key).__name__}: {key!r:.80}", path="key")
    if not key:
        raise InvalidKeyError("a key must not be empty", key=key)
    if len(key) > MAX_KEY_LENGTH:
        raise InvalidKeyError(
            f"a key has at most {MAX_KEY_LENGTH} characters, this one has {len(key)}: {key[:40]!r}…", key=key
        )
    if "\0" in key:
        raise InvalidKeyError(f"a key must not contain a NUL character: {key!r}", key=key)
    if not key.isascii() and _SURROGATE.search(key):
        raise InvalidKeyError(f"a key must be valid Unicode, and {key!r} has a lone surrogate", key=key)
    if "." in key and _DOT_SEGMENT.search(key):
        raise InvalidKeyError(
            f"a key must not have '.' or '..' between slashes, as HTTP clients drop them: {key!r}", key=key
        )
    return key


def _encode_flat(value: Any) -> str | None:
    """Return the text of what most values are, a few members and none within another; ``None`` for what must be walked.

    Of these, the text tells sooner than a walk whether it is fine.
    """
    kind = type(value)
    if kind is dict:
        members = value.values()
        if not _NAMES.issuperset(map(type, value)):
            return None
    else:
        members = value if kind is list else (value,)
    if len(members) > _FEW or not _SCALARS.issuperset(map(type, members)):
        return None
    try:
        return _encoder.encode(value)
    except ValueError:
        # no finite number, or too many digits: the walk says where
        return None


def _check(value: object) -> None:
    """Walk ``value`` without recursion, so that depth is refused by our bound and not by the interpreter's stack."""
    if type(value) is not list and type(value) is not dict:
        _check_scalar(value, ())
        return
    stack: list[tuple[Any, tuple[object, ...]]] = [(value, ())]
    count = 0
    while stack:
        container, path = stack.pop()
        count += len(container)
        _check_bounds(count, path)
        if type(container) is dict:
            _check_names(container, path)
        for place, member in container.items() if type(container) is dict else enumerate(container):
            if type(member) is list or type(member) is dict:
                stack.append((member, (*path, place)))
            elif member is not None:
                _check_scalar(member, path, place)


def _check_bounds(count: int, path: tuple[object, ...]) -> None:
    # lists that share members can be small in memory and endless as text: every member takes two bytes or more
    if count * 2 > HARD_VALUE_LIMIT:
        raise ValueTooLargeError(
            f"the value has more than {count:,} members, and its JSON more than the {HARD_VALUE_LIMIT:,} bytes that "
            "keepstate stores; keep the data in a file or object store and store its location here",
            path="value",
            size=count * 2,
            limit=HARD_VALUE_LIMIT,
        )
    if len(path) >= MAX_DEPTH:
        raise InvalidValueError(
            f"{_show(path[:6])}… is nested deeper than {MAX_DEPTH} levels, or contains itself",
            path=_show(path),
        )


def _check_names(container: dict[Any, Any], path: tuple[object, ...]) -> None:
    for name in container:
        if type(name) is not str:
            raise InvalidTypeError(
                f"{_show(path)} has the key {name!r:.80} of type {type(name).__name__}, and JSON objects have only str "
                f"keys; store it under str({name!r:.80})",
                path=_show(path),
            )
        if not name.isascii() and _SURROGATE.search(name):
            raise _surrogate(name, path)


def _check_scalar(value: Any, path: tuple[object, ...], *place: object) -> None:
    kind = type(value)
    if kind is str:
        if not value.isascii() and _SURROGATE.search(value):
            raise _surrogate(value, (*path, *place))
    elif kind is int:
        if value.bit_length() > _SAFE_INT_BITS and abs(value) >= _TOO_LARGE_INT:
            where = _show((*path, *place))
            raise InvalidValueError(
                f"{where} is an integer of more than {_MAX_INT_DIGITS:,} digits; store it as text", path=where
            )
    elif kind is float:
        if not math.isfinite(value):
            where = _show((*path, *place))
            raise InvalidValueError(
                f"{where} is {value}, which JSON can't hold; store it as text", path=where
            )
    elif kind is not bool:
        raise _wrong_type(value, (*path, *place))


def _surrogate(text: object, path: tuple[object, ...]) -> InvalidValueError:
    where = _show(path)
    return InvalidValueError(
        f"{where} has a lone surrogate ({text!r:.60}), which is no valid Unicode; "
        "store bytes as base64 text, or decode them with errors='replace'",
        path=where,
    )


def _wrong_type(value: object, path: tuple[object, ...]) -> InvalidTypeError:
    where = _show(path)
    kind = type(value)
    instead = _INSTEAD.get(kind.__name__)
    if instead is None:
        plain = next(
            (base.__name__ for base in (str, int, float, list, dict) if isinstance(value, base)), None
        )
        if plain is not None:
            instead = f"store {plain}(value): only exactly {plain} comes back as it was"
        elif kind.__module__.partition(".")[0] == "numpy":
            instead = "store value.item()"
        else:
            instead = "store what it is made of: str, int, float, bool, list or dict"
    return InvalidTypeError(
        f"{where} is of type {kind.__name__}, which JSON can't give back; {instead}", path=where
    )


def _show(path: tuple[object, ...]) -> str:
    return "value" + "".join(f"[{place!r:.60}]" for place in path)
