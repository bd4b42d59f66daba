"""Answers as JSON text. A value is stored as such a text: it goes out as it is, and comes back exactly as written.

What somebody else has written into its place may be anything, and would break the document that it goes into: where the
text is no value, ``value`` is null, and ``damaged`` beside it tells what is stored.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from starlette.responses import Response

from keepstate.clock import to_datetime, to_text
from keepstate.scope import with_ids_of
from keepstate.server.writers import writer_for
from keepstate.values import as_text, is_damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from keepstate.backends.answers import StoredEntry, StoredVersion
    from keepstate.backends.requests import EntryScope
    from keepstate.scope import Writer
    from keepstate.server.roles import Caller

# what Airflow's shapes know of the kinds of writers
_KINDS = {"task": "task", "watcher": "watcher"}


def json_answer(text: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON text as an answer."""
    return Response(text.encode(), 200, headers, "application/json")


def task_entry(entry: StoredEntry, value: str) -> str:
    """Return an entry of a task instance in Airflow's shape, with what `sound` or `value_of` tells of its value."""
    return (
        f'{{"key":{json.dumps(entry.key)},{value},"updated_at":{_time(entry.updated_at)},'
        f'"expires_at":{_time(entry.expires_at)}}}'
    )


def asset_entry(caller: Caller, entry: StoredEntry, value: str) -> str:
    """Return an entry of an asset, as `task_entry` does, and as the caller may know its writer."""
    return (
        f'{{"key":{json.dumps(entry.key)},{value},"updated_at":{_time(entry.updated_at)},'
        f'"last_updated_by":{_last_updated_by(writer_for(caller, entry.writer))}}}'
    )


def sound(text: str) -> str:
    """Return the member of a value that was looked at, and is one."""
    return f'"value":{text}'


def value_of(text: str) -> str:
    """Return the member of a value; where it is damaged, what tells that."""
    return f'"value":null,"damaged":{json.dumps(as_text(text))}' if is_damaged(text) else sound(text)


def listed(
    name: str, entries: Iterable[StoredEntry], written: Callable[[StoredEntry, str], str], total: int | None
) -> str:
    """Return a page of entries under the name that Airflow gives them."""
    rows = ",".join(written(entry, value_of(entry.text)) for entry in entries)
    return f'{{"{name}":[{rows}],"total_entries":{total or 0}}}'


def history(caller: Caller, scope: EntryScope, versions: list[StoredVersion]) -> str:
    """Return the versions of a key, as the caller may know their writers."""
    rows = ",".join(_version(caller, scope, version) for version in versions)
    return f'{{"history":[{rows}],"total_entries":{len(versions)}}}'


def _version(caller: Caller, scope: EntryScope, version: StoredVersion) -> str:
    value = sound("null") if version.text is None else value_of(version.text)
    return (
        f'{{"key":{json.dumps(version.key)},"version":{json.dumps(version.version)},"action":{json.dumps(version.action)},'
        f'{value},"size":{json.dumps(version.size)},"sha256":{json.dumps(version.sha256)},"written_at":{_time(version.written_at)},'
        f'"expires_at":{_time(version.expires_at)},"writer":{_writer(scope, writer_for(caller, version.writer))}}}'
    )


def _last_updated_by(writer: Writer | None) -> str:
    if writer is None:
        return "null"
    facts = {
        "kind": _KINDS.get(writer.kind, "api"),
        "dag_id": writer.dag_id,
        "run_id": writer.run_id,
        "task_id": writer.task_id,
        "map_index": writer.map_index,
    }
    return json.dumps(facts)


def _writer(scope: EntryScope, writer: Writer | None) -> str:
    if writer is None:
        return "null"
    return json.dumps(vars(with_ids_of(scope, writer)))


def _time(micros: int | None) -> str:
    return "null" if micros is None else f'"{to_text(to_datetime(micros))}"'
