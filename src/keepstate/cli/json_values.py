"""Between a shell's text and a value: what `set` takes and `get` prints."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from keepstate.errors import InvalidInputError
from keepstate.server.strict_json import without_doubles
from keepstate.values import HARD_VALUE_LIMIT

# More than this can't be a value, however much white space is in it: an endless stdin ends here.
_MOST_INPUT = 4 * HARD_VALUE_LIMIT

# JSON escapes what is below a space; these too may steer a terminal or break a line.
_STEERING = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read_argument(text: str) -> str:
    """Return what an argument stands for: itself, or for ``-`` all of stdin, which must be UTF-8."""
    if text != "-":
        return text
    if sys.stdin is None:
        raise InvalidInputError("there is no stdin to read the value from")
    data = sys.stdin.buffer.read(_MOST_INPUT + 1)
    if len(data) > _MOST_INPUT:
        raise InvalidInputError(
            f"stdin holds more than {_MOST_INPUT:,} bytes, far above what a value may take"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise InvalidInputError(
            f"stdin is not UTF-8: byte {exc.start} is 0x{data[exc.start]:02x}; store bytes as base64 text"
        ) from None


def parse(text: str, *, raw: bool, what: str, if_null: str = "") -> Any:
    """Return the value that ``text`` writes: itself when ``raw``, else the JSON in it.

    Raises ``InvalidInputError`` with line and column for what is no JSON, and for an object that has a name twice. ``if_null`` is the advice for null.
    """
    if raw:
        return text
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=without_doubles)
    except json.JSONDecodeError as exc:
        raise InvalidInputError(
            f"{what} is not JSON: {exc.msg} at line {exc.lineno}, column {exc.colno}; "
            """quote a string as '"text"', or give --raw to take it as it is"""
        ) from None
    except RecursionError:
        raise InvalidInputError(f"{what} is nested too deep") from None
    except InvalidInputError:
        raise
    except ValueError as exc:
        # an integer of more digits than Python takes, or a name that stands twice
        raise InvalidInputError(f"{what} can't be read: {exc}") from None
    if value is None:
        raise InvalidInputError(f"{what} is null, which can't be told from an absent key{if_null}")
    return value


def _refuse_constant(name: str) -> None:
    raise InvalidInputError(f"{name} is not JSON, though Python reads it; store it as text")


def to_json(value: object) -> str:
    """Return ``value`` as one line of JSON that steers no terminal."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", _encoder.encode(value))
