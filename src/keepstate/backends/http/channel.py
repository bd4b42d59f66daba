"""One request to a keepstate server and its answer: retried while trouble may pass, and never half-understood."""

from __future__ import annotations

import gzip
import json
import logging
import time
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NoReturn

from keepstate.backends.http import forking
from keepstate.backends.http.connections import Connections, ExchangeError
from keepstate.backends.http.incoming import AnswerTooLargeError
from keepstate.backends.patience import Patience
from keepstate.clock import SECOND
from keepstate.errors import (
    AccessDeniedError,
    BackendError,
    BackendUnavailableError,
    KeepstateError,
    StoreVersionError,
    ValueTooLargeError,
)
from keepstate.wire import PROTOCOL, decode_error

if TYPE_CHECKING:
    from keepstate.backends.http.incoming import Answer
    from keepstate.backends.http.servers import Server
    from keepstate.clock import Clock

log = logging.getLogger("keepstate")

LARGEST_BODY = 64 * 1024 * 1024
"""Bytes of JSON that a server takes in one request: a value of 16 MiB however it is escaped, or several."""

# where the network is slower than zlib's fastest
_WORTH_COMPRESSING = 16 * 1024
_MOST_DIGITS = 18
_MOST_SKEW = 60 * SECOND

_TO_ANSWER = 10.0
_TO_ANSWER_AT_LENGTH = 60.0
# even the last try, with no time left, gets as much
_SHORTEST = 1.0
_LONGEST_RETRY_AFTER = 60.0

_AT_LENGTH = frozenset(
    {
        "purge",
        "delete_run",
        "delete_asset",
        "dags",
        "dag_ids",
        "runs",
        "assets",
        "task_instances",
        "grid",
        "keys",
        "keys_of_assets",
    }
)
"""Verbs that may take the server a while, as they look at many rows; the counts do too."""

_PATH = f"/api/keepstate/v{PROTOCOL}/"
_BUSY = frozenset({408, 425, 429, 502, 503, 504})

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)


class _Trouble(Exception):  # noqa: N818 - it never leaves this module
    """It did not work, and may if tried again. ``at_least`` are seconds for which the other side asked to wait."""

    def __init__(self, message: str, *, at_least: float = 0.0) -> None:
        super().__init__(message)
        self.at_least = at_least


@dataclass(frozen=True)
class Reply:
    """What the server said: JSON, or the error that it raised; its time; after how many tries; and the head of its answer."""

    data: Any
    error: KeepstateError | None
    time: int | None
    tries: int
    headers: dict[str, str]


class Channel:
    """The way to one server. Threads share it, and a forked child gets connections of its own."""

    def __init__(self, server: Server, *, token: str | None, retry_timeout: float, now: Clock) -> None:
        """Connect at the first request. ``now`` is this side's clock, which is compared with the server's."""
        self.address = server.address
        self._retry_timeout = retry_timeout
        self._now = now
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "Content-Type": "application/json",
            "User-Agent": f"keepstate/{version('keepstate')}",
        }
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._connections = Connections(server, headers)
        self._told_skew = False
        self._closed = False
        forking.carry(self)

    def __repr__(self) -> str:
        return f"<Channel {self.address}>"

    def close(self) -> None:
        """Close the connections."""
        self._closed = True
        self._connections.close()

    def after_fork_in_child(self) -> None:
        """Leave the parent's connections to the parent."""
        self._connections.after_fork_in_child()

    # ---------------------------------------------------------------------------------------------- asking

    def ask(self, verb: str, request: Any) -> Reply:
        """Send a request until it is answered, and return the answer.

        Raises ``BackendUnavailableError`` when it is not within the time allowed, ``AccessDeniedError``,
        ``ValueTooLargeError``, or a ``BackendError`` for an answer that is no keepstate server's.
        """
        if self._closed:
            raise BackendError(f"the store {self.address} was closed", address=self.address)
        body, more = self._packed(request)
        patience = Patience(self.address, self._retry_timeout, time.monotonic())
        tries = 0
        while True:
            tries += 1
            before = self._now()
            try:
                answer = self._send(verb, body, more, patience.left)
                return self._understood(answer, len(body), before, tries)
            except _Trouble as exc:
                patience.wait(exc, at_least=exc.at_least)

    def _packed(self, request: Any) -> tuple[bytes, str]:
        """Return the body of a request, and what its head says of it."""
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
        if len(body) < _WORTH_COMPRESSING:
            return body, ""
        return gzip.compress(body, compresslevel=1, mtime=0), "Content-Encoding: gzip\r\n"

    def _send(self, verb: str, body: bytes, more: str, left: float) -> Answer:
        """Send it once, and return the answer, read to its end."""
        at_length = verb in _AT_LENGTH or verb.startswith("count_")
        most = _TO_ANSWER_AT_LENGTH if at_length else _TO_ANSWER
        try:
            return self._connections.post(f"{_PATH}{verb}", body, more, max(min(left, most), _SHORTEST))
        except ExchangeError as exc:
            if isinstance(exc.__cause__, AnswerTooLargeError):
                raise BackendError(f"{self.address} gives {exc.__cause__}", address=self.address) from exc
            raise _Trouble(str(exc)) from (exc.__cause__ or exc)

    # --------------------------------------------------------------------------------------- understanding

    def _understood(self, answer: Answer, sent: int, before: int, tries: int) -> Reply:
        status, ours = answer.status, answer.headers.get("keepstate-protocol")
        if ours is None:
            self._refuse(answer, sent)
        if ours != str(PROTOCOL):
            raise StoreVersionError(
                f"the server {self.address} speaks version {ours[:20]!r} of the worker API and this keepstate version "
                f"{PROTOCOL}; bring the older of both up to date",
                address=self.address,
            )
        data = _json(answer)
        if data is None:
            raise _Trouble("an answer that is no JSON, or was cut short")
        time_there = self._compare_clocks(answer.headers.get("keepstate-time"), before)
        if status == HTTPStatus.OK and isinstance(data, dict) and "answer" in data:
            return Reply(data["answer"], None, time_there, tries, answer.headers)
        error = decode_error(data)
        if error is None:
            raise self._stranger(answer)
        if isinstance(error, BackendUnavailableError):
            raise _Trouble(str(error), at_least=_retry_after(answer))
        if isinstance(error, BackendError):
            error.address = self.address
        return Reply(None, error, time_there, tries, answer.headers)

    def _refuse(self, answer: Answer, sent: int) -> NoReturn:
        """Raise what an answer means that does not come from the worker API itself."""
        status, data = answer.status, _json(answer)
        error = decode_error(data)
        said = error or (data.get("detail") if isinstance(data, dict) else None)
        said = f": {said!s:.300}" if said else ""
        if status in _BUSY:
            raise _Trouble(f"HTTP status {status}{said}", at_least=_retry_after(answer))
        if status in {401, 403}:
            source = "`keepstate token create`"
            # the server may have said so already
            token = "it" if source in said else f"a token from {source}"
            raise AccessDeniedError(
                f"the server {self.address} does not admit this{said}; set KEEPSTATE_TOKEN to {token}",
                address=self.address,
            )
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise ValueTooLargeError(
                f"the server {self.address}, or a proxy before it, takes no request of {sent:,} bytes{said}",
                path="value",
                size=sent,
                limit=LARGEST_BODY,
            )
        raise self._stranger(answer)

    def _stranger(self, answer: Answer) -> BackendError:
        kind = answer.headers.get("content-type", "no type")
        moved = answer.headers.get("location")
        hint = (
            "it redirects; set KEEPSTATE_URL to where the server itself is"
            if moved
            else "set KEEPSTATE_URL to the address at which `keepstate serve` answers"
        )
        return BackendError(
            f"what answers at {self.address} is no keepstate server, or a much older one (HTTP status "
            f"{answer.status}, {kind[:60]}): {hint}",
            address=self.address,
        )

    def _compare_clocks(self, told: str | None, before: int) -> int | None:
        """Return the server's time, and warn once when this side's clock is far off it: it computes when entries expire."""
        if told is None or not told.isdecimal() or len(told) > _MOST_DIGITS:
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


def _json(answer: Answer) -> Any:
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError):
        return None


def _retry_after(answer: Answer) -> float:
    told = answer.headers.get("retry-after", "")
    return min(float(told), _LONGEST_RETRY_AFTER) if told.isdecimal() else 0.0
