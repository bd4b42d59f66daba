"""Noting each request: a line of JSON in the access log, and the figures at `/metrics`."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from keepstate.clock import to_datetime

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from keepstate.clock import Clock
    from keepstate.server.metrics import Metrics

access = logging.getLogger("keepstate.access")

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Nobody who was there to be answered: the client had gone. (nginx' number for it; it is never sent.)
_GONE = 499


class Observing:
    """Counts, times and logs each request.

    The log has the path and never the query or a header, since these may hold what logs in.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, clock: Clock) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status, size = _GONE, 0

        async def noting(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                size += len(message.get("body", b""))
            await send(message)

        self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, noting)
        except ClientDisconnect:
            # it went away in the middle of its request, and nothing was done
            status = _GONE
        except Exception:
            status = 500
            raise
        finally:
            self._metrics.in_flight.dec()
            self._note(scope, status, size, time.perf_counter() - began)

    def _note(self, scope: Scope, status: int, size: int, seconds: float) -> None:
        # the template of the path, as paths themselves are without number; or what a route calls itself instead
        route = scope.get("keepstate.route") or getattr(scope.get("route"), "path", None) or "(none)"
        method = scope["method"] if scope["method"] in _METHODS else "(other)"
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)
        if access.isEnabledFor(logging.INFO):
            caller = scope.get("keepstate.caller")
            access.info(
                json.dumps(
                    {
                        "at": to_datetime(self._clock()).isoformat(timespec="milliseconds"),
                        "method": scope["method"],
                        "path": scope["path"],
                        "status": status,
                        "ms": round(seconds * 1000, 2),
                        "bytes": size,
                        "client": scope["client"][0] if scope.get("client") else None,
                        "token": caller.name if caller else None,
                    },
                    ensure_ascii=True,
                )
            )
