"""The JSON that ``--json`` prints. `docs/reference/command-line.md` describes it; names stay, and new ones may be added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepstate.cli.times import instant
from keepstate.clock import optional_datetime, to_datetime
from keepstate.scope import TaskScope, with_ids_of, writer_of
from keepstate.values import as_text, decode

if TYPE_CHECKING:
    from keepstate.backends.answers import ChangeNotice, StoredToken
    from keepstate.backends.requests import HeldScope
    from keepstate.cli.presence import Sight
    from keepstate.scope import (
        AssetInfo,
        Attempt,
        CleanupReport,
        Entry,
        HistoryEntry,
        RunInfo,
        TaskInstanceInfo,
        Writer,
    )


def writer(who: Writer | None) -> dict[str, Any] | None:
    """Return who wrote something; what is not known is left out."""
    return None if who is None else {name: fact for name, fact in vars(who).items() if fact is not None}


def value(found: Any, damaged: str | None) -> dict[str, Any]:
    """Return a value; where it is damaged, what tells that beside it."""
    return {"value": found} if damaged is None else {"value": None, "damaged": damaged}


def entry(found: Entry) -> dict[str, Any]:
    """Return an entry."""
    return {
        "key": found.key,
        **value(found.value, found.damaged),
        "version": found.version,
        "updated_at": instant(found.updated_at),
        "expires_at": instant(found.expires_at),
        "writer": writer(found.writer),
    }


def absent(key: str, default: Any) -> dict[str, Any]:
    """Return an entry that is not there, with a default for its value."""
    return {
        "key": key,
        "value": default,
        "version": 0,
        "updated_at": None,
        "expires_at": None,
        "writer": None,
    }


def version(found: HistoryEntry) -> dict[str, Any]:
    """Return a version in a key's history."""
    return {
        "key": found.key,
        "version": found.version,
        "action": found.action,
        **value(found.value, found.damaged),
        "size": found.size,
        "sha256": found.sha256,
        "written_at": instant(found.written_at),
        "expires_at": instant(found.expires_at),
        "writer": writer(found.writer),
    }


def run(found: RunInfo, seen: Sight | None = None) -> dict[str, Any]:
    """Return a run."""
    return {
        "dag_id": found.dag_id,
        "run_id": found.run_id,
        "state": found.state,
        "presence": seen and seen.word,
        "try_number": found.try_number,
        "created_at": instant(found.created_at),
        "updated_at": instant(found.updated_at),
    }


def task_instance(
    found: TaskInstanceInfo, checkpoints: dict[str, Any], seen: Sight | None = None
) -> dict[str, Any]:
    """Return a task instance with its checkpoints by their keys."""
    return {
        "dag_id": found.scope.dag_id,
        "run_id": found.scope.run_id,
        "task_id": found.scope.task_id,
        "map_index": found.scope.map_index,
        "state": found.state,
        "presence": seen and seen.word,
        "try_number": found.try_number,
        "version": found.version,
        "entries": found.entries,
        "checkpoints": checkpoints,
        "created_at": instant(found.created_at),
        "updated_at": instant(found.updated_at),
    }


def attempt(scope: HeldScope, found: Attempt, seen: Sight | None) -> dict[str, Any]:
    """Return an attempt of a task instance, or of a run as a whole."""
    return {
        "dag_id": scope.dag_id,
        "run_id": scope.run_id,
        "task_id": scope.task_id if isinstance(scope, TaskScope) else None,
        "map_index": scope.map_index if isinstance(scope, TaskScope) else None,
        "try_number": found.try_number,
        "attempt_id": found.attempt_id,
        "incarnation": found.incarnation,
        "state": found.state,
        "presence": seen and seen.word,
        "host": found.host,
        "pid": found.pid,
        "started_at": instant(found.started_at),
        "beat_at": instant(found.beat_at),
        "ended_at": instant(found.ended_at),
        "reason": found.reason,
    }


def asset(found: AssetInfo) -> dict[str, Any]:
    """Return an asset."""
    return {
        "id": found.id,
        "name": found.name,
        "uri": found.uri,
        "entries": found.entries,
        "updated_at": instant(found.updated_at),
    }


def cleanup(report: CleanupReport) -> dict[str, Any]:
    """Return what a cleanup removed, or would remove."""
    return {**vars(report), "total": report.total}


def token(found: StoredToken) -> dict[str, Any]:
    """Return a token of the server, without what is kept of its secret."""
    return {
        "id": found.id,
        "name": found.name,
        "role": found.role,
        "dags": found.dags,
        "assets": found.assets,
        "created_at": instant(to_datetime(found.created_at)),
        "expires_at": instant(optional_datetime(found.expires_at)),
        "revoked_at": instant(optional_datetime(found.revoked_at)),
        "used_at": instant(optional_datetime(found.used_at)),
    }


def change(notice: ChangeNotice) -> dict[str, Any]:
    """Return a change, with the scope it happened in."""
    scope, who = notice.scope, writer_of(notice.writer)
    where: dict[str, Any]
    if isinstance(scope, TaskScope):
        where = {
            "dag_id": scope.dag_id,
            "run_id": scope.run_id,
            "task_id": scope.task_id,
            "map_index": scope.map_index,
        }
    else:
        where = {"asset": scope.name, "asset_uri": scope.uri}
    return {
        **where,
        "key": notice.key,
        "action": notice.action,
        **_value_of(notice),
        "version": notice.version,
        "updated_at": instant(to_datetime(notice.updated_at)),
        "writer": writer(who and with_ids_of(scope, who)),
    }


def _value_of(notice: ChangeNotice) -> dict[str, Any]:
    if notice.text is None:
        return value(None, None)
    try:
        return value(decode(notice.text), None)
    except ValueError:
        return value(None, as_text(notice.text))
