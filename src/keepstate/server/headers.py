"""Headers that every answer has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Pages bring all they need from here, run no inline script, and are framed by nobody.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

_FRAMES = {
    b"content-security-policy": CONTENT_SECURITY_POLICY.encode(),
    b"x-frame-options": b"DENY",
}
_FRAMES_OF_HOST = {
    b"content-security-policy": CONTENT_SECURITY_POLICY.replace(
        "frame-ancestors 'none'", "frame-ancestors 'self'"
    ).encode(),
    b"x-frame-options": b"SAMEORIGIN",
}
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    # state is read anew each time, and is nobody else's; what may be kept says so itself
    b"cache-control": b"no-store",
}


class SecurityHeaders:
    """Adds what makes a browser careful, unless the answer says something else itself.

    ``framed``: pages of the same origin, a host's, may show ours in a frame.
    """

    def __init__(self, app: ASGIApp, *, framed: bool = False) -> None:
        self._app = app
        self._headers = {**_HEADERS, **(_FRAMES_OF_HOST if framed else _FRAMES)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in self._headers.items() if name not in there),
                ]
            await send(message)

        await self._app(scope, receive, with_headers)
