"""The worker API: every verb of the protocol is one POST, answered after the commit.

It runs ahead of everything that FastAPI serves, and without pydantic: a task's every ``set`` and ``get`` comes through here.
"""

from __future__ import annotations

import gzip
import json
import logging
import re
import zlib
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from keepstate.errors import (
    AccessDeniedError,
    BackendError,
    InvalidInputError,
    KeepstateError,
    UnsupportedError,
    ValueTooLargeError,
)
from keepstate.server import answers
from keepstate.server.admission import VERBS_ADMITTED, Gate
from keepstate.server.auth import caller_of
from keepstate.server.below import path_below
from keepstate.server.limits import TooLargeError, body_within
from keepstate.server.narrowed import LISTS, listed
from keepstate.server.roles import ForbiddenError
from keepstate.server.service import service_of
from keepstate.server.writers import written_for
from keepstate.values import as_text
from keepstate.wire import PROTOCOL, decode_request, encode_answer, encode_error, takeable

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from keepstate.server.roles import Caller
    from keepstate.server.service import Service
    from keepstate.store import StateStore

log = logging.getLogger("keepstate.server")

PATH = "/api/keepstate/"
"""Where the paths of this API begin."""

_VERBS = f"{PATH}v{PROTOCOL}/"

LARGEST_BODY = 64 * 1024 * 1024
"""Bytes of a request's JSON, unpacked: a value of 16 MiB however it is escaped, or several."""

LARGEST_QUESTION = 1024 * 1024
"""Bytes of the JSON of a request that brings no values, unpacked."""

# making sense of this much takes longer than switching threads
_LARGE = 128 * 1024
_WORTH_COMPRESSING = 16 * 1024
_NOT_TAKEN = re.compile(r"q=0(\.0*)?")
_GZIP = 16 + zlib.MAX_WBITS

_CHANGES = frozenset(
    {"apply", "clear", "begin", "beat", "end", "delete_run", "delete_asset", "purge", "check_writable"}
)

_BRINGS_VALUES = frozenset({"apply", "end"})

_NUL = "\\u0000"


def _no_text(stored: object) -> str:
    """Return bytes that somebody has written into the table as a text, which is no value either: the client names its key."""
    if isinstance(stored, bytes):
        return as_text(stored)
    raise TypeError(f"{type(stored).__name__} is no part of an answer")


_encoder = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False, default=_no_text
)


class _RequestError(Exception):
    """What was sent is no request, and the status that says so."""

    def __init__(self, status: int, error: KeepstateError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


class WorkerApi:
    """Answers what is below ``PATH`` itself, and hands on everything else: finding a route would take as long as the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or not (path := path_below(scope)).startswith(PATH):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            answer = await _answer(request, path)
        except HTTPException as exc:
            answer = answers.http_exception(request, exc)
        await answer(scope, receive, send)


async def _answer(request: Request, path: str) -> Response:
    if request.method != "POST":
        return answers.answer(405, {"detail": "Method Not Allowed"}, {"Allow": "POST"})
    service, verb = service_of(request), path.removeprefix(_VERBS)
    if not path.startswith(_VERBS) or "/" in verb:
        request.scope["keepstate.route"] = f"{PATH}(other)"
        return _refused(service, 404, UnsupportedError(f"this server's worker API is at {_VERBS}VERB"))
    # each a line of its own among the figures
    request.scope["keepstate.route"] = f"{_VERBS}{verb if verb in VERBS_ADMITTED else '(other)'}"
    try:
        return await _answered(request, service, await caller_of(request), verb)
    except _RequestError as exc:
        return _refused(service, exc.status, exc.error)
    except ForbiddenError as exc:
        return _refused(service, 403, AccessDeniedError(str(exc)))
    except KeepstateError as exc:
        status = _status_of(exc)
        if status >= 500:  # noqa: PLR2004 - HTTP's own number
            # one line: a database that is away is no fault of the code, whose trace would bury the rest
            log.error("the store failed: %s", exc)  # noqa: TRY400 - as said
        return _refused(service, status, answers.told(exc))


async def _answered(request: Request, service: Service, caller: Caller, verb: str) -> Response:
    if verb not in VERBS_ADMITTED:
        raise _RequestError(
            404, UnsupportedError(f"this server's keepstate does not know the verb {verb!r:.60}")
        )
    # before the body is read
    caller.require(VERBS_ADMITTED[verb][0])
    body, packing = await _body(request, _largest(verb)), request.headers.get("content-encoding")
    if packing or len(body) > _LARGE:
        arguments = await service.work.read(_understood, service, verb, body, packing)
    else:
        arguments = _understood(service, verb, body, packing)
    content = await _lane(service, verb, arguments)(_carry_out, service, caller, verb, arguments)
    if len(content) >= _WORTH_COMPRESSING and _takes_gzip(request.headers.get("accept-encoding", "")):
        packed = await service.work.read(gzip.compress, content, 1)
        return _response(service, 200, packed, {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
    return _response(service, 200, content, _admission(caller) if verb == "check_writable" else {})


def _takes_gzip(accepted: str) -> bool:
    for coding in accepted.lower().replace(" ", "").split(","):
        name, _, weight = coding.partition(";")
        if name == "gzip":
            return not _NOT_TAKEN.fullmatch(weight)
    return False


def _largest(verb: str) -> int:
    return LARGEST_BODY if verb in _BRINGS_VALUES else LARGEST_QUESTION


async def _body(request: Request, largest: int) -> bytes:
    try:
        return await body_within(request, largest)
    except TooLargeError:
        raise _too_large(largest) from None


def _too_large(largest: int) -> _RequestError:
    brings = "write fewer or smaller values" if largest == LARGEST_BODY else "ask for fewer or shorter keys"
    return _RequestError(
        413,
        ValueTooLargeError(
            f"a request of this verb has at most {largest:,} bytes of JSON; {brings} at once",
            path="value",
            limit=largest,
        ),
    )


def _understood(service: Service, verb: str, body: bytes, packing: str | None) -> dict[str, Any]:
    """Return the arguments that a body stands for."""
    try:
        data = _decoder.decode(_unpacked(body, packing, _largest(verb)).decode())
    except (ValueError, RecursionError) as exc:
        raise _RequestError(400, InvalidInputError(f"the body is no JSON: {exc}")) from None
    return decode_request(verb, data, now=service.store.clock())


def _unpacked(body: bytes, packing: str | None, largest: int) -> bytes:
    if packing in {None, "", "identity"}:
        return body
    if packing != "gzip":
        raise _RequestError(415, InvalidInputError("a body is packed by gzip, or not at all"))
    unpacker = zlib.decompressobj(_GZIP)
    try:
        # a few bytes may stand for gigabytes: no more is unpacked than is taken
        content = unpacker.decompress(body, largest + 1)
    except zlib.error as exc:
        raise _RequestError(400, InvalidInputError(f"the body is not packed by gzip: {exc}")) from None
    if len(content) > largest:
        raise _too_large(largest)
    if not unpacker.eof or unpacker.unused_data:
        raise _RequestError(400, InvalidInputError("the body is not packed by gzip as a whole"))
    return content


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


# made once: `json.loads` makes one for each text that it is asked to be strict about
_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def _lane(service: Service, verb: str, arguments: dict[str, Any]) -> Any:
    fence = arguments.get("fence")
    registers = verb == "read" and fence is not None and fence.incarnation is None
    return service.work.write if verb in _CHANGES or registers else service.work.read


def _carry_out(service: Service, caller: Caller, verb: str, arguments: dict[str, Any]) -> bytes:
    """Do what is asked, as far as the caller may; return the answer's JSON. Called on a thread of the store's."""
    try:
        answer = {"answer": encode_answer(verb, _done(service.store, caller, verb, arguments))}
        content = _encoder.encode(answer)
        if _NUL in content:
            # as an escape within a value that is fine, too
            content = _encoder.encode(takeable(answer))
        return content.encode()
    except (KeepstateError, ForbiddenError):
        raise
    except Exception as exc:
        log.exception("the verb %s failed", verb)
        raise _RequestError(500, BackendError("the server made a mistake, which its log describes")) from exc


def _done(store: StateStore, caller: Caller, verb: str, arguments: dict[str, Any]) -> Any:
    arguments = VERBS_ADMITTED[verb][1](Gate(store, caller), arguments)
    if verb in LISTS:
        return listed(store, caller, verb, arguments)
    if verb == "purge":
        # one batch: whoever cleans up asks again until there is no more
        return next(iter(store.backend.purge(**arguments)), None)
    answer = getattr(store.backend, verb)(**arguments)
    if verb == "asset" and answer is not None and not caller.reaches_asset(answer.name, answer.uri):
        # asked for by its number: as if there were none
        return None
    return written_for(caller, verb, answer)


# ------------------------------------------------------------------------------------------------- answers


def _status_of(error: KeepstateError) -> int:
    """Return what an error is to HTTP; its kind in the answer says it exactly."""
    if isinstance(error, AccessDeniedError):
        return 403
    if isinstance(error, ValueTooLargeError):
        return 413
    if getattr(error, "last_number", None) is not None:
        # the client's numbers went astray; nothing is wrong with the store
        return 409
    return answers.status_of(error)


def _refused(service: Service, status: int, error: KeepstateError) -> Response:
    headers = {"Retry-After": "1"} if status == 503 else {}  # noqa: PLR2004 - HTTP's own number
    return _response(service, status, json.dumps(encode_error(error)).encode(), headers)


def _admission(caller: Caller) -> dict[str, str]:
    """Return what a token may, for whoever asks whether the store works with it."""
    told = {"Keepstate-Role": caller.role.value}
    if caller.dags is not None:
        # a header holds ASCII alone
        told["Keepstate-Dags"] = quote(caller.dags, safe="*?")
    return told


def _response(service: Service, status: int, content: bytes, headers: dict[str, str]) -> Response:
    return Response(
        content,
        status,
        {
            **headers,
            "Keepstate-Protocol": str(PROTOCOL),
            "Keepstate-Time": str(service.store.clock()),
            # of what makes a browser careful, what counts for an answer that only a program asks for
            "X-Content-Type-Options": "nosniff",
        },
        "application/json",
    )
