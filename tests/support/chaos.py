"""A proxy between HTTP clients and a server on loopback, that loses, cuts, delays and doubles what passes, by a seed.

It knows messages: a request is lost before the server sees it, or its answer after the server has given it, which are
different things to a client that changes something.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from typing_extensions import Self

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "127.0.0.1"

FATES = (
    "request lost",
    "answer lost",
    "answer cut",
    "request late",
    "answer late",
    "doubled at once",
    "doubled before",
    "doubled long after",
    "reset",
)
"""What may become of a request, besides passing."""


class Chaos:
    """Relays requests to a server. ``trouble`` is the share of those that meet one of ``FATES``."""

    def __init__(self, url: str, *, seed: int = 0, trouble: float = 0.0) -> None:
        """Relay to the server at ``url``, which stays as it is; `url` of the proxy is free to connect to at once."""
        self._target = (urlsplit(url).hostname, urlsplit(url).port)
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self.url = f"http://{HOST}:{self._listener.getsockname()[1]}"
        self.trouble = trouble
        self.met: Counter[str] = Counter()
        self.choose: Callable[[bytes], str] = self._choose
        """Gets a request, and returns its fate; tests may replace it."""
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(20)
            assert not thread.is_alive()

    def _choose(self, request: bytes) -> str:
        with self._lock:
            return self._random.choice(FATES) if self._random.random() < self.trouble else "passed"

    def _start(self, target: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._relay, client)

    def _relay(self, client: socket.socket) -> None:
        with self._lock:
            self._open.add(client)
        try:
            with contextlib.suppress(OSError, EOFError), self._connect() as server:
                while self._relay_one(client, server):
                    pass
        finally:
            with self._lock:
                self._open.discard(client)
            client.close()

    def _relay_one(self, client: socket.socket, server: socket.socket) -> bool:
        """Relay one request; return whether the connection goes on."""
        request = _message(client)
        fate = self.choose(request)
        with self._lock:
            self.met[fate] += 1
            pause = self._random.uniform(0, 0.05)
            share = self._random.random()
        if fate == "request lost":
            return False
        if fate == "reset":
            _reset(client)
            return False
        if fate == "request late":
            time.sleep(pause)
        if fate == "doubled before":
            # the one that the client waits for is the second
            self._ask_apart(request)
        doubled = self._start(self._ask_apart, request) if fate == "doubled at once" else None
        server.sendall(request)
        answer = _message(server)
        if doubled is not None:
            doubled.join()
        if fate == "doubled long after":
            self._start(self._ask_apart, request, pause * 2)
        if fate == "answer late":
            time.sleep(pause)
        if fate == "answer lost":
            return False
        if fate == "answer cut":
            client.sendall(answer[: int(len(answer) * share)])
            return False
        client.sendall(answer)
        return True

    def _ask_apart(self, request: bytes, after: float = 0.0) -> None:
        """Send a request on a connection of its own, whose answer nobody gets."""
        time.sleep(after)
        with contextlib.suppress(OSError, EOFError), self._connect() as server:
            server.sendall(request)
            _message(server)

    def _connect(self) -> socket.socket:
        server = socket.create_connection(self._target, timeout=30)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server


def _message(source: socket.socket) -> bytes:
    """Return one HTTP message: its head, and as much of a body as that says."""
    read = b""
    while b"\r\n\r\n" not in read:
        read += _some(source)
    head, _, body = read.partition(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    )
    while len(body) < length:
        body += _some(source)
    return head + b"\r\n\r\n" + body


def _some(source: socket.socket) -> bytes:
    part = source.recv(65536)
    if not part:
        raise EOFError
    return part


def _reset(client: socket.socket) -> None:
    """Have the other side see a connection reset, not an end."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
