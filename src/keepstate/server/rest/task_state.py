"""The task state store: the entries of a task instance, in Airflow's paths and shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from keepstate.backends.refusals import unknown
from keepstate.backends.requests import Clear, Delete, Put
from keepstate.retention import expiry
from keepstate.server.rest import texts
from keepstate.server.rest.changing import change, change_what_stands
from keepstate.server.rest.conditions import condition_of, etag
from keepstate.server.rest.described import (
    ALL_MAP_INDICES,
    FORGET,
    KEY,
    MAP_INDEX,
    TASK_INSTANCE,
    WINDOW,
    operation,
)
from keepstate.server.rest.models import (
    DEFAULT,
    TaskStateStoreBody,
    TaskStateStoreCollectionResponse,
    TaskStateStorePatchBody,
    TaskStateStoreResponse,
)
from keepstate.server.roles import Right
from keepstate.values import is_damaged

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.backends.answers import StoredEntry
    from keepstate.backends.requests import EntryScope
    from keepstate.scope import TaskScope
    from keepstate.server.rest.asking import Ask

BASE = "/api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/state-store"


router = APIRouter(tags=["Task state store"])

_ONE = [*TASK_INSTANCE, KEY, MAP_INDEX]
_NO_ENTRY = "There is no such entry."
_NOT_KNOWN = "The task instance is not known."


@operation(
    router,
    "GET",
    BASE,
    parameters=[*TASK_INSTANCE, MAP_INDEX, *WINDOW],
    right=Right.READ,
    answer=TaskStateStoreCollectionResponse,
)
async def list_entries(asked: Ask) -> Response:
    """List the entries of a task instance.

    Ordered by key. A task instance that is not known has none.
    """
    scope = asked.task_scope()
    limit, offset = asked.window()
    if not asked.caller.reaches_dag(scope.dag_id):
        return texts.json_answer(texts.listed("task_state_store", (), texts.task_entry, 0))
    return await listed(asked, scope, "task_state_store", texts.task_entry, limit, offset)


@operation(
    router,
    "GET",
    BASE + "/{key:keepstate_key}",
    parameters=_ONE,
    right=Right.READ,
    answer=TaskStateStoreResponse,
    etag=True,
    absent=_NO_ENTRY,
)
async def get_entry(asked: Ask) -> Response:
    """Get an entry of a task instance."""
    scope, key = asked.task_scope(), asked.key()
    if not asked.caller.reaches_dag(scope.dag_id):
        raise _no_entry(key)
    return await one(asked, scope, key, texts.task_entry)


@operation(
    router,
    "PUT",
    BASE + "/{key:keepstate_key}",
    parameters=_ONE,
    right=Right.WRITE,
    status=204,
    body=TaskStateStoreBody,
    etag=True,
    absent=_NOT_KNOWN,
    conditional=True,
)
async def put_entry(asked: Ask) -> Response:
    """Create an entry, or write over it.

    `expires_at` is `"default"` (also where it is left out), null for never, or a time with its offset from UTC. An entry whose
    time has come is gone at once.
    """
    scope, key, condition = asked.task_scope(), asked.key(), condition_of(asked.request)
    body, text = await asked.body_with_value(TaskStateStoreBody)
    _reach(asked, scope)
    store, now, expires_at = asked.store, asked.store.clock(), body.expires_at
    if expires_at == DEFAULT:
        expires_at = expiry(None, now=now, default_days=store.settings.default_retention_days)
    put = Put(key, text, expires_at)
    done = await asked.write(change, store, scope, asked.writer, put, condition, now=now)
    return Response(None, 204, etag(done.version))


@operation(
    router,
    "PATCH",
    BASE + "/{key:keepstate_key}",
    parameters=_ONE,
    right=Right.WRITE,
    body=TaskStateStorePatchBody,
    etag=True,
    absent=_NO_ENTRY,
    conditional=True,
)
async def patch_entry(asked: Ask) -> Response:
    """Write another value over an entry, and leave its expiry.

    Whoever else writes it at the same time, the expiry is that of the entry that was written over.
    """
    scope, key, condition = asked.task_scope(), asked.key(), condition_of(asked.request)
    _, text = await asked.body_with_value(TaskStateStorePatchBody)
    if not asked.caller.reaches_dag(scope.dag_id):
        raise _no_entry(key)

    def decide(entry: StoredEntry | None) -> Put:
        if entry is None:
            raise _no_entry(key)
        return Put(key, text, entry.expires_at)

    done = await asked.write(change_what_stands, asked.store, scope, asked.writer, key, decide, condition)
    # Airflow's answer: its schema says no more than that there is one
    return texts.json_answer("null", etag(done.version))


@operation(
    router,
    "DELETE",
    BASE + "/{key:keepstate_key}",
    parameters=_ONE,
    right=Right.WRITE,
    status=204,
    absent=_NOT_KNOWN,
    conditional=True,
)
async def delete_entry(asked: Ask) -> Response:
    """Delete an entry; an absent one is fine."""
    scope, key, condition = asked.task_scope(), asked.key(), condition_of(asked.request)
    _reach(asked, scope)
    await asked.write(
        change, asked.store, scope, asked.writer, Delete(key), condition, now=asked.store.clock()
    )
    return Response(None, 204)


@operation(
    router,
    "DELETE",
    BASE,
    parameters=[*TASK_INSTANCE, MAP_INDEX, ALL_MAP_INDICES, FORGET],
    right=Right.WRITE,
    status=204,
    absent=_NOT_KNOWN,
)
async def clear_entries(asked: Ask) -> Response:
    """Delete all entries of a task instance.

    With `all_map_indices` those of every map index of the task, one of which has to be known. With `forget` their history goes
    too.
    """
    scope = asked.task_scope()
    everywhere, forget = asked.flag("all_map_indices"), asked.flag("forget")
    _reach(asked, scope)
    clear = Clear(
        scope=scope,
        now=asked.store.clock(),
        writer=asked.writer,
        history=asked.store.history_policy,
        forget=forget,
        all_map_indices=everywhere,
        known=True,
    )
    await asked.write(asked.backend.clear, clear)
    return Response(None, 204)


async def one(
    asked: Ask, scope: EntryScope, key: str, written: Callable[[StoredEntry, str], str]
) -> Response:
    """Answer with an entry. Where its value is damaged: with 500, for nobody to take it for a value."""

    def entry() -> Response:
        found = asked.backend.read(scope, (key,), now=asked.store.clock()).entries
        if not found:
            raise _no_entry(key)
        (only,) = found
        if is_damaged(only.text):
            raise _damaged(scope, only)
        return texts.json_answer(written(only, texts.sound(only.text)), etag(only.version))

    return await asked.read(entry)


async def listed(
    asked: Ask,
    scope: EntryScope,
    name: str,
    written: Callable[[StoredEntry, str], str],
    limit: int,
    offset: int,
) -> Response:
    """Answer with a page of entries. Large values take their time, so they are put together where they are read.

    One that is damaged is told as such, and keeps none of the others from their readers.
    """

    def page() -> Response:
        found = asked.backend.read(scope, None, now=asked.store.clock(), limit=limit, offset=offset)
        return texts.json_answer(texts.listed(name, found.entries, written, found.total))

    return await asked.read(page)


def _reach(asked: Ask, scope: TaskScope) -> None:
    """Answer as for an unknown task instance where the caller's pattern does not admit the dag."""
    if not asked.caller.reaches_dag(scope.dag_id):
        raise unknown(scope)


def _damaged(scope: EntryScope, entry: StoredEntry) -> HTTPException:
    return HTTPException(
        500,
        f"the value under the key {entry.key!r} of {scope} is damaged, as keepstate did not write {entry.text!r:.60}; "
        "write it anew, or delete it",
    )


def _no_entry(key: str) -> HTTPException:
    """Make the answer for a key that is absent, of whatever task instance or asset."""
    return HTTPException(404, f"key {key!r} was not found")
