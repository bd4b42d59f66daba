"""HTTP connections that nobody can hold open at leisure: uvicorn's, with limits that it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

HEAD_SECONDS = 10.0
"""The longest time from the beginning of a request, or of a connection, to the end of its headers."""
HEAD_BYTES = 65_536
"""The most that a request's line and headers may have."""
STALLED_SECONDS = 30.0
"""The longest time for which a client may leave an answer unread, once the buffers are full."""


class CarefulProtocol(HttpToolsProtocol):
    """Ends a connection whose headers come too slowly, are too large, or whose answer is not read."""

    head_seconds = HEAD_SECONDS
    stalled_seconds = STALLED_SECONDS
    _head_timer: asyncio.TimerHandle | None = None
    _stalled_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, but not for ever."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        _cancel(self._head_timer)
        self._head_timer = None
        _cancel(self._stalled_timer)
        self._stalled_timer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take data, unless there is no end of the headers in sight."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_timer is not None and self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        """Begin a request, whose headers have to end in time."""
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        """Answer the request; its body has limits of its own."""
        _cancel(self._head_timer)
        self._head_timer = None
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Wait for the client to read, but not for ever."""
        super().pause_writing()
        _cancel(self._stalled_timer)
        self._stalled_timer = self.loop.call_later(self.stalled_seconds, self._abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        _cancel(self._stalled_timer)
        self._stalled_timer = None
        super().resume_writing()

    def _await_head(self) -> None:
        self._head_bytes = 0
        _cancel(self._head_timer)
        self._head_timer = self.loop.call_later(self.head_seconds, self._abort)

    def _abort(self) -> None:
        self.transport.abort()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
