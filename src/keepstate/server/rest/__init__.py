"""REST under Airflow's paths, in the shapes that its clients expect, and keepstate's own additions beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.server.rest import (
    about,
    asset_state,
    assets,
    attempts,
    dags,
    document,
    history,
    task_instances,
    task_state,
)
from keepstate.server.rest.asking import LARGEST_BODY
from keepstate.server.rest.document import describe

if TYPE_CHECKING:
    from fastapi import APIRouter

__all__ = ["LARGEST_BODY", "PATH", "describe", "routers"]

PATH = "/api/v2/"

_ROOMS = (task_state, asset_state, history, dags, attempts, task_instances, assets, about, document)


def routers() -> list[APIRouter]:
    """Return what answers REST, and shows how it is asked."""
    return [room.router for room in _ROOMS]
