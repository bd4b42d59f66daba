"""TCP proxies on loopback between a client and a database server, that count messages and cut connections.

They understand as much of the protocol as that takes. PostgreSQL's (its manual, 55.7): every message but the first has a type,
and its length. MySQL's: a packet has a length and a number, and what a client begins to say has the number 0. Neither is
encrypted: a client that would like that is told that the server can't. A cut hits both sides at once, as a network that goes
away does.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING

from typing_extensions import Self

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "127.0.0.1"
_LENGTH = struct.Struct("!I")

# Of a client: a simple query, and the end of an extended one. The server answers each with "ready for query".
ROUND_TRIPS = {b"Q", b"S"}
READY = b"Z"
# What a client of MySQL's says at the end; nobody answers.
QUIT = b"\x01"
# What the greeting of MySQL's servers begins with (a refusal doesn't), and what says there that it can encrypt.
GREETS = 10
ENCRYPTION = 0x08


class Proxy:
    """Relays connections to a server. ``on_answer`` sees each answer before the client does, and may cut it off."""

    def __init__(self, port: int) -> None:
        """Relay to ``port``; `port` of the proxy itself is free to connect to at once."""
        self._target = port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self.round_trips = 0
        self.connections = 0
        self.refusing = False
        self.on_answer: Callable[[int, bytes], bool] = lambda number, statement: False
        """Gets the number of the round trip, and what the client sent; true cuts the connection instead of answering."""
        self.on_question: Callable[[int, bytes], bool] = lambda number, statement: False
        """The same; true cuts the connection as soon as the server has got the question."""
        self._start(self._accept)

    def url(self, url: str) -> str:
        """Return a URL that leads through the proxy."""
        return url.replace(f":{self._target}/", f":{self.port}/")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in list(self._threads):
            thread.join(10)

    def cut(self) -> None:
        """Cut every connection."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _close(*pair)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.refusing:
                client.close()
                continue
            try:
                server = socket.create_connection((HOST, self._target))
            except OSError:
                client.close()
                continue
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.append((client, server))
            link = _Link(client, server)
            self._start(self._to_server, link)
            self._start(self._to_client, link)

    def _to_server(self, link: _Link) -> None:
        with contextlib.suppress(OSError, EOFError):
            link.server.sendall(_startup(link.client))
            while True:
                kind, message = _message(link.client)
                link.said.append(message)
                if kind in ROUND_TRIPS:
                    with self._lock:
                        self.round_trips += 1
                        number, statement = self.round_trips, b"".join(link.said)
                    link.asked.append((number, statement))
                    link.said.clear()
                    # before the answer may be there, which then goes nowhere
                    link.cut = self.on_question(number, statement)
                    link.server.sendall(message)
                    if link.cut:
                        break
                else:
                    link.server.sendall(message)
        _close(link.client, link.server)

    def _to_client(self, link: _Link) -> None:
        answer = b""
        with contextlib.suppress(OSError):
            try:
                while True:
                    kind, message = _message(link.server)
                    if link.cut:
                        answer = b""
                        break
                    answer += message
                    if kind == READY and link.asked and self.on_answer(*link.asked.pop(0)):
                        answer = b""
                        break
                    if kind == READY or not link.asked:
                        link.client.sendall(answer)
                        answer = b""
            except EOFError:
                pass
            # a server that ends a connection says why
            link.client.sendall(answer)
        _close(link.client, link.server)


class MysqlProxy(Proxy):
    """The same for MySQL, whose clients wait for each answer."""

    def _to_server(self, link: _Link) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = _exactly(link.client, 4)
                message = head + _exactly(link.client, int.from_bytes(head[:3], "little"))
                if head[3] == 0 and message[4:5] != QUIT:
                    with self._lock:
                        self.round_trips += 1
                        number = self.round_trips
                    link.asked.append((number, message))
                    link.cut = self.on_question(number, message)
                    link.server.sendall(message)
                    if link.cut:
                        break
                else:
                    link.server.sendall(message)
        _close(link.client, link.server)

    def _to_client(self, link: _Link) -> None:
        with contextlib.suppress(OSError, EOFError):
            link.client.sendall(_greeting(link.server))
            while part := link.server.recv(65536):
                # the first of an answer: what was asked for is done
                if link.cut or (link.asked and self.on_answer(*link.asked.pop(0))):
                    break
                link.client.sendall(part)
        _close(link.client, link.server)


class _Link:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.said: list[bytes] = []
        self.asked: list[tuple[int, bytes]] = []
        self.cut = False


def _startup(client: socket.socket) -> bytes:
    """Read the messages before the first one with a type; whoever asks for encryption is told that there is none."""
    while True:
        head = _exactly(client, 8)
        length, code = struct.unpack("!II", head)
        if code in {80877103, 80877104}:
            client.sendall(b"N")
            continue
        return head + _exactly(client, length - 8)


def _greeting(server: socket.socket) -> bytes:
    """Read what a MySQL server says first, and take the offer of encryption out of it."""
    head = _exactly(server, 4)
    greeting = bytearray(head + _exactly(server, int.from_bytes(head[:3], "little")))
    if greeting[4] == GREETS:
        # behind its version come the number of the connection, eight bytes and a zero, and then what it can
        greeting[greeting.index(0, 5) + 1 + 4 + 8 + 1 + 1] &= ~ENCRYPTION
    return bytes(greeting)


def _message(source: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(source, 5)
    (length,) = _LENGTH.unpack(head[1:])
    return head[:1], head + _exactly(source, length - 4)


def _exactly(source: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = source.recv(count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return parts


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
