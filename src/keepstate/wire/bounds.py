"""What schemas say beyond the types: as much as they can of what scopes and `keepstate.wire.rules` ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

LAST_INSTANT = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z: the last instant that every reader can express."""
MOST_ROWS = 2**31 - 1
LONGEST_NAME = 250
LONGEST_SESSION = 200
"""What a server adds to it fits into the column too, whatever its characters take: MySQL counts bytes."""
MOST_INCARNATIONS = 10**9
"""From here on a column has room for as many again."""
MOST_AT_ONCE = 10_000
"""Keys that one request reads, changes that one batch makes, and sessions that a cleanup is told of."""
LONGEST_PATTERN = 3001
"""A name of an asset, with a star at each end and between any two characters."""

ENDS = ("failed", "lost", "success", "superseded", "up_for_retry")
"""How an attempt may have ended."""
SENT_KINDS = ("api", "cli", "task", "watcher")
"""Who may write by a request."""
KINDS = (*SENT_KINDS, "web")
"""Who may write at all: the pages' writer, who has logged in, comes in no request."""

_ID = {
    "minLength": 1,
    "maxLength": LONGEST_NAME,
    "pattern": r"^(?!\.{1,2}$)[^/\x00-\x1f\x7f-\x9f]+$",
}
_ASSET = {"minLength": 1, "maxLength": 1500, "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$"}
_ATTEMPT = {"minLength": 1, "maxLength": LONGEST_NAME, "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$"}
_KEY = {
    "minLength": 1,
    "maxLength": 512,
    "pattern": r"^(?!([^\x00]*/)?\.{1,2}(/|$))[^\x00]+$",
}
_NAME = {"minLength": 1, "maxLength": LONGEST_NAME, "pattern": r"^[^\x00]+$"}
_COUNT = {"minimum": 0, "maximum": MOST_ROWS}
_NUMBER = {"minimum": 0}
_TIME = {"minimum": 0, "maximum": LAST_INSTANT, "description": "microseconds since 1970-01-01 UTC"}

_OF_ALL: dict[str, Mapping[str, Any]] = {
    "dag_id": _ID,
    "run_id": _ID,
    "task_id": _ID,
    "map_index": {"minimum": -1, "maximum": MOST_ROWS},
    "try_number": {"minimum": 1, "maximum": MOST_ROWS},
    "attempt_id": _ATTEMPT,
    "item": _ATTEMPT,
    "key": _KEY,
    "expires_at": _TIME,
    "expected": _COUNT,
    "offset": _COUNT,
    "limit": _COUNT,
    "runs": _COUNT,
    "after": _NUMBER,
    "lease": _NUMBER,
    "batch_size": {"minimum": 1, "maximum": 1_000_000},
    "idle": {"minimum": 0, "maximum": LAST_INSTANT},
    "as_of": _TIME,
    "pattern": {"maxLength": LONGEST_PATTERN, "pattern": r"^[^\x00]*$"},
}
_OF_ONE: dict[tuple[str, str], Mapping[str, Any]] = {
    ("read", "keys"): {"maxItems": MOST_AT_ONCE, "items": {"type": "string", **_KEY}},
    ("AssetScope", "name"): _ASSET,
    ("AssetScope", "uri"): _ASSET,
    ("Fence", "incarnation"): {"minimum": 0, "maximum": MOST_INCARNATIONS},
    ("HistoryPolicy", "limit"): {"minimum": 0, "maximum": 10_000},
    ("HistoryPolicy", "days"): {"minimum": 0, "maximum": 36_500},
    ("HistoryPolicy", "value_bytes"): _COUNT,
    ("Holder", "host"): _NAME,
    ("Holder", "started"): _NAME,
    ("Holder", "pid"): _NUMBER,
    ("Session", "id"): {**_NAME, "maxLength": LONGEST_SESSION},
    ("Session", "number"): _NUMBER,
    ("Writer", "kind"): {"enum": list(SENT_KINDS)},
    ("Writer", "name"): _NAME,
    ("Writer", "token"): _NAME,
    ("Batch", "changes"): {"minItems": 1, "maxItems": MOST_AT_ONCE},
    ("purge", "sessions"): {"maxItems": MOST_AT_ONCE},
    ("Put", "text"): {"contentMediaType": "application/json", "description": "the value as JSON text"},
    ("End", "state"): {"enum": list(ENDS)},
    ("End", "result"): {"contentMediaType": "application/json"},
    ("End", "arguments"): _NAME,
}


def bounds_of(owner: str, name: str) -> Mapping[str, Any]:
    """Return what a schema says of a class's, or a verb's, part ``name`` beside its type."""
    return _OF_ONE.get((owner, name)) or _OF_ALL.get(name) or {}
