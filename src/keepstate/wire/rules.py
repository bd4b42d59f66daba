"""What a request may hold beyond its types: the side that keeps the state takes nobody's word for it.

A text that is no JSON, a key of 10,000 characters or an expiry in the year 200,000 would be stored happily, and break
every later reader. So the rules of the accessors hold here too, and for whatever else ends up in a table.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from keepstate.backends.answers import ChangeNotice, StoredEntry, StoredVersion
from keepstate.backends.requests import Batch, Begin, Delete, End, Fence, HistoryPolicy, Holder, Put, Session
from keepstate.errors import InvalidInputError, InvalidValueError
from keepstate.scope import Writer, check_attempt, check_id
from keepstate.values import HARD_VALUE_LIMIT, check_key, encode
from keepstate.wire.bounds import (
    ENDS,
    KINDS,
    LAST_INSTANT,
    LONGEST_NAME,
    LONGEST_PATTERN,
    LONGEST_SESSION,
    MOST_AT_ONCE,
    MOST_INCARNATIONS,
    MOST_ROWS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _whole(name: str, value: int | None, most: int, least: int = 0) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidInputError(f"{name} must be a whole number from {least} to {most}, not {value}")


def _few(who: str, what: str, those: Sequence[object]) -> None:
    if len(those) > MOST_AT_ONCE:
        raise InvalidInputError(
            f"{who} at most {MOST_AT_ONCE:,} {what} at once, not {len(those):,}; ask in several requests"
        )


def _name(name: str, value: str | None, longest: int = LONGEST_NAME) -> None:
    if value is not None and not 1 <= len(value) <= longest:
        raise InvalidInputError(f"{name} must have 1 to {longest} characters, not {len(value)}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidInputError(f"{name} must be one of {', '.join(allowed)}, not {value!r:.60}")


def stored_text(text: str) -> str:
    """Return the compact JSON text of the value that ``text`` stands for. Raises ``InvalidValueError`` where it is none."""
    try:
        # takes NaN, for `encode` to say where it is
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidValueError(f"the text {text!r:.60} is no JSON", path="value") from None
    return encode(value)


def _put(put: Put) -> Put:
    check_key(put.key)
    _whole("expires_at", put.expires_at, LAST_INSTANT)
    _whole("expected", put.expected, MOST_ROWS)
    text = stored_text(put.text)
    return put if text == put.text else replace(put, text=text)


def _delete(delete: Delete) -> Delete:
    check_key(delete.key)
    _whole("expected", delete.expected, MOST_ROWS)
    return delete


def _batch(batch: Batch) -> Batch:
    keys = [change.key for change in batch.changes]
    if not keys:
        raise InvalidInputError("a batch has at least one change")
    _few("a batch has", "changes", keys)
    if len(set(keys)) != len(keys):
        raise InvalidInputError("a batch changes each key once")
    return batch


def _fence(fence: Fence) -> Fence:
    check_attempt(fence.try_number, fence.attempt_id, fence.item)
    _whole("incarnation", fence.incarnation, MOST_INCARNATIONS)
    return fence


def _session(session: Session) -> Session:
    _name("session", session.id, LONGEST_SESSION)
    _whole("number", session.number, 2**63 - 1)
    return session


def _history(policy: HistoryPolicy) -> HistoryPolicy:
    _whole("limit", policy.limit, 10_000)
    _whole("days", policy.days, 36_500)
    _whole("value_bytes", policy.value_bytes, MOST_ROWS)
    return policy


def _writer(writer: Writer) -> Writer:
    _one_of("kind", writer.kind, KINDS)
    _name("name", writer.name)
    _name("token", writer.token)
    for name in ("dag_id", "run_id", "task_id"):
        if getattr(writer, name) is not None:
            check_id(name, getattr(writer, name))
    _whole("map_index", writer.map_index, MOST_ROWS, least=-1)
    _whole("try_number", writer.try_number, MOST_ROWS, least=1)
    return writer


def _holder(holder: Holder) -> Holder:
    for name in ("host", "started"):
        _name(name, getattr(holder, name))
    _whole("pid", holder.pid, 2**63 - 1)
    return holder


def _begin(begin: Begin) -> Begin:
    check_attempt(1 if begin.try_number is None else begin.try_number, begin.attempt_id, begin.item)
    _whole("lease", begin.lease, 2**63 - 1)
    return begin


def _end(end: End) -> End:
    _one_of("state", end.state, ENDS)
    _name("reason", end.reason, HARD_VALUE_LIMIT)
    _name("arguments", end.arguments)
    if end.result is not None:
        _result(end.result)
    return end


def _result(text: str) -> None:
    # unlike a stored value, the result of a task may be null
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidValueError(f"the result {text!r:.60} is no JSON", path="result") from None
    if value is not None:
        encode(value)


RULES: dict[Any, Callable[[Any], Any]] = {
    Put: _put,
    Delete: _delete,
    Batch: _batch,
    Fence: _fence,
    Session: _session,
    HistoryPolicy: _history,
    Writer: _writer,
    Holder: _holder,
    Begin: _begin,
    End: _end,
}
"""By class: returns what is to be taken, or raises the error that says what is wrong."""


def _stored(one: StoredEntry) -> StoredEntry:
    _whole("updated_at", one.updated_at, LAST_INSTANT)
    _whole("expires_at", one.expires_at, LAST_INSTANT)
    return one


def _logged(one: StoredVersion) -> StoredVersion:
    _whole("written_at", one.written_at, LAST_INSTANT)
    _whole("expires_at", one.expires_at, LAST_INSTANT)
    return one


def _noticed(one: ChangeNotice) -> ChangeNotice:
    _whole("updated_at", one.updated_at, LAST_INSTANT)
    return one


RULES_OF_ANSWERS: dict[Any, Callable[[Any], Any]] = {
    StoredEntry: _stored,
    StoredVersion: _logged,
    ChangeNotice: _noticed,
}
"""By class, as ``RULES``: what is asked of answers, whose reader would fail at it later and elsewhere."""


def argument_rules(arguments: dict[str, Any]) -> None:
    """Check what a verb takes beside the protocol's dataclasses; raise as these do."""
    for name, value in arguments.items():
        rule = _ARGUMENTS.get(name)
        if rule is not None and value is not None:
            rule(value)


def _keys(keys: list[str]) -> None:
    _few("a request reads", "keys", keys)
    for key in keys:
        check_key(key)


def _sessions(names: list[str]) -> None:
    _few("a cleanup is told of", "sessions", names)
    for name in names:
        _name("session", name)


def _pattern(pattern: str) -> None:
    if len(pattern) > LONGEST_PATTERN:
        raise InvalidInputError(f"a pattern has at most {LONGEST_PATTERN} characters, not {len(pattern)}")


_ARGUMENTS: dict[str, Callable[[Any], object]] = {
    "keys": _keys,
    "key": check_key,
    "runs": lambda runs: _whole("runs", runs, MOST_ROWS),
    "limit": lambda limit: _whole("limit", limit, MOST_ROWS),
    "offset": lambda offset: _whole("offset", offset, MOST_ROWS),
    "after": lambda after: _whole("after", after, 2**63 - 1),
    "sessions": _sessions,
    "batch_size": lambda size: _whole("batch_size", size, 1_000_000, least=1),
    "idle": lambda idle: _whole("idle", idle, LAST_INSTANT),
    "as_of": lambda moment: _whole("as_of", moment, LAST_INSTANT),
    "pattern": _pattern,
    **{name: partial(check_id, name) for name in ("dag_id", "run_id", "task_id")},
}
