"""What a client may make the server wait for and hold: ASGI middleware around everything else."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from keepstate.server.below import path_below

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PIECE_SECONDS = 10.0
"""The longest pause between two pieces of a body."""
BODY_SECONDS = 60.0
"""The longest time for a body as a whole: a piece now and then must not hold a place for ever."""


class TooLargeError(HTTPException):
    """The body is larger than this path takes."""

    def __init__(self, bound: int) -> None:
        super().__init__(413, f"a body here may have up to {bound} bytes")


class TooSlowError(HTTPException):
    """The body did not come in time."""

    def __init__(self) -> None:
        super().__init__(408, "the body did not come in time")


async def body_within(request: Request, bound: int) -> bytes:
    """Return the body. Raises ``TooLargeError`` for more than ``bound`` bytes, and reads no more than these."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > bound:
        raise TooLargeError(bound)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > bound:
            raise TooLargeError(bound)
        parts.append(part)
    return b"".join(parts)


class BodyLimits:
    """Refuses bodies that are too large (413) or come too slowly (408), before anything is done with them.

    ``bounds`` are bytes by the beginning of the path, the longest that fits counting; ``""`` is all other paths.
    ``outermost``: nothing stands between this and the server that would mind if waiting for a message is broken off.
    """

    def __init__(
        self,
        app: ASGIApp,
        bounds: Mapping[str, int],
        *,
        piece_seconds: float = PIECE_SECONDS,
        body_seconds: float = BODY_SECONDS,
        outermost: bool = False,
    ) -> None:
        self._app = app
        self._outermost = outermost
        self._bounds = sorted(bounds.items(), key=lambda pair: -len(pair[0]))
        self._piece_seconds = piece_seconds
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = path_below(scope)
        bound = next(bound for start, bound in self._bounds if path.startswith(start))
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > bound:
            await _refuse(send, TooLargeError(bound))
            return
        body = _Body(receive, bound, self._piece_seconds, self._body_seconds, outermost=self._outermost)
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, body.receive, watched)
        except (TooLargeError, TooSlowError) as exc:
            if started:
                raise
            await _refuse(send, exc)


class _Body:
    """Hands a body on, piece by piece, while it keeps within its limits."""

    def __init__(
        self, receive: Receive, bound: int, piece_seconds: float, body_seconds: float, *, outermost: bool
    ) -> None:
        self._receive = receive
        self._outermost = outermost
        self._bound = bound
        self._piece_seconds = piece_seconds
        self._body_seconds = body_seconds
        self._deadline: float | None = None
        self._size = 0
        self._done = False

    async def receive(self) -> Message:
        if self._done:
            # what comes now is the end of the connection, which may take its time
            return await self._receive()
        message = _there_already(self._receive) if self._outermost else None
        if message is None:
            message = await self._awaited()
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._done = not message.get("more_body", False)
            if self._size > self._bound:
                raise TooLargeError(self._bound)
        else:
            self._done = True
        return message

    async def _awaited(self) -> Message:
        loop = asyncio.get_running_loop()
        self._deadline = self._deadline or loop.time() + self._body_seconds
        wait = min(self._piece_seconds, self._deadline - loop.time())
        try:
            return await asyncio.wait_for(self._receive(), wait)
        except (TimeoutError, asyncio.TimeoutError):
            raise TooSlowError from None


def _there_already(receive: Receive) -> Message | None:
    """Return the message that is there, as most bodies are: waiting with a time limit takes a task of its own."""
    coming = receive().__await__()
    try:
        next(coming)
    except StopIteration as there:
        message: Message = there.value
        return message
    # nothing was taken, and asking anew waits for the same
    coming.close()
    return None


async def _refuse(send: Send, exc: HTTPException) -> None:
    body = json.dumps({"detail": exc.detail}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
        # what is left of the body is not read
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": exc.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
