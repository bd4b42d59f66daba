"""Clients that send too much, too slowly, or nothing that makes sense."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import closing
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from keepstate.server.limits import BodyLimits
from keepstate.server.protocol import CarefulProtocol
from tests.support.served import running

if TYPE_CHECKING:
    from tests.support.served import Served


def connected(url: str) -> closing[socket.socket]:
    """Connect without any library that means well."""
    place = urlsplit(url)
    found = socket.create_connection((place.hostname, place.port), timeout=20)
    return closing(found)


def everything(connection: socket.socket) -> bytes:
    """Read until the server ends the connection."""
    found = b""
    try:
        while piece := connection.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def status_of(connection: socket.socket) -> int:
    """Read one answer as a whole, and return its status."""
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with how long the body is."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = await Request(scope, receive).body()
    await PlainTextResponse(str(len(body)))(scope, receive, send)


def limited(**seconds: float) -> BodyLimits:
    """Return `echo`, behind limits of 10 bytes, and 100 below `/large/`."""
    return BodyLimits(echo, {"/large/": 100, "": 10}, **seconds)


@pytest.mark.parametrize(("path", "bound"), [("/", 10), ("/large/x", 100), ("/larg", 10)])
def test_a_body_has_a_bound_by_path(path: str, bound: int) -> None:
    """One that is declared too large is refused unread, and one without a length while it comes."""
    with running(limited()) as url, connected(url) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {bound}\r\n\r\n".encode())
        connection.sendall(b"x" * bound)
        assert status_of(connection) == 200
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {bound + 1}\r\n\r\n".encode())
        answer = everything(connection)
        assert answer.startswith(b"HTTP/1.1 413")
        assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {
            "detail": f"a body here may have up to {bound} bytes"
        }
        with connected(url) as other:
            other.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            other.sendall(b"%x\r\n%s\r\n" % (bound, b"x" * bound) + b"1\r\nx\r\n")
            assert everything(other).startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_come_is_given_up() -> None:
    """A connection that was opened to block others blocks nobody for long."""
    with running(limited(piece_seconds=0.2)) as url, connected(url) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nxx")
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"the body did not come in time" in answer


def test_a_body_that_drips_is_given_up() -> None:
    """A byte now and then does not keep it."""
    with running(limited(piece_seconds=5, body_seconds=0.5)) as url, connected(url) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
        connection.settimeout(0.05)
        answer, began = b"", time.monotonic()
        while not answer and time.monotonic() - began < 10:
            try:
                # the server waits for ten bytes, and gets nine at most
                if time.monotonic() - began < 0.4:
                    connection.sendall(b"x")
                answer = connection.recv(1000)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that waits less long than usual."""
    monkeypatch.setattr(CarefulProtocol, "head_seconds", 0.3)
    monkeypatch.setattr(CarefulProtocol, "stalled_seconds", 0.3)


@pytest.mark.parametrize("head", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_headers_that_do_not_come_are_given_up(hasty: None, head: bytes) -> None:
    """Nor does a connection wait for ever for its first request."""
    with running(echo) as url, connected(url) as connection:
        connection.sendall(head)
        assert everything(connection) == b""


def test_a_second_request_has_to_end_too(hasty: None) -> None:
    """On a connection that was used well before."""
    with running(echo) as url, connected(url) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status_of(connection) == 200
        connection.sendall(b"GET / HT")
        assert everything(connection) == b""


def test_a_kept_connection_may_rest(hasty: None) -> None:
    """Between two requests the limits of a request don't count."""
    with running(echo) as url, connected(url) as connection:
        for _ in range(2):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert status_of(connection) == 200
            connection.settimeout(0.6)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            connection.settimeout(20)


def test_headers_have_a_size() -> None:
    """Endless ones end."""
    with running(echo) as url, connected(url) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        try:
            for _ in range(200):
                connection.sendall(b"X-More: " + b"x" * 1000 + b"\r\n")
        except OSError:
            pass
        answer = everything(connection)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
        with connected(url) as other:
            other.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert status_of(other) == 200


def test_an_answer_that_nobody_reads_is_given_up(hasty: None) -> None:
    """The connection is cut, so it holds neither memory nor a place."""

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await echo(scope, receive, send)
            return

        async def pieces() -> Any:
            while True:
                yield b"x" * 65_536
                await asyncio.sleep(0)

        await StreamingResponse(pieces())(scope, receive, send)

    with running(endless) as url, connected(url) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        # reading nothing for longer than is allowed, then whatever was on its way; the answer had no end, this has
        time.sleep(1)
        found = everything(connection)
    assert found.startswith(b"HTTP/1.1 200")
    assert not found.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /%ff%fe%00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nHost: x\r\nCookie: keepstate_session=\xff\xfe; a=b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999999999999999\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nHost: x\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(served: Served, http: httpx.Client, raw: bytes) -> None:
    """With a status below 500, or by ending the connection; and the server goes on."""
    with connected(served.url) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        answer = everything(connection)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer[:200]
    assert http.get("/health/live").status_code == 200


def test_trailers_have_no_endless_size(served: Served, http: httpx.Client) -> None:
    """What comes behind a body is thrown away, and not for ever: neither in many lines nor in one."""
    for line in (b"x: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", b"a" * 50):
        with connected(served.url) as connection:
            connection.sendall(b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
            with pytest.raises(OSError, match=r"Broken pipe|reset"):
                connection.sendall(line * 2_000_000)
    assert http.get("/health/live").status_code == 200


def test_a_body_that_nobody_waits_for_ends_the_connection(served: Served) -> None:
    """An answer that came before the body keeps nobody's place for it."""
    with connected(served.url) as connection:
        connection.sendall(b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
        assert status_of(connection) == 404
        began = time.monotonic()
        everything(connection)
        assert time.monotonic() - began < 10


def test_a_slow_reader_gets_all(hasty: None) -> None:
    """However long it takes, as long as it reads."""
    size = 12_000_000

    async def large(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await echo(scope, receive, send)
        else:
            await PlainTextResponse("x" * size)(scope, receive, send)

    with running(large) as url, connected(url) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        found = 0
        while piece := connection.recv(1_000_000):
            found += len(piece)
            # slower than the server's patience as a whole
            time.sleep(0.05)
    assert found > size


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n", b"200"),
    ],
)
def test_other_protocols_are_not_spoken(head: bytes, status: bytes) -> None:
    """Who offers one is answered in HTTP/1.1, and the connection ends; with a body that can't be told apart, not at all."""
    with running(echo) as url, connected(url) as connection:
        connection.sendall(head + b"Host: x\r\n\r\nok")
        assert everything(connection).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("path", ["/login", "/dags/d/runs/r/tasks/t/entries"])
def test_who_goes_away_is_no_fault_of_ours(
    served: Served, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """A client that ends in the middle of its body is noted as gone, without a trace."""
    caplog.set_level("INFO", "keepstate.access")
    with connected(served.url) as connection:
        token = served.headers()["Authorization"]
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: same-origin\r\n".encode())
        connection.sendall(f"Authorization: {token}\r\n".encode())
        connection.sendall(b"Content-Length: 100\r\n\r\nhalf")
        time.sleep(0.1)
    for _ in range(500):
        if f'"path": "{path}"' in caplog.text:
            break
        time.sleep(0.01)
    assert '"status": 499' in caplog.text
    assert "Traceback" not in caplog.text


def test_a_body_comes_through_a_middleware_of_somebody_else() -> None:
    """One that waits in a task group, as those of a host's may: waiting for the body must not be broken off there."""

    async def echo(request: Request) -> Response:
        return Response(await request.body())

    async def hand_on(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    app = Starlette(
        routes=[Route("/", echo, methods=["POST"])],
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=hand_on),
            Middleware(BodyLimits, bounds={"": 100}),
        ],
    )

    async def post() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://host"
        ) as client:
            return await client.post("/", content=b"a form")

    answer = asyncio.run(post())
    assert (answer.status_code, answer.content) == (200, b"a form")
