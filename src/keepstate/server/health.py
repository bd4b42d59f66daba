"""`/health`: whether the process lives, and whether it can do what it is for. Anybody may ask, and learns no more."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from keepstate.errors import KeepstateError
from keepstate.server.routes import Route
from keepstate.server.work import client_gone

if TYPE_CHECKING:
    from starlette.requests import Request

    from keepstate.server.service import Service

PATIENCE = 5.0
"""Seconds after which a database that does not answer counts as away."""
_TRUSTED_FOR = 1.0


class Health:
    """Asks the database at most once a second, however many ask here."""

    def __init__(self, service: Service, patience: float = PATIENCE) -> None:
        self._service = service
        self._patience = patience
        self._asking = asyncio.Lock()
        self._answer = False
        self._asked_at = float("-inf")

    async def ready(self) -> bool:
        """Whether the store can be read and written now."""
        async with self._asking:
            if time.monotonic() - self._asked_at > _TRUSTED_FOR:
                self._answer = await self._ask()
                self._asked_at = time.monotonic()
            return self._answer

    async def _ask(self) -> bool:
        backend = self._service.store.backend
        # the answer is for all who ask, so it is looked for whether or not the first of them still waits
        asker = client_gone.set(None)
        try:
            await asyncio.wait_for(self._service.work.write(backend.check_writable), self._patience)
        except (KeepstateError, TimeoutError, asyncio.TimeoutError):
            return False
        finally:
            client_gone.reset(asker)
        return True


async def live(request: Request) -> JSONResponse:  # noqa: ARG001 - an endpoint's signature
    """Answer 200 while the process can answer at all."""
    return JSONResponse({"status": "live"})


async def ready(request: Request) -> JSONResponse:
    """Answer 200 while the store can be read and written, and 503 while it can't."""
    health: Health = request.app.state.health
    if await health.ready():
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "the store can't be written to"}, 503, {"Retry-After": "1"})


routes = [
    Route("/health", ready),
    Route("/health/ready", ready),
    Route("/health/live", live),
]
