"""An answer as it comes in (RFC 9112): taken apart strictly, since half an answer must never be taken for a whole one."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9]\d\d)( .*)?")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(;.*)?")
_LONGEST_LINE = 65_536
_MOST_HEADERS = 200
_PIECE = 262_144
_MOST_DIGITS = 18
# bytes a second: what comes no slower may take its time, and a byte now and then may not
_SLOWEST = 50_000

LARGEST_ANSWER = 256 * 1024 * 1024
"""Bytes of an answer, packed or unpacked, that are taken in: sixteen values of the largest size."""
_WITHOUT_BODY = frozenset({204, 304})


@dataclass(frozen=True)
class Answer:
    """A server's answer, read to its end. The names of headers are in small letters.

    ``goes_on``: its connection serves for another request.
    """

    status: int
    headers: dict[str, str]
    content: bytes
    goes_on: bool


class AnswerTooLargeError(HTTPException):
    """An answer of more bytes than are taken in. Asking again would not make it smaller."""

    def __init__(self) -> None:
        super().__init__(f"an answer of more than {LARGEST_ANSWER:,} bytes; read fewer keys at once")


def read_answer(sock: socket.socket) -> Answer:
    """Return the next answer. Raises ``HTTPException`` for one that breaks off or is none, and ``OSError``.

    The socket's timeout is for each wait and, but for what a slow network takes longer, for the whole answer.
    """
    incoming = _Incoming(sock)
    status, headers = _head(incoming)
    while status < 200:  # noqa: PLR2004 - HTTP's own number
        status, headers = _head(incoming)
    length = headers.get("content-length")
    ends = True
    if status in _WITHOUT_BODY:
        content = b""
    elif "transfer-encoding" in headers:
        content = _chunks(incoming, headers["transfer-encoding"])
    elif length is not None:
        if not length.isdecimal() or len(length) > _MOST_DIGITS:
            raise HTTPException(f"an answer of the length {length!r:.40}")
        content = incoming.exactly(int(length), LARGEST_ANSWER)
    else:
        content, ends = incoming.rest(), False
    # what comes unasked after an answer is no answer to anything
    goes_on = ends and not incoming.has_more and headers.get("connection", "").lower() != "close"
    return Answer(status, headers, content, goes_on)


def _head(incoming: _Incoming) -> tuple[int, dict[str, str]]:
    first = _STATUS.fullmatch(incoming.line())
    if first is None:
        raise HTTPException("what came is no answer of HTTP/1.1")
    headers: dict[str, str] = {}
    while line := incoming.line():
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or len(headers) >= _MOST_HEADERS:
            raise HTTPException("an answer with headers that are none")
        headers[name.lower()] = value.strip(" \t")
    return int(first[1]), headers


def _chunks(incoming: _Incoming, coding: str) -> bytes:
    if coding.lower() != "chunked":
        raise HTTPException(f"an answer in the coding {coding!r:.40}")
    found = []
    left = LARGEST_ANSWER
    while True:
        size = _CHUNK.fullmatch(incoming.line())
        if size is None:
            raise HTTPException("an answer whose pieces have no size")
        if not int(size[1], 16):
            break
        found.append(incoming.exactly(int(size[1], 16), left))
        left -= len(found[-1])
        if incoming.line():
            raise HTTPException("an answer whose pieces are longer than they say")
    while incoming.line():
        # nobody needs what is said at the end
        continue
    return b"".join(found)


class _Incoming:
    """What a socket receives, by line and by length."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = b""
        self._at = 0
        self._wait = sock.gettimeout() or 0.0
        self._deadline = time.monotonic() + self._wait
        self._waited = False

    @property
    def has_more(self) -> bool:
        """Whether more came than was asked for."""
        return self._at < len(self._data)

    def line(self) -> bytes:
        """Return the next line, without its end."""
        while (end := self._data.find(b"\n", self._at)) < 0:
            if len(self._data) - self._at > _LONGEST_LINE:
                raise HTTPException("an answer with a line that does not end")
            self._data = self._data[self._at :] + self._some(_LONGEST_LINE)
            self._at = 0
        line = self._data[self._at : end]
        self._at = end + 1
        return line.removesuffix(b"\r")

    def exactly(self, size: int, most: int) -> bytes:
        """Return as many bytes, which may be ``most``."""
        if size > most:
            raise AnswerTooLargeError
        found = [self._data[self._at : self._at + size]]
        self._at += len(found[0])
        missing = size - len(found[0])
        while missing:
            found.append(self._some(min(missing, _PIECE)))
            missing -= len(found[-1])
        return b"".join(found)

    def rest(self) -> bytes:
        """Return all that comes until the other side is done."""
        found = [self._data[self._at :]]
        left = LARGEST_ANSWER - len(found[0])
        while piece := self._receive(_PIECE):
            found.append(piece)
            left -= len(piece)
            if left < 0:
                raise AnswerTooLargeError
        return b"".join(found)

    def _some(self, most: int) -> bytes:
        piece = self._receive(most)
        if not piece:
            raise HTTPException("an answer that was cut short")
        return piece

    def _receive(self, most: int) -> bytes:
        if self._waited:
            # small answers come in one piece, for which the socket's own timeout does
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the answer did not come in time")
            self._sock.settimeout(min(left, self._wait))
        self._waited = True
        piece = self._sock.recv(most)
        self._deadline += len(piece) / _SLOWEST
        return piece
