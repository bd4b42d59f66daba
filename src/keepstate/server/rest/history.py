"""What an entry was before, and how it becomes that again. keepstate's own; Airflow has no such thing.

Below `state-store/` everything is a key, so these paths stand beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from keepstate.backends.requests import Put
from keepstate.errors import VersionNotFoundError
from keepstate.server.rest import texts
from keepstate.server.rest.assets import reached
from keepstate.server.rest.changing import change_what_stands
from keepstate.server.rest.conditions import Condition, condition_of, etag
from keepstate.server.rest.described import ASSET_ID, KEY, MAP_INDEX, TASK_INSTANCE, operation
from keepstate.server.rest.models import HistoryResponse, RestoreBody
from keepstate.server.roles import Right
from keepstate.values import is_damaged

if TYPE_CHECKING:
    from keepstate.backends.answers import Applied, StoredEntry
    from keepstate.backends.requests import EntryScope
    from keepstate.scope import Writer
    from keepstate.server.rest.asking import Ask
    from keepstate.store import StateStore

_TASK = "/api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}"
_ASSET = "/api/v2/assets/{asset_id}"
_HISTORY = "/state-store-history/{key:keepstate_key}"
_RESTORE = "/state-store-restore/{key:keepstate_key}"

router = APIRouter(tags=["History"])

_NO_VERSION = "The task instance or the asset is not known, or that version is not kept."


@operation(
    router,
    "GET",
    _TASK + _HISTORY,
    parameters=[*TASK_INSTANCE, KEY, MAP_INDEX],
    right=Right.READ,
    answer=HistoryResponse,
)
async def get_history(asked: Ask) -> Response:
    """List the versions of a key of a task instance.

    Newest first, as many as are kept. A key that is not known has none.
    """
    scope, key = asked.task_scope(), asked.key()
    if not asked.caller.reaches_dag(scope.dag_id):
        return texts.json_answer(texts.history(asked.caller, scope, []))
    return await _history(asked, scope, key)


@operation(
    router,
    "GET",
    _ASSET + _HISTORY,
    parameters=[ASSET_ID, KEY],
    right=Right.READ,
    answer=HistoryResponse,
    absent="There is no such asset.",
)
async def get_asset_history(asked: Ask) -> Response:
    """List the versions of a key of an asset.

    Newest first, as many as are kept. A key that is not known has none.
    """
    number, key = asked.number("asset_id"), asked.key()
    return await _history(asked, await reached(asked, number), key)


@operation(
    router,
    "POST",
    _TASK + _RESTORE,
    parameters=[*TASK_INSTANCE, KEY, MAP_INDEX],
    right=Right.WRITE,
    status=204,
    body=RestoreBody,
    etag=True,
    absent=_NO_VERSION,
    conditional=True,
)
async def restore_entry(asked: Ask) -> Response:
    """Write the value that a key of a task instance had at a version again.

    As a new version; the entry's expiry stays. A key that is gone comes back with the expiry that the version had.
    """
    scope, key, condition = asked.task_scope(), asked.key(), condition_of(asked.request)
    body = await asked.body(RestoreBody)
    if not asked.caller.reaches_dag(scope.dag_id):
        raise _not_kept(key, body.version)
    done = await asked.write(restore, asked.store, scope, asked.writer, key, body.version, condition)
    return Response(None, 204, etag(done.version))


@operation(
    router,
    "POST",
    _ASSET + _RESTORE,
    parameters=[ASSET_ID, KEY],
    right=Right.WRITE,
    status=204,
    body=RestoreBody,
    etag=True,
    absent=_NO_VERSION,
    conditional=True,
)
async def restore_asset_entry(asked: Ask) -> Response:
    """Write the value that a key of an asset had at a version again, as a new version."""
    number, key, condition = asked.number("asset_id"), asked.key(), condition_of(asked.request)
    body = await asked.body(RestoreBody)
    scope = await reached(asked, number)
    done = await asked.write(restore, asked.store, scope, asked.writer, key, body.version, condition)
    return Response(None, 204, etag(done.version))


async def _history(asked: Ask, scope: EntryScope, key: str) -> Response:
    limit = asked.store.history_policy.limit
    found = await asked.read(asked.backend.history, scope, key, now=asked.store.clock(), limit=limit)
    return texts.json_answer(texts.history(asked.caller, scope, found))


def restore(
    store: StateStore, scope: EntryScope, writer: Writer, key: str, version: int, condition: Condition
) -> Applied:
    """Write the value of a version again, if the condition holds: else 412. Raises ``VersionNotFoundError``."""
    rows = store.backend.history(scope, key, now=store.clock())
    past = next((row for row in rows if row.version == version), None)
    if past is None or past.text is None or is_damaged(past.text):
        raise _not_kept(key, version)
    text, own_expiry = past.text, past.expires_at

    def decide(entry: StoredEntry | None) -> Put:
        return Put(key, text, entry.expires_at if entry else own_expiry)

    return change_what_stands(store, scope, writer, key, decide, condition)


def _not_kept(key: str, version: int) -> VersionNotFoundError:
    return VersionNotFoundError(
        f"version {version} of key {key!r} can't be restored: there is none, it removed the key, it was too large to be kept, "
        "or it is damaged",
        key=key,
        version=version,
    )
