"""HTTP connections that nobody can hold open at leisure: uvicorn's, with limits that it lacks."""

from __future__ import annotations

import array
import contextlib
import fcntl
import termios
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from keepstate.server.work import client_gone

if TYPE_CHECKING:
    import asyncio

HEAD_SECONDS = 10.0
"""The longest time from the beginning of a request, or of a connection, to the end of its headers."""
HEAD_BYTES = 65_536
"""The most that a request's line and headers may have."""
STALLED_SECONDS = 30.0
"""The longest time for which a client may read nothing of an answer, once the buffers are full."""
_LINGER_SECONDS = 2.0


class CarefulProtocol(HttpToolsProtocol):
    """Ends a connection whose headers come too slowly or are too large, or whose answer is not read."""

    head_seconds = HEAD_SECONDS
    stalled_seconds = STALLED_SECONDS
    _head_timer: asyncio.TimerHandle | None = None
    _stalled_timer: asyncio.TimerHandle | None = None
    _ending_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _unseen_bytes = 0
    _unread_bytes = 0

    # --------------------------------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, but not for ever."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        for timer in (self._head_timer, self._stalled_timer, self._ending_timer):
            _cancel(timer)
        self._head_timer = self._stalled_timer = self._ending_timer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take data, unless there is no end in sight of what is no body: headers, trailers, sizes of chunks."""
        self._unseen_bytes += len(data)
        super().data_received(data)
        if self._unseen_bytes > HEAD_BYTES:
            self._refuse("The headers are too large.")

    # ------------------------------------------------------------------------------------------ the request

    def on_message_begin(self) -> None:
        """Begin a request, whose headers have to end in time."""
        super().on_message_begin()
        self._await_head()

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request's line."""
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. What comes behind the body is counted, and nobody gets it."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > HEAD_BYTES:
            self._refuse("The headers are too large.")
        elif self._head_timer is not None:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Answer the request; its body has limits of its own."""
        _cancel(self._head_timer)
        self._head_timer = None
        self._unseen_bytes = 0
        if self.transport.is_closing():
            return
        upgrade = self.parser.should_upgrade()
        if upgrade and self.parser.get_method() not in {b"GET", b"HEAD"}:
            # the parser takes what follows for the other protocol, and the body with it
            self._refuse("This server speaks HTTP/1.1 only.")
            return
        # the request is answered in a copy of this context
        client_gone.set(self.transport.is_closing)
        super().on_headers_complete()
        if upgrade:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._unseen_bytes = 0
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request; an answer that came before the end of its body has the next request behind it."""
        self._unseen_bytes = 0
        _cancel(self._ending_timer)
        self._ending_timer = None
        if not self.transport.is_closing():
            super().on_message_complete()

    # ------------------------------------------------------------------------------------------- the answer

    def on_response_complete(self) -> None:
        """Go on to the next request; behind a body that was not waited for, there is none."""
        super().on_response_complete()
        if self.cycle.more_body and not self.transport.is_closing():
            # a moment, in which the client can read the answer: closing throws away what it still sends, and may reset
            self._ending_timer = self.loop.call_later(_LINGER_SECONDS, self._abort)

    def pause_writing(self) -> None:
        """Wait for the client to read, but not for ever."""
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        """Go on writing."""
        _cancel(self._stalled_timer)
        self._stalled_timer = None
        super().resume_writing()

    # ------------------------------------------------------------------------------------------------ limits

    def _await_head(self) -> None:
        self._head_bytes = self._unseen_bytes = 0
        _cancel(self._head_timer)
        self._head_timer = self.loop.call_later(self.head_seconds, self._abort)

    def _await_reading(self) -> None:
        self._unread_bytes = self._unread()
        _cancel(self._stalled_timer)
        self._stalled_timer = self.loop.call_later(self.stalled_seconds, self._stalled)

    def _stalled(self) -> None:
        # a slow reader is one
        if self._unread() < self._unread_bytes:
            self._await_reading()
        else:
            self._abort()

    def _unread(self) -> int:
        """Return how much of the answer the client has not got: here, and in the system's own buffer, which may be large."""
        sent = array.array("i", [0])
        with contextlib.suppress(OSError, AttributeError):
            fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, sent)
        return self.transport.get_write_buffer_size() + sent[0]

    def _refuse(self, message: str) -> None:
        if self.transport.is_closing():
            return
        answering = getattr(self, "cycle", None)
        if answering is None or answering.response_complete:
            self.send_400_response(message)
        else:
            # an answer is on its way, and can't be followed by another
            self._abort()

    def _abort(self) -> None:
        self.transport.abort()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
