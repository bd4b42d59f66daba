"""Connections to one server: kept open, and each used by one request at a time.

The standard library opens them: TLS, tunnels through proxies. What is sent over them is put together here: the head is nearly the
same each time, and goes out together with the body, in one piece. HTTPX and `http.client` make request, head and answer
anew as objects for each, and take as long for that as the server for the whole answer.
"""

from __future__ import annotations

import base64
import select
import ssl
import time
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote, urlsplit

from keepstate.backends.http.incoming import LARGEST_ANSWER, AnswerTooLargeError, read_answer
from keepstate.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keepstate.backends.http.incoming import Answer
    from keepstate.backends.http.servers import Server

# fewer seconds than a keepstate server keeps them
_KEPT_SECONDS = 60.0
_KEPT_CONNECTIONS = 32
_TO_CONNECT = 5.0
_GZIP = 16 + zlib.MAX_WBITS


class ExchangeError(Exception):
    """A request or its answer was lost on the way; the server may have done what was asked. The cause says how."""


@dataclass(frozen=True)
class _Kept:
    connection: HTTPConnection
    since: float


class Connections:
    """The connections to a server. Threads share them, and none ever waits for another's: there is no lock.

    So a finaliser that runs in the midst of a request, and sends one itself, gets a connection of its own.
    """

    def __init__(self, server: Server, headers: Mapping[str, str]) -> None:
        """Connect at the first request. ``headers`` are sent with each; they are trusted to have no line breaks."""
        self._server = server
        parts = urlsplit(server.address)
        self._encrypted = server.encrypted
        self._host = _ascii(parts.hostname or "")
        self._port = parts.port or (443 if server.encrypted else 80)
        shown = f"[{self._host}]" if ":" in self._host else self._host
        headers = {"Host": shown if parts.port is None else f"{shown}:{parts.port}", **headers}
        self._proxy = None if server.proxy is None else _Proxy(server.proxy)
        # a proxy sees what it passes on, unless that is encrypted
        self._start = "" if self._proxy is None or server.encrypted else server.address
        if self._start and self._proxy is not None:
            headers.update(self._proxy.headers)
        self._head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._idle: list[_Kept] = []
        self._left_behind: list[list[_Kept]] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"<Connections to {self._server.address}>"

    def post(self, path: str, body: bytes, more: str, timeout: float) -> Answer:
        """Send a request, and return the answer, read to its end. ``more`` are lines for its head.

        Sending it may take ``timeout`` seconds, and so may the answer, unless it is large and keeps coming. Raises
        ``ExchangeError`` where it did not come to an answer, and ``ConfigurationError`` for a certificate that is not to be
        trusted.
        """
        head = f"POST {self._start}{path} HTTP/1.1\r\n{self._head}{more}Content-Length: {len(body)}\r\n\r\n"
        connection: HTTPConnection | None = None
        try:
            connection = self._kept() or self._opened(min(timeout, _TO_CONNECT))
            sock = connection.sock
            sock.settimeout(timeout)
            sock.sendall(head.encode("ascii") + body)
            answer = read_answer(sock)
        except BaseException as exc:
            if connection is not None:
                # whatever is still on its way must not be taken for the answer to another request
                connection.close()
            if isinstance(exc, (OSError, HTTPException, UnicodeError)):
                self._lost(exc)
            raise
        if answer.goes_on:
            self._keep(connection)
        else:
            connection.close()
        return _unpacked(answer)

    # ------------------------------------------------------------------------------------------- connections

    def _kept(self) -> HTTPConnection | None:
        """Return a connection that was used before, and that the server has not closed since."""
        oldest = time.monotonic() - _KEPT_SECONDS
        while True:
            try:
                kept = self._idle.pop()
            except IndexError:
                return None
            # nothing was asked, so what there is to read is the end, or nothing that anybody should believe
            if kept.since > oldest and not _is_readable(kept.connection):
                return kept.connection
            kept.connection.close()

    def _keep(self, connection: HTTPConnection) -> None:
        if len(self._idle) < _KEPT_CONNECTIONS:
            self._idle.append(_Kept(connection, time.monotonic()))
        else:
            connection.close()
        if self._closed:
            self.close()

    def _opened(self, timeout: float) -> HTTPConnection:
        host, port = (self._host, self._port) if self._proxy is None else (self._proxy.host, self._proxy.port)
        connection = (
            HTTPSConnection(host, port, timeout=timeout, context=self._trust)
            if self._encrypted
            else HTTPConnection(host, port, timeout=timeout)
        )
        if self._proxy is not None and self._encrypted:
            connection.set_tunnel(self._host, self._port, self._proxy.headers)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        """Whom to trust. Made once: loading the certificates takes longer than many requests."""
        return ssl.create_default_context()

    def close(self) -> None:
        """Close the connections; those in use, when they are not any more."""
        self._closed = True
        while self._idle:
            self._idle.pop().connection.close()

    def after_fork_in_child(self) -> None:
        """Leave the parent's connections to the parent: not even closed, as that could say goodbye in its name."""
        self._left_behind.append(self._idle)
        self._idle = []

    # ----------------------------------------------------------------------------------------------- trouble

    def _lost(self, exc: BaseException) -> NoReturn:
        if isinstance(exc, ssl.SSLCertVerificationError):
            raise ConfigurationError(
                f"the certificate of {self._server.address} is not to be trusted: {exc.verify_message}; if your own authority "
                "signed it, set SSL_CERT_FILE to its certificate"
            ) from exc
        said = str(exc)
        raise ExchangeError(f"{type(exc).__name__}: {said}" if said else type(exc).__name__) from exc


class _Proxy:
    """A proxy on the way. Its address may hold a password, which no message shows."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if parts.scheme.lower() != "http" or not host:
            raise ConfigurationError(
                "the proxy that the environment names for the keepstate server can't be used: keepstate takes "
                "http://HOST:PORT; name another one, or except the server with NO_PROXY"
            )
        self.host, self.port = _ascii(host), port or 80
        self.headers: dict[str, str] = {}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self.headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair).decode('ascii')}"


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise ConfigurationError(f"{host!r:.80} is no name that a host can have") from None


def _is_readable(connection: HTTPConnection) -> bool:
    sock = connection.sock
    if not hasattr(select, "poll"):
        return bool(select.select([sock], (), (), 0)[0])
    # takes sockets of any number, where select knows the first thousand
    asked = select.poll()
    asked.register(sock, select.POLLIN)
    return bool(asked.poll(0))


def _unpacked(answer: Answer) -> Answer:
    if answer.headers.get("content-encoding", "").lower() != "gzip":
        return answer
    try:
        unpacker = zlib.decompressobj(_GZIP)
        # a few bytes may stand for gigabytes: no more is unpacked than is taken
        content = unpacker.decompress(answer.content, LARGEST_ANSWER + 1)
    except zlib.error as exc:
        raise ExchangeError(f"the answer can't be unpacked: {exc}") from exc
    if len(content) > LARGEST_ANSWER:
        large = AnswerTooLargeError()
        raise ExchangeError(str(large)) from large
    if not unpacker.eof:
        raise ExchangeError("an answer that was cut short")
    return replace(answer, content=content)
