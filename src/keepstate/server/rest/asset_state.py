"""The asset state store: the entries of an asset, in Airflow's paths and shapes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from keepstate.backends.requests import Clear, Delete, Put
from keepstate.server.rest import texts
from keepstate.server.rest.assets import reached
from keepstate.server.rest.changing import change
from keepstate.server.rest.conditions import condition_of, etag
from keepstate.server.rest.described import ASSET_ID, FORGET, KEY, WINDOW, operation
from keepstate.server.rest.models import (
    AssetStateStoreBody,
    AssetStateStoreCollectionResponse,
    AssetStateStoreResponse,
)
from keepstate.server.rest.task_state import listed, one
from keepstate.server.roles import Right

if TYPE_CHECKING:
    from keepstate.server.rest.asking import Ask

BASE = "/api/v2/assets/{asset_id}/state-store"

router = APIRouter(tags=["Asset state store"])

_NOT_KNOWN = "There is no such asset."


@operation(
    router,
    "GET",
    BASE,
    parameters=[ASSET_ID, *WINDOW],
    right=Right.READ,
    answer=AssetStateStoreCollectionResponse,
    absent=_NOT_KNOWN,
)
async def list_asset_entries(asked: Ask) -> Response:
    """List the entries of an asset, ordered by key."""
    number = asked.number("asset_id")
    limit, offset = asked.window()
    scope = await reached(asked, number)
    return await listed(
        asked, scope, "asset_state_store", partial(texts.asset_entry, asked.caller), limit, offset
    )


@operation(
    router,
    "GET",
    BASE + "/{key:keepstate_key}",
    parameters=[ASSET_ID, KEY],
    right=Right.READ,
    answer=AssetStateStoreResponse,
    etag=True,
    absent="There is no such asset, or no such entry.",
)
async def get_asset_entry(asked: Ask) -> Response:
    """Get an entry of an asset."""
    number, key = asked.number("asset_id"), asked.key()
    scope = await reached(asked, number)
    return await one(asked, scope, key, partial(texts.asset_entry, asked.caller))


@operation(
    router,
    "PUT",
    BASE + "/{key:keepstate_key}",
    parameters=[ASSET_ID, KEY],
    right=Right.WRITE,
    status=204,
    body=AssetStateStoreBody,
    etag=True,
    absent=_NOT_KNOWN,
    conditional=True,
)
async def put_asset_entry(asked: Ask) -> Response:
    """Create an entry of an asset, or write over it."""
    number, key, condition = asked.number("asset_id"), asked.key(), condition_of(asked.request)
    _, text = await asked.body_with_value(AssetStateStoreBody)
    scope = await reached(asked, number)
    put, now = Put(key, text, None), asked.store.clock()
    done = await asked.write(change, asked.store, scope, asked.writer, put, condition, now=now)
    return Response(None, 204, etag(done.version))


@operation(
    router,
    "DELETE",
    BASE + "/{key:keepstate_key}",
    parameters=[ASSET_ID, KEY],
    right=Right.WRITE,
    status=204,
    absent=_NOT_KNOWN,
    conditional=True,
)
async def delete_asset_entry(asked: Ask) -> Response:
    """Delete an entry of an asset; an absent one is fine."""
    number, key, condition = asked.number("asset_id"), asked.key(), condition_of(asked.request)
    scope = await reached(asked, number)
    await asked.write(
        change, asked.store, scope, asked.writer, Delete(key), condition, now=asked.store.clock()
    )
    return Response(None, 204)


@operation(
    router,
    "DELETE",
    BASE,
    parameters=[ASSET_ID, FORGET],
    right=Right.WRITE,
    status=204,
    absent=_NOT_KNOWN,
)
async def clear_asset_entries(asked: Ask) -> Response:
    """Delete all entries of an asset; with `forget`, their history too."""
    number, forget = asked.number("asset_id"), asked.flag("forget")
    scope = await reached(asked, number)
    clear = Clear(
        scope=scope,
        now=asked.store.clock(),
        writer=asked.writer,
        history=asked.store.history_policy,
        forget=forget,
        known=True,
    )
    await asked.write(asked.backend.clear, clear)
    return Response(None, 204)
