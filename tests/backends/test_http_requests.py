"""What the HTTP backend makes of servers that are slow, strange, old, strict, or not there at all."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import pickle
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typing_extensions import Self

from keepstate.backends.answers import Applied, Reading, StoredEntry
from keepstate.backends.http import backend as http_backend
from keepstate.backends.http import servers
from keepstate.backends.http.channel import LARGEST_BODY
from keepstate.backends.requests import End, Fence
from keepstate.connect import connect
from keepstate.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    ConfigurationError,
    StaleAttemptError,
    StoreVersionError,
    UnsupportedError,
    ValueTooLargeError,
)
from keepstate.scope import Attempt, TaskScope
from keepstate.settings import Settings, shown_url
from keepstate.testing import ManualClock
from keepstate.wire import encode_answer, encode_error
from tests.backends.children import in_child
from tests.backends.stores import task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from keepstate.store import StateStore

SECRET = "kst_0123456789abcdef_secret"
SCOPE = TaskScope("etl", "2026-11-29", "load")
OURS = {"Keepstate-Protocol": "1", "Content-Type": "application/json"}
HTML = {"Content-Type": "text/html"}
PAGE = b"<html>502 Bad Gateway</html>"

Said = tuple[int, dict[str, str], bytes]


def answer(verb: str, value: Any, **headers: str) -> Said:
    """Return a server's answer."""
    body = json.dumps({"answer": encode_answer(verb, value)}).encode()
    return 200, {**OURS, **{name.replace("_", "-"): text for name, text in headers.items()}}, body


def refusal(status: int, error: Exception, **headers: str) -> Said:
    """Return the answer of a server that raised an error."""
    more = {name.replace("_", "-"): text for name, text in headers.items()}
    return status, {**OURS, **more}, json.dumps(encode_error(error)).encode()  # type: ignore[arg-type]


GET = answer("read", Reading(1, 1, (StoredEntry("k", "5", 1, 0, None),)))
SET = answer("apply", Applied(1, 1))


class Scripted:
    """A server that says what it was told to say, in turn; the last thing again and again. It remembers what it heard."""

    def __init__(self, *script: Said | Callable[[Any], None]) -> None:
        self.script = list(script)
        self.heard: list[tuple[str, dict[str, str], Any]] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                scripted.heard.append((self.path, dict(self.headers.items()), json.loads(body)))
                said = scripted.script.pop(0) if len(scripted.script) > 1 else scripted.script[0]
                if callable(said):
                    self.close_connection = True
                    said(self)
                    return
                status, headers, content = said
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def encrypt(self, certificate: Path) -> None:
        """Speak TLS from now on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@contextmanager
def store_at(
    url: str, *, timeout: float = 20, token: str | None = SECRET, **more: Any
) -> Iterator[StateStore]:
    """Open the store behind a server."""
    with connect(url, settings=Settings(token=token, retry_timeout=timeout), **more) as store:
        yield store


def free_port() -> int:
    """Return a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


# ------------------------------------------------------------------------------------------------- opening


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://", "names no host"),
        ("https:", "names no host"),
        ("http://:8484", "names no host"),
        ("http://host:port", "names no host"),
        ("http://host:99999", "names no host"),
        ("http://ho st/", "names no host"),
        ("http://[::1", "names no host"),
        (f"http://user:{SECRET}@host", "KEEPSTATE_TOKEN"),
        (f"https://{SECRET}@host:1", "KEEPSTATE_TOKEN"),
        (f"https://host/api/{SECRET}", "goes on after the host"),
        (f"https://host?token={SECRET}", "goes on after the host"),
        (f"https://host#{SECRET}", "goes on after the host"),
        ("https://host/?", "goes on after the host"),
    ],
)
def test_a_url_that_cannot_be_used_says_what_can(url: str, words: str) -> None:
    """Rather than being used in part; and without telling what may be a secret."""
    with pytest.raises(ConfigurationError, match=words) as caught:
        connect(url, settings=Settings())
    assert "https://HOST" in str(caught.value)
    assert SECRET not in str(caught.value) + repr(vars(caught.value)) + shown_url(url)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://localhost:8484", "http://localhost:8484"),
        ("https://state.example.com/", "https://state.example.com"),
        ("HTTPS://State.Example.COM:443", "https://state.example.com:443"),
        ("http://[::1]:8484", "http://[::1]:8484"),
    ],
)
def test_a_store_shows_where_it_is(url: str, address: str) -> None:
    """And opens without asking there."""
    with connect(url, settings=Settings(token=SECRET)) as store:
        assert store.backend.address == address
        assert repr(store) == f"<StateStore {address}>"
        assert SECRET not in repr(vars(store.backend)) + repr(store.settings) + repr(store.backend)
    assert shown_url(url).lower() == address


def test_nothing_has_to_be_installed() -> None:
    """A worker needs the bare package, which needs the standard library for this."""
    code = (
        "import sys; before = set(sys.modules); import keepstate; keepstate.connect('https://localhost:8484').close(); "
        "print({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'keepstate'}"


def test_a_token_that_everybody_can_read_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each server that is not on this machine; never where it is encrypted, or there is none."""
    monkeypatch.setattr(http_backend, "_warned", set())
    for url, token in (
        ("http://state.example.com", None),
        ("https://state.example.com", SECRET),
        ("http://127.0.0.1:1", SECRET),
        ("http://localhost:1", SECRET),
    ):
        connect(url, settings=Settings(token=token)).close()
    assert caplog.messages == []
    for _ in range(2):
        connect("http://state.example.com", settings=Settings(token=SECRET)).close()
    (message,) = caplog.messages
    assert "http://state.example.com unencrypted" in message
    assert SECRET not in message


def test_a_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by every other program; but a server on this machine is asked itself."""
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "NO_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    with Scripted(GET) as server:
        monkeypatch.setenv("http_proxy", server.url)
        monkeypatch.setenv("no_proxy", "inside.example.com")
        monkeypatch.setattr(
            http_backend, "_warned", {"http://state.example.com", "http://inside.example.com"}
        )
        with store_at("http://state.example.com") as store:
            assert task(store).get("k") == 5
        assert server.heard[0][0] == "http://state.example.com/api/keepstate/v1/read"
        with (
            store_at(f"http://127.0.0.1:{free_port()}", timeout=0) as store,
            pytest.raises(BackendUnavailableError),
        ):
            task(store).get("k")
        assert len(server.heard) == 1


@contextmanager
def tunnelling(target: tuple[str, int], heard: list[bytes]) -> Iterator[str]:
    """Run a proxy that connects to ``target``, whatever is asked for; give its URL with a password in it."""

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def serve(client: socket.socket) -> None:
        with client, socket.create_connection(target) as server:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += client.recv(1)
            heard.append(head)
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pump, args=(server, client))
            back.start()
            pump(client, server)
            back.join()

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://ada:{SECRET}%21@127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def test_a_proxy_does_not_see_what_is_encrypted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told where to, and who asks it; the token and the state go through a tunnel."""
    monkeypatch.setattr(servers, "_near", lambda host: False)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("no_proxy", "elsewhere.example.com")
    heard: list[bytes] = []
    with Scripted(GET) as server, tunnelling(("127.0.0.1", server.server.server_port), heard) as proxy:
        server.encrypt(certificate)
        monkeypatch.setenv("https_proxy", proxy)
        url = server.url.replace("http://127.0.0.1", "https://localhost")
        with store_at(url) as store:
            assert [task(store).get("k") for _ in range(2)] == [5, 5]
    (asked,) = heard
    assert asked.startswith(b"CONNECT localhost:")
    assert b"Proxy-Authorization: Basic " + base64.b64encode(f"ada:{SECRET}!".encode()) in asked
    assert b"Bearer" not in asked


@pytest.mark.parametrize(
    "proxy", ["https://{}@proxy:1", "socks5://{}@proxy:1", "http://{}@:1", "http://{}@proxy:x"]
)
def test_a_proxy_that_cannot_be_used_is_refused(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, without telling its password."""
    monkeypatch.setenv("no_proxy", "elsewhere.example.com")
    monkeypatch.setenv("https_proxy", proxy.format(SECRET))
    with pytest.raises(ConfigurationError, match="except the server with NO_PROXY") as caught:
        connect("https://state.example.com", settings=Settings())
    assert SECRET not in str(caught.value) + str(caught.value.__cause__) + str(caught.value.__context__)


def test_a_host_may_have_any_letters() -> None:
    """It is asked for as the name system has it; what no host can be called is refused."""
    with connect(
        "https://zust\N{LATIN SMALL LETTER A WITH DIAERESIS}nde.example", settings=Settings()
    ) as store:
        assert "xn--zustnde-8wa.example" in store.backend._channel._connections._head  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="no name that a host can have"):
        connect(f"https://{64 * chr(228)}.example", settings=Settings())


# ------------------------------------------------------------------------------------------------- requests


def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    """Nor one on which it said something unasked: that is no answer to the next request."""
    with Scripted(GET) as server, store_at(server.url, timeout=0) as store:
        body = GET[2]
        stray = b"HTTP/1.1 200 OK\r\nKeepstate-Protocol: 1\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        for after in (b"", stray, b"\r\n"):
            server.script = [_say(stray + after), GET]
            assert task(store).get("k") == 5
            time.sleep(0.05)
            assert task(store).get("k") == 5


def test_a_verb_is_one_request() -> None:
    """On a connection that is kept, with the token, and a number where it changes something."""
    with Scripted(GET) as server, store_at(server.url) as store:
        assert task(store).get("k") == 5
        server.script = [SET]
        task(store).set("k", 1)
        task(store).set("k", 2)
        path, headers, request = server.heard[0]
        assert (path, len(server.heard)) == ("/api/keepstate/v1/read", 3)
        assert headers["Authorization"] == f"Bearer {SECRET}"
        assert headers["User-Agent"].startswith("keepstate/")
        assert "session" not in request
        sessions = [request["batch"]["session"] for _, _, request in server.heard[1:]]
        assert [session["number"] for session in sessions] == [1, 2]
        assert sessions[0]["id"] == sessions[1]["id"]


def test_large_requests_are_packed() -> None:
    """Small ones are not."""
    with Scripted(SET) as server, store_at(server.url) as store:
        task(store).set("k", "x" * 60_000)
        task(store).set("k", 1)
        (_, large, request), (_, small, _) = server.heard
        assert large["Content-Encoding"] == "gzip"
        assert int(large["Content-Length"]) < 1_000
        assert len(request["batch"]["changes"][0]["put"]["text"]) == 60_002
        assert "Content-Encoding" not in small


def test_a_request_that_no_server_takes_is_not_sent() -> None:
    """Its size and the bound are facts of the error."""
    values = {f"k{number}": "\N{DUCK}" * 4_000_000 for number in range(5)}
    with store_at(f"http://127.0.0.1:{free_port()}") as store:
        with pytest.raises(ValueTooLargeError, match="write fewer or smaller values at once") as caught:
            task(store).set_many(values)
        assert caught.value.limit == LARGEST_BODY
        assert caught.value.size > LARGEST_BODY


# --------------------------------------------------------------------------------------------------- trouble


@pytest.mark.parametrize("status", [408, 425, 429, 502, 503, 504])
def test_what_may_pass_is_waited_for(status: int) -> None:
    """A proxy's page while the server starts, a server that is busy: the same request again, with the same number."""
    with Scripted((status, HTML, PAGE), (status, OURS | HTML, b""), (status, {}, b"{}"), SET) as server:
        server.script.pop(1)
        with store_at(server.url) as store:
            task(store).set("k", 1)
        assert len(server.heard) == 3
        assert server.heard[0][2] == server.heard[1][2] == server.heard[2][2]


def test_a_server_whose_database_is_away_is_waited_for() -> None:
    """It says so itself."""
    away = refusal(503, BackendUnavailableError("the database behind the server can't be reached"))
    with Scripted(away, away, SET) as server, store_at(server.url) as store:
        task(store).set("k", 1)
        assert len(server.heard) == 3
    with Scripted(away) as server, store_at(server.url, timeout=0.2) as store:
        with pytest.raises(BackendUnavailableError, match="database behind the server") as caught:
            task(store).set("k", 1)
        assert caught.value.address == server.url


def test_a_server_that_asks_to_wait_is_not_bothered_before() -> None:
    """As long as the time allowed is not over."""
    busy: Said = (429, {"Retry-After": "1"}, b"{}")
    with Scripted(busy, GET) as server, store_at(server.url) as store:
        began = time.monotonic()
        assert task(store).get("k") == 5
        assert time.monotonic() - began >= 1
    with (
        Scripted((429, {"Retry-After": "3600"}, b"{}")) as server,
        store_at(server.url, timeout=0.5) as store,
    ):
        began = time.monotonic()
        with pytest.raises(BackendUnavailableError, match="429"):
            task(store).get("k")
        assert time.monotonic() - began < 2


def _hang_up(_: Any) -> None:
    """Say nothing."""


def _say(raw: bytes) -> Callable[[Any], None]:
    def say(handler: Any) -> None:
        handler.wfile.write(raw)

    return say


HEAD = b"HTTP/1.1 200 OK\r\nKeepstate-Protocol: 1\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 2",
        b"nonsense\r\n\r\n",
        HEAD + b"Content-Length: 1000\r\n\r\n{",
        HEAD + b'\r\n{"answer": {"vers',
        HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b'{"answer": null}', mtime=0)[:-10],
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    ],
)
def test_an_answer_that_was_cut_short_is_asked_for_again(raw: bytes) -> None:
    """Wherever it was cut; nothing of it is believed."""
    with Scripted(_say(raw), _say(raw), GET) as server, store_at(server.url) as store:
        assert task(store).get("k") == 5
        assert len(server.heard) == 3


@pytest.mark.parametrize("timeout", [0.0, 1.0])
def test_a_server_that_is_not_there_is_unavailable(timeout: float) -> None:
    """After the time allowed, with its address and the cause."""
    url = f"http://127.0.0.1:{free_port()}"
    with store_at(url, timeout=timeout) as store:
        for verb in (
            lambda: task(store).get("k"),
            lambda: task(store).set("k", 1),
            store.runs,
            lambda: store.delete_run("etl", "r"),
            store.cleanup,
        ):
            began = time.monotonic()
            with pytest.raises(
                BackendUnavailableError, match=rf"within {timeout:g} s: .*KEEPSTATE_RETRY_TIMEOUT"
            ) as caught:
                verb()
            assert timeout <= time.monotonic() - began < timeout + 1
            assert caught.value.address == url
            assert isinstance(caught.value.__cause__, ConnectionRefusedError)


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    """A connection that is accepted and then met with silence holds nobody up for long."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=128) as silent,
        store_at(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=1.0) as store,
    ):
        began = time.monotonic()
        with pytest.raises(BackendUnavailableError, match="TimeoutError: timed out"):
            task(store).set("k", 1)
        assert time.monotonic() - began < 4


def test_a_server_that_comes_back_in_time_is_waited_for() -> None:
    """A task hears nothing of a restart."""
    with Scripted(GET) as server:
        url = server.url
        with store_at(url) as store:
            assert task(store).get("k") == 5
    with store_at(url) as store:
        found: list[Any] = []
        reader = threading.Thread(target=lambda: found.append(task(store).get("k")))
        reader.start()
        time.sleep(0.2)
        again = Scripted(GET)
        again.server.server_close()
        again.server = ThreadingHTTPServer(
            ("127.0.0.1", int(url.rpartition(":")[2])), again.server.RequestHandlerClass
        )
        again.server.daemon_threads = True
        again._thread = threading.Thread(target=again.server.serve_forever, args=(0.01,))
        with again:
            reader.join(20)
        assert found == [5]


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_is_not_admitted_is_told_at_once(status: int) -> None:
    """Trying again would not help; whoever says so, the server or a proxy."""
    for body in (
        b'{"detail": "this token is not known"}',
        PAGE,
        refusal(403, AccessDeniedError("not yours"))[2],
    ):
        with Scripted((status, {}, body)) as server, store_at(server.url) as store:
            with pytest.raises(AccessDeniedError, match="set KEEPSTATE_TOKEN") as caught:
                task(store).get("k")
            assert caught.value.address == server.url
            assert len(server.heard) == 1
    with (
        Scripted(refusal(403, AccessDeniedError("this token does not reach"))) as server,
        store_at(server.url) as store,
    ):
        with pytest.raises(AccessDeniedError, match="does not reach") as caught:
            task(store).get("k")
        assert caught.value.address == server.url


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (
            (200, HTML, b"<html>hello</html>"),
            BackendError,
            r"no keepstate server.*HTTP status 200, text/html",
        ),
        (
            (404, {"Content-Type": "application/json"}, b'{"detail": "Not Found"}'),
            BackendError,
            "no keepstate server",
        ),
        ((405, HTML, b""), BackendError, "no keepstate server"),
        ((500, HTML, PAGE), BackendError, "no keepstate server"),
        ((301, {"Location": "https://elsewhere/"}, b""), BackendError, "it redirects; set KEEPSTATE_URL"),
        ((413, HTML, PAGE), ValueTooLargeError, "or a proxy before it"),
        (
            (200, {**OURS, "Keepstate-Protocol": "2"}, b"{}"),
            StoreVersionError,
            "version '2' of the worker API",
        ),
        (
            (404, {**OURS, "Keepstate-Protocol": "2"}, b"{}"),
            StoreVersionError,
            "bring the older of both up to date",
        ),
        ((200, OURS, b"{}"), BackendError, "no keepstate server"),
        ((200, OURS, b"[]"), BackendError, "no keepstate server"),
        ((200, OURS, b'{"answer": {"version": "1"}}'), BackendError, "can't be understood"),
        ((418, OURS, b'{"tea": 1}'), BackendError, "no keepstate server"),
        (
            refusal(404, UnsupportedError("does not know the verb")),
            UnsupportedError,
            "does not know the verb",
        ),
        (refusal(500, BackendError("on fire", address="db")), BackendError, "on fire"),
    ],
)
def test_strangers_are_told_apart_from_servers(said: Said, kind: type[Exception], words: str) -> None:
    """At once, with what to look at; what only a server says is raised as it raised it."""
    with Scripted(said) as server, store_at(server.url) as store:
        with pytest.raises(kind, match=words) as caught:
            task(store).get("k")
        assert type(caught.value) is kind
        assert len(server.heard) == 1
        if isinstance(caught.value, BackendError):
            assert caught.value.address == server.url
        assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


def test_a_closed_store_is_not_opened_again() -> None:
    """It says so."""
    with Scripted(GET) as server, store_at(server.url) as store:
        task(store).get("k")
        store.close()
        with pytest.raises(BackendError, match="was closed"):
            task(store).get("k")


# --------------------------------------------------------------------------------------------- attempts' ends


@pytest.mark.parametrize("recorded", ["success", "failed"])
def test_an_end_whose_answer_was_lost_counts(recorded: str) -> None:
    """Though a later attempt began before it was sent again: if this very end was recorded."""
    late = refusal(409, StaleAttemptError("attempt 2 has begun since", try_number=1, current_try_number=2))
    when = datetime(2026, 11, 29, tzinfo=timezone.utc)
    known = [
        Attempt(2, "b", 1, "running", "h", 1, when, when, None),
        Attempt(1, "a", 1, recorded, "h", 1, when, when, when),
    ]
    end = End(SCOPE, Fence(1, "a", None, 1), "success", 0)
    with Scripted(_hang_up, late, answer("attempts", known)) as server, store_at(server.url) as store:
        if recorded == "success":
            store.backend.end(end)
        else:
            with pytest.raises(StaleAttemptError):
                store.backend.end(end)
        assert [path.rpartition("/")[2] for path, _, _ in server.heard] == ["end", "end", "attempts"]
    # what was refused at once is refused
    with Scripted(late, answer("attempts", known)) as server, store_at(server.url) as store:
        with pytest.raises(StaleAttemptError):
            store.backend.end(end)
        assert len(server.heard) == 1


# --------------------------------------------------------------------------------------------------- clocks


@pytest.mark.parametrize(
    ("off", "words"),
    [(61, r"61 s behind that of .* too early"), (-3600, r"3600 s ahead of that of .* too late"), (59, "")],
)
def test_a_clock_that_is_far_off_is_warned_about(
    off: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once: it computes when entries expire, and the server's tells when that is."""
    clock = ManualClock()
    there = str(clock() + off * 1_000_000)
    with (
        Scripted(answer("read", Reading(0, None), Keepstate_Time=there)) as server,
        store_at(server.url, clock=clock) as store,
    ):
        for _ in range(3):
            task(store).get("k")
    assert len(caplog.messages) == bool(words)
    if words:
        assert re.search(words, caplog.messages[0])


# -------------------------------------------------------------------------------------------------- secrets


def test_no_secret_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Not in a message, a repr, a log or a traceback, of whatever is logged by anybody; nor are the values written."""
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    value = "the stored value"
    for said in (GET, (401, {}, b"{}"), (500, HTML, PAGE), (200, OURS, b"{}"), _hang_up, (503, {}, b"")):
        with Scripted(said) as server, store_at(server.url, timeout=0.1) as store:
            told += [repr(store), repr(store.backend), repr(vars(store.backend)), repr(store.settings)]
            for verb in (lambda: task(store).get("k"), lambda: task(store).set("k", "the stored " + "value")):
                try:
                    verb()
                except BackendError as exc:
                    told += [repr(exc), str(exc), str(vars(exc)), *traceback.format_exception(exc)]
    told += [record.getMessage() for record in caplog.records]
    assert len(told) > 40
    for text in told:
        assert SECRET not in text
        assert value not in text


# ------------------------------------------------------------------------------------- threads and processes


def test_a_finaliser_may_write_in_the_midst_of_a_request() -> None:
    """It gets a connection of its own, instead of waiting for a lock that its own thread holds."""
    with Scripted(SET) as server, store_at(server.url) as store:
        task(store).set("k", 1)
        connections = store.backend._channel._connections  # type: ignore[attr-defined]
        inner = connections._kept
        depth: list[int] = []

        def interrupted() -> Any:
            depth.append(1)
            taken = inner()
            if len(depth) == 1:
                task(store, "another").set("k", 2)
            return taken

        connections._kept = interrupted
        task(store).set("k", 3)
        assert depth == [1, 1]
        values = [request["batch"]["changes"][0]["put"]["text"] for _, _, request in server.heard]
        assert values == ["1", "2", "3"]
        numbers = {
            (request["batch"]["session"]["id"], request["batch"]["session"]["number"])
            for _, _, request in server.heard
        }
        assert len(numbers) == 3


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_parent_and_child_share_neither_connections_nor_numbers() -> None:
    """A child that wrote on its parent's socket would get the parent's answers."""
    with Scripted(SET) as server, store_at(server.url) as store:
        task(store).set("k", 1)

        def kept() -> str:
            (one,) = store.backend._channel._connections._idle  # type: ignore[attr-defined]
            return str(one.connection.sock.getsockname())

        def work() -> str:
            task(store).set("k", 2)
            return kept()

        own = kept()
        theirs = in_child(work)
        task(store).set("k", 3)
        assert kept() == own != theirs
        ids = [request["batch"]["session"]["id"] for _, _, request in server.heard]
        assert ids[0] == ids[2] != ids[1]


# ---------------------------------------------------------------------------------------------- certificates


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of our own for loopback, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "keepstate tests")])
    now = datetime.now(timezone.utc)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "certificate.pem"
    file.write_bytes(
        signed.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return file


def test_a_certificate_has_to_be_trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not is told at once, with what to do; the token does not get there."""
    with Scripted(GET) as server:
        server.encrypt(certificate)
        url = server.url.replace("http://127.0.0.1", "https://localhost")
        with store_at(url) as store, pytest.raises(ConfigurationError, match="set SSL_CERT_FILE"):
            task(store).get("k")
        assert server.heard == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with store_at(url) as store:
            assert task(store).get("k") == 5
