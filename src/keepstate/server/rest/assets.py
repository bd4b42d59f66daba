"""Assets in Airflow's paths and shapes, and the removal of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from keepstate.clock import to_text
from keepstate.scope import AssetScope
from keepstate.server.answers import answer
from keepstate.server.rest.airflow_models import AssetCollectionResponse, AssetResponse
from keepstate.server.rest.described import ASSET_ID, WINDOW, operation
from keepstate.server.roles import Right

if TYPE_CHECKING:
    from keepstate.scope import AssetInfo
    from keepstate.server.rest.asking import Ask

BASE = "/api/v2/assets"

router = APIRouter(tags=["Assets"])

_NOT_KNOWN = "There is no such asset."


@operation(router, "GET", BASE, parameters=WINDOW, right=Right.READ, answer=AssetCollectionResponse)
async def list_assets(asked: Ask) -> Response:
    """List the assets that have entries or had some, ordered by name."""
    limit, offset = asked.window()
    pattern, backend = asked.caller.assets, asked.backend
    found = await asked.read(
        backend.assets, now=asked.store.clock(), pattern=pattern, limit=limit, offset=offset
    )
    total = await asked.read(backend.count_assets, pattern=pattern)
    return answer(200, {"assets": [_shape(info) for info in found], "total_entries": total})


@operation(
    router,
    "GET",
    BASE + "/{asset_id}",
    parameters=[ASSET_ID],
    right=Right.READ,
    answer=AssetResponse,
    absent=_NOT_KNOWN,
)
async def get_asset(asked: Ask) -> Response:
    """Get an asset."""
    return answer(200, _shape(await find_asset(asked, asked.number("asset_id"))))


@operation(
    router,
    "DELETE",
    BASE + "/{asset_id}",
    parameters=[ASSET_ID],
    right=Right.ERASE,
    status=204,
    absent=_NOT_KNOWN,
)
async def delete_asset(asked: Ask) -> Response:
    """Delete an asset with its entries and their history."""
    scope = await reached(asked, asked.number("asset_id"))
    await asked.write(asked.backend.delete_asset, scope, now=asked.store.clock())
    return Response(None, 204)


async def find_asset(asked: Ask, number: int) -> AssetInfo:
    """Return an asset by its number; answer 404 for one that is not there, as far as the caller can know."""
    found = await asked.read(asked.backend.asset, number, now=asked.store.clock())
    if found is None or not asked.caller.reaches_asset(found.name, found.uri):
        raise HTTPException(404, f"asset {number} was not found")
    return found


async def reached(asked: Ask, number: int) -> AssetScope:
    """Return the scope of an asset by its number; answer 404 as `find_asset` does.

    It names the asset by its name alone: with the uri as well, it would rename an asset that got another one meanwhile.
    """
    return AssetScope((await find_asset(asked, number)).name)


def _shape(info: AssetInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "name": info.name,
        "uri": info.uri,
        "group": "asset",
        "extra": None,
        "created_at": to_text(info.created_at),
        "updated_at": to_text(info.updated_at),
        "scheduled_dags": [],
        "producing_tasks": [],
        "consuming_tasks": [],
        "aliases": [],
        "watchers": [],
        "last_asset_event": None,
    }
