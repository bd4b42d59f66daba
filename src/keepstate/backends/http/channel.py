"""One request to a keepstate server and its answer: retried while trouble may pass, and never half-understood."""

from __future__ import annotations

import gzip
import json
import logging
import ssl
import threading
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NoReturn

import httpx

from keepstate.backends.http import forking
from keepstate.backends.patience import Patience
from keepstate.clock import SECOND
from keepstate.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    ConfigurationError,
    KeepstateError,
    StoreVersionError,
    ValueTooLargeError,
)
from keepstate.wire import PROTOCOL, decode_error

if TYPE_CHECKING:
    from keepstate.backends.http.servers import Server
    from keepstate.clock import Clock

log = logging.getLogger("keepstate")

LARGEST_BODY = 64 * 1024 * 1024
"""Bytes of JSON that a server takes in one request: a value of 16 MiB however it is escaped, or several."""

# where the network is slower than zlib's fastest
_WORTH_COMPRESSING = 16 * 1024
_MOST_SKEW = 60 * SECOND
_KEPT_CONNECTIONS = 32
_KEPT_SECONDS = 60.0

_TO_CONNECT = 5.0
_TO_ANSWER = 10.0
_TO_ANSWER_AT_LENGTH = 60.0
# even the last try, with no time left, gets as much
_SHORTEST = 1.0
_LONGEST_RETRY_AFTER = 60.0

_AT_LENGTH = frozenset({"purge", "delete_run", "delete_asset", "dags", "runs", "assets", "task_instances"})
"""Verbs that may take the server a while, as they look at many rows; the counts do too."""

_BUSY = frozenset({408, 425, 429, 502, 503, 504})

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)


class _Trouble(Exception):  # noqa: N818 - it never leaves this module
    """It did not work, and may if tried again. ``at_least`` are seconds for which the other side asked to wait."""

    def __init__(self, message: str, *, at_least: float = 0.0) -> None:
        super().__init__(message)
        self.at_least = at_least


@dataclass(frozen=True)
class Reply:
    """What the server said: JSON, or the error that it raised; its time; and after how many tries."""

    data: Any
    error: KeepstateError | None
    time: int | None
    tries: int


class Channel:
    """The way to one server. Threads share it, and a forked child gets connections of its own."""

    def __init__(self, server: Server, *, token: str | None, retry_timeout: float, now: Clock) -> None:
        """Connect at the first request. ``now`` is this side's clock, which is compared with the server's."""
        self.address = server.address
        self._server = server
        self._retry_timeout = retry_timeout
        self._now = now
        self._base = httpx.URL(f"{server.address}/api/keepstate/v{PROTOCOL}/")
        self._headers = {
            "Host": self._base.netloc.decode("ascii"),
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "Content-Type": "application/json",
            "User-Agent": f"keepstate/{version('keepstate')}",
        }
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._told_skew = False
        self._closed = False
        self._inside: set[int] = set()
        self._transports: dict[str, httpx.HTTPTransport] = {}
        self._left_behind: list[object] = []
        forking.carry(self)

    def __repr__(self) -> str:
        return f"<Channel {self.address}>"

    def close(self) -> None:
        """Close the connections."""
        self._closed = True
        for transport in list(self._transports.values()):
            transport.close()
        self._transports.clear()

    def after_fork_in_child(self) -> None:
        """Leave the parent's connections to the parent: not even closed, as that could say goodbye in its name."""
        self._left_behind += self._transports.values()
        self._transports = {}
        self._inside = set()

    # ---------------------------------------------------------------------------------------------- asking

    def ask(self, verb: str, request: Any) -> Reply:
        """Send a request until it is answered, and return the answer.

        Raises ``BackendUnavailableError`` when it is not within the time allowed, ``AccessDeniedError``,
        ``ValueTooLargeError``, or a ``BackendError`` for an answer that is no keepstate server's.
        """
        if self._closed:
            raise BackendError(f"the store {self.address} was closed", address=self.address)
        body, headers = self._packed(request)
        patience = Patience(self.address, self._retry_timeout, time.monotonic())
        tries = 0
        while True:
            tries += 1
            before = self._now()
            try:
                response = self._send(verb, body, headers, patience.left)
                return self._understood(response, before, tries)
            except _Trouble as exc:
                patience.wait(exc, at_least=exc.at_least)

    def _packed(self, request: Any) -> tuple[bytes, dict[str, str]]:
        text = _encoder.encode(request)
        try:
            body = text.encode()
        except UnicodeEncodeError:
            # the server says which text can't be
            body = json.dumps(request).encode()
        if len(body) > LARGEST_BODY:
            raise ValueTooLargeError(
                f"the request takes {len(body):,} bytes, and a keepstate server takes {LARGEST_BODY:,}; write fewer or "
                "smaller values at once",
                path="value",
                size=len(body),
                limit=LARGEST_BODY,
            )
        headers = self._headers
        if len(body) >= _WORTH_COMPRESSING:
            body = gzip.compress(body, compresslevel=1, mtime=0)
            headers = {**headers, "Content-Encoding": "gzip"}
        return body, {**headers, "Content-Length": str(len(body))}

    def _send(self, verb: str, body: bytes, headers: dict[str, str], left: float) -> httpx.Response:
        """Send it once, and return the answer, read to its end."""
        at_length = verb in _AT_LENGTH or verb.startswith("count_")
        most = _TO_ANSWER_AT_LENGTH if at_length else _TO_ANSWER
        bound = max(min(left, most), _SHORTEST)
        timeout = {"connect": min(bound, _TO_CONNECT), "read": bound, "write": bound, "pool": bound}
        request = httpx.Request(
            "POST", self._base.join(verb), headers=headers, content=body, extensions={"timeout": timeout}
        )
        me = threading.get_ident()
        nested = me in self._inside
        transport = self._new_transport() if nested else self._transport()
        self._inside.add(me)
        try:
            response = transport.handle_request(request)
            response.request = request
            try:
                response.read()
            finally:
                response.close()
        except (httpx.RequestError, httpx.StreamError) as exc:
            self._refuse_certificate(exc)
            raise _Trouble(f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__) from exc
        finally:
            if nested:
                transport.close()
            else:
                self._inside.discard(me)
        return response

    def _transport(self) -> httpx.HTTPTransport:
        found = self._transports.get("own")
        # whoever comes second uses what the first one made
        return found or self._transports.setdefault("own", self._new_transport())

    def _new_transport(self) -> httpx.HTTPTransport:
        """Make a pool of connections.

        A finaliser that runs in the midst of a request of its own thread gets one for itself: the lock of the other may be
        held by the very thread that would wait for it.
        """
        return httpx.HTTPTransport(
            # loading the certificates takes longer than many requests
            verify=True if self._server.encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=_KEPT_CONNECTIONS,
                keepalive_expiry=_KEPT_SECONDS,
            ),
            proxy=self._server.proxy,
        )

    def _refuse_certificate(self, trouble: BaseException) -> None:
        cause: BaseException | None = trouble
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise ConfigurationError(
                    f"the certificate of {self.address} is not to be trusted: {cause.verify_message}; if your own authority "
                    "signed it, set SSL_CERT_FILE to its certificate"
                ) from trouble
            cause = cause.__cause__ or cause.__context__

    # --------------------------------------------------------------------------------------- understanding

    def _understood(self, response: httpx.Response, before: int, tries: int) -> Reply:
        status, ours = response.status_code, response.headers.get("Keepstate-Protocol")
        if ours is None:
            self._refuse(response)
        if ours != str(PROTOCOL):
            raise StoreVersionError(
                f"the server {self.address} speaks version {ours[:20]!r} of the worker API and this keepstate version "
                f"{PROTOCOL}; bring the older of both up to date",
                address=self.address,
            )
        data = _json(response)
        if data is None:
            raise _Trouble("an answer that was cut short")
        time_there = self._compare_clocks(response.headers.get("Keepstate-Time"), before)
        if status == httpx.codes.OK and isinstance(data, dict) and "answer" in data:
            return Reply(data["answer"], None, time_there, tries)
        error = decode_error(data)
        if error is None:
            raise self._stranger(response)
        if isinstance(error, BackendUnavailableError):
            raise _Trouble(str(error), at_least=_retry_after(response))
        if isinstance(error, BackendError):
            error.address = self.address
        return Reply(None, error, time_there, tries)

    def _refuse(self, response: httpx.Response) -> NoReturn:
        """Raise what an answer means that does not come from the worker API itself."""
        status, data = response.status_code, _json(response)
        error = decode_error(data)
        said = error or (data.get("detail") if isinstance(data, dict) else None)
        said = f": {said!s:.300}" if said else ""
        if status in _BUSY:
            raise _Trouble(f"HTTP status {status}{said}", at_least=_retry_after(response))
        if status in {401, 403}:
            raise AccessDeniedError(
                f"the server {self.address} does not admit this{said}; set KEEPSTATE_TOKEN to a token that it made for you",
                address=self.address,
            )
        if status == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
            size = len(response.request.content)
            raise ValueTooLargeError(
                f"the server {self.address}, or a proxy before it, takes no request of {size:,} bytes{said}",
                path="value",
                size=size,
                limit=LARGEST_BODY,
            )
        raise self._stranger(response)

    def _stranger(self, response: httpx.Response) -> BackendError:
        kind = response.headers.get("Content-Type", "no type")
        moved = response.headers.get("Location")
        hint = (
            "it redirects; set KEEPSTATE_URL to where the server itself is"
            if moved
            else "set KEEPSTATE_URL to the address at which `keepstate serve` answers"
        )
        return BackendError(
            f"what answers at {self.address} is no keepstate server, or a much older one (HTTP status "
            f"{response.status_code}, {kind[:60]}): {hint}",
            address=self.address,
        )

    def _compare_clocks(self, told: str | None, before: int) -> int | None:
        """Return the server's time, and warn once when this side's clock is far off it: it computes when entries expire."""
        if told is None or not told.isdecimal():
            return None
        there, after = int(told), self._now()
        skew = max(there - after, before - there)
        if skew > _MOST_SKEW and not self._told_skew:
            self._told_skew = True
            log.warning(
                "the clock here is %d s %s that of %s; entries expire by as much too %s. Set it right",
                skew // SECOND,
                "behind" if there > after else "ahead of",
                self.address,
                "early" if there > after else "late",
            )
        return there


def _json(response: httpx.Response) -> Any:
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError):
        return None


def _retry_after(response: httpx.Response) -> float:
    told = response.headers.get("Retry-After", "")
    return min(float(told), _LONGEST_RETRY_AFTER) if told.isdecimal() else 0.0
