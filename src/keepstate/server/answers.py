"""What is answered where something is the matter: ``{"detail": …}`` with the status that says whose turn it is."""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from keepstate import errors
from keepstate.server.roles import ForbiddenError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fastapi import FastAPI
    from starlette.requests import Request

log = logging.getLogger("keepstate.server")

RETRY_SECONDS = 2

# The first that fits counts, so what is special stands before what is general.
STATUSES: tuple[tuple[type[errors.KeepstateError], int], ...] = (
    (errors.InvalidInputError, 422),
    (errors.InvalidTypeError, 422),
    (errors.ScopeNotFoundError, 404),
    (errors.VersionNotFoundError, 404),
    (errors.VersionConflictError, 409),
    (errors.StaleAttemptError, 409),
    (errors.AlreadyRunningError, 409),
    (errors.UnsupportedError, 501),
    (errors.StoreFullError, 507),
    (errors.StoreReadOnlyError, 503),
    (errors.BackendUnavailableError, 503),
    (errors.StoreCorruptedError, 500),
    (errors.StoreVersionError, 500),
    (errors.BackendError, 503),
)
"""The status of each error. What it does not name is a fault of ours: 500."""

_PLACES: tuple[tuple[type[errors.KeepstateError], tuple[str, ...]], ...] = (
    (errors.InvalidKeyError, ("path", "key")),
    (errors.InvalidIdError, ("path",)),
    (errors.InvalidValueError, ("body", "value")),
    (errors.InvalidRetentionError, ("body", "expires_at")),
)


class InvalidRequestError(Exception):
    """A request that can't be understood or may not be: 422. Each problem has a place, a message and a type."""

    def __init__(self, problems: Iterable[Mapping[str, Any]]) -> None:
        super().__init__()
        self.problems = [
            {"type": problem["type"], "loc": list(problem["loc"]), "msg": problem["msg"]}
            for problem in problems
        ]


def invalid(place: Iterable[str], message: str, kind: str = "value_error") -> InvalidRequestError:
    """Make the error of a single problem."""
    return InvalidRequestError([{"type": kind, "loc": place, "msg": message}])


def answer(status: int, content: object, headers: Mapping[str, str] | None = None) -> Response:
    """Return ``content`` as JSON. Pure ASCII: whatever a message quotes, it can be sent."""
    return Response(json.dumps(content), status, headers, "application/json")


def status_of(exc: errors.KeepstateError) -> int:
    """Return the status that an error is answered with."""
    return next((status for kind, status in STATUSES if isinstance(exc, kind)), 500)


_TOLD: tuple[tuple[type[errors.BackendError], str], ...] = (
    (errors.BackendUnavailableError, "can't be reached"),
    (errors.StoreFullError, "has no room left; nothing was half-written"),
    (errors.StoreReadOnlyError, "may only be read"),
    (errors.BackendError, "failed"),
)


def told(error: errors.KeepstateError) -> errors.KeepstateError:
    """Return an error as those outside may read it.

    Where the database is, under what name it is opened, and what its driver said, concerns those who run the server.
    """
    if not isinstance(error, errors.BackendError) or isinstance(error, errors.AccessDeniedError):
        return error
    if getattr(error, "last_number", None) is not None:
        # the client's numbers went astray; nothing is wrong with the store
        address = getattr(error, "address", "")
        return type(error)(str(error).replace(address, "behind the server") if address else str(error))
    what = next(what for kind, what in _TOLD if isinstance(error, kind))
    return type(error)(f"the database behind the server {what}; the server's log says more")


def install(app: FastAPI) -> None:
    """Have an application answer errors so. What it says of them it says to people: no trace, and no secret."""
    app.add_exception_handler(errors.KeepstateError, _keepstate_error)
    app.add_exception_handler(InvalidRequestError, _invalid_request)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(ForbiddenError, _forbidden)
    app.add_exception_handler(HTTPException, http_exception)
    app.add_exception_handler(Exception, _our_fault)


def _keepstate_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, errors.KeepstateError)  # noqa: S101 - it is installed for these
    status = status_of(exc)
    if status == 422:  # noqa: PLR2004 - the one that FastAPI gives a list of problems
        return _invalid_request(request, _as_problem(exc))
    if status in {500, 501, 503, 507}:
        log.error("%s %s: %s", request.method, request.scope["path"], exc)
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else None  # noqa: PLR2004 - as above
    return answer(status, {"detail": str(told(exc))}, headers)


def _as_problem(exc: errors.KeepstateError) -> InvalidRequestError:
    place = next((place for kind, place in _PLACES if isinstance(exc, kind)), ("body",))
    name = type(exc).__name__.removesuffix("Error")
    return invalid(place, str(exc), re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def _invalid_request(request: Request, exc: Exception) -> Response:  # noqa: ARG001 - a handler's signature
    assert isinstance(exc, InvalidRequestError)  # noqa: S101 - it is installed for these
    return answer(422, {"detail": exc.problems})


def _validation_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)  # noqa: S101 - it is installed for these
    # without the input, which may be what JSON can't say, or somebody's secret
    return _invalid_request(request, InvalidRequestError(exc.errors()))


def _forbidden(request: Request, exc: Exception) -> Response:  # noqa: ARG001 - a handler's signature
    return answer(403, {"detail": str(exc)})


def http_exception(request: Request, exc: Exception) -> Response:
    """Answer with the status of an ``HTTPException``, and what it says."""
    assert isinstance(exc, HTTPException)  # noqa: S101 - it is installed for these
    headers = exc.headers
    if exc.status_code == 405:  # noqa: PLR2004 - the one that has to say what is allowed
        headers = {"Allow": ", ".join(_allowed(request))}
    return answer(exc.status_code, {"detail": exc.detail}, headers)


def _allowed(request: Request) -> list[str]:
    """Return the methods of all routes of a path: each route by itself knows its own alone."""
    found: set[str] = set()
    for route in request.app.router.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found)


def _our_fault(request: Request, exc: Exception) -> Response:
    log.error("%s %s: a fault of the server's", request.method, request.scope["path"], exc_info=exc)
    return answer(
        500, {"detail": "the server made a mistake, which its log describes; nothing was half-done"}
    )
