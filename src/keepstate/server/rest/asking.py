"""A request of somebody who is known, taken apart: each part is checked when it is asked for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from keepstate.errors import InvalidIdError, ValueTooLargeError
from keepstate.scope import RunScope, TaskScope, Writer
from keepstate.server.answers import InvalidRequestError, invalid
from keepstate.server.auth import caller_of
from keepstate.server.limits import TooLargeError, body_within
from keepstate.server.rest.models import BodyWithValue
from keepstate.server.service import service_of
from keepstate.server.strict_json import strictly
from keepstate.values import HARD_VALUE_LIMIT, check_key, encode, size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from keepstate.backends.base import Backend
    from keepstate.server.roles import Caller, Right
    from keepstate.server.service import Service
    from keepstate.store import StateStore

T = TypeVar("T")
Body = TypeVar("Body", bound=BaseModel)
ValueBody = TypeVar("ValueBody", bound=BodyWithValue)

DEFAULT_LIMIT = 50
MOST_AT_ONCE = 1000
"""The longest page of a list. Who asks for more gets this many; the total tells that there are more."""

# JSON may write each byte of a value in six characters; the rest is for what stands around it
_JSON_GROWTH = 6
_AROUND = 65_536
LARGEST_BODY = HARD_VALUE_LIMIT * _JSON_GROWTH + _AROUND
"""No body may be larger than this many bytes, whatever the settings say."""

_LARGEST_WITHOUT_VALUE = 1024 * 1024
_LAST_OFFSET = 2**63 - 1
_LARGE_BODY = 100_000
_INTEGER = re.compile(r"-?[0-9]{1,4000}", re.ASCII)
_FLAGS = {"true": True, "false": False, "1": True, "0": False}
_REPLACED = "\ufffd"


class Ask:
    """A request, who sent it, and what it is answered from."""

    def __init__(self, request: Request, caller: Caller, query: dict[str, str]) -> None:
        self.request = request
        self.caller = caller
        self.service: Service = service_of(request)
        self._query = query

    @property
    def store(self) -> StateStore:
        """The store that is served."""
        return self.service.store

    @property
    def backend(self) -> Backend:
        """What it lives in."""
        return self.service.store.backend

    @property
    def writer(self) -> Writer:
        """Who is recorded with what this request writes."""
        return Writer("api", name=self.caller.name)

    # ------------------------------------------------------------------------------------------- path

    def text(self, name: str) -> str:
        """Return a part of the path."""
        found: str = self.request.path_params[name]
        if _REPLACED in found:
            self._refuse_what_was_no_text(name)
        return found

    def _refuse_what_was_no_text(self, name: str) -> None:
        try:
            unquote_to_bytes(self.request.scope.get("raw_path", b"")).decode()
        except UnicodeDecodeError:
            raise invalid(("path", name), "the path must be UTF-8, percent-encoded") from None

    def number(self, name: str) -> int:
        """Return a whole number in the path."""
        return _integer(self.text(name), ("path", name))

    def key(self) -> str:
        """Return the key that the path names."""
        return check_key(self.text("key"))

    def task_scope(self) -> TaskScope:
        """Return the task instance that path and query name."""
        scope = TaskScope(self.text("dag_id"), self.text("dag_run_id"), self.text("task_id"))
        index = self.query_number("map_index", -1)
        try:
            return scope if index == scope.map_index else replace(scope, map_index=index)
        except InvalidIdError as exc:
            raise invalid(("query", "map_index"), str(exc), "invalid_id") from None

    def mapped_scope(self) -> TaskScope:
        """Return the task instance that the path alone names."""
        index = self.number("map_index") if "map_index" in self.request.path_params else -1
        return TaskScope(self.text("dag_id"), self.text("dag_run_id"), self.text("task_id"), index)

    def run_scope(self) -> RunScope:
        """Return the run that the path names."""
        return RunScope(self.text("dag_id"), self.text("dag_run_id"))

    def dag_id(self) -> str:
        """Return the dag that the path names."""
        # the rules of ids are the scopes'
        return RunScope(self.text("dag_id"), "any").dag_id

    # ------------------------------------------------------------------------------------------ query

    def query_number(self, name: str, default: int) -> int:
        """Return a whole number of the query."""
        found = self._query.get(name)
        return default if found is None else _integer(found, ("query", name))

    def flag(self, name: str) -> bool:
        """Return whether a flag of the query is set; absent is not."""
        found = self._query.get(name, "false").lower()
        if found not in _FLAGS:
            raise invalid(("query", name), "must be true or false", "bool_parsing")
        return _FLAGS[found]

    def window(self) -> tuple[int, int]:
        """Return limit and offset of a list."""
        limit = self.query_number("limit", DEFAULT_LIMIT)
        offset = self.query_number("offset", 0)
        for name, value in (("limit", limit), ("offset", offset)):
            if value < 0:
                raise invalid(("query", name), "must be 0 or more", "greater_than_equal")
        return min(limit, MOST_AT_ONCE), min(offset, _LAST_OFFSET)

    # ------------------------------------------------------------------------------------------- body

    async def body(self, model: type[Body]) -> Body:
        """Return the body as ``model`` has it, whatever its content type says. Raises ``TooLargeError`` for a large one."""
        raw = await body_within(self.request, _LARGEST_WITHOUT_VALUE)
        return await self._made_of(raw, lambda: _validated(_parsed(raw), model))

    async def body_with_value(self, model: type[ValueBody]) -> tuple[ValueBody, str]:
        """Return the body, and the JSON text of its value, which is what the store keeps.

        Raises ``ValueTooLargeError`` above ``max_value_storage_bytes``, and as `values.encode` does.
        """
        limit = self.store.settings.max_value_storage_bytes
        bound = limit * _JSON_GROWTH + _AROUND if limit else LARGEST_BODY
        try:
            raw = await body_within(self.request, bound)
        except TooLargeError:
            if bound >= LARGEST_BODY:
                raise
            # whatever comes behind this, its value is above the limit
            raise _too_large(
                f"a body of more than {bound:,} bytes has a value that is too large", limit
            ) from None

        def take() -> tuple[ValueBody, str]:
            body = _validated(_parsed(raw), model)
            return body, _within(limit, encode(body.value))

        return await self._made_of(raw, take)

    async def _made_of(self, raw: bytes, take: Callable[[], T]) -> T:
        # a large one would keep all others waiting
        return take() if len(raw) < _LARGE_BODY else await self.read(take)

    # ------------------------------------------------------------------------------------------ store

    async def read(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return what ``call`` returns; it changes nothing."""
        return await self.service.work.read(call, *args, **kwargs)

    async def write(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return what ``call`` returns once its change is committed."""
        return await self.service.work.write(call, *args, **kwargs)


async def ask(request: Request, right: Right, query: frozenset[str] = frozenset()) -> Ask:
    """Return the request taken apart. ``query`` are the parameters that it may have.

    Others are refused: a filter that does nothing, or a mistyped ``map_index``, would answer another question than the one
    that was asked. Raises 401 for nobody known and 403 for who lacks the ``right``, before anything else.
    """
    _refuse_a_line_break(request)
    caller = await caller_of(request)
    caller.require(right)
    return Ask(request, caller, _query(request, query) if request.scope["query_string"] else {})


def _refuse_a_line_break(request: Request) -> None:
    """Answer 404 for a path that only a line break at its end tells from ours: to regular expressions they are alike."""
    if request.scope["path"].endswith("\n") and not request.scope["route"].path.endswith("}"):
        raise HTTPException(404)


def _query(request: Request, allowed: frozenset[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in allowed:
            raise invalid(("query", name), "keepstate does not have this parameter here", "extra_forbidden")
        if name in found:
            raise invalid(("query", name), "is given twice")
        found[name] = value
    return found


def _integer(text: str, place: tuple[str, str]) -> int:
    if not _INTEGER.fullmatch(text):
        raise invalid(place, "must be a whole number", "int_parsing")
    return int(text)


def _parsed(raw: bytes) -> Any:
    try:
        return strictly(raw.decode())
    except RecursionError:
        raise invalid(("body",), "the JSON is nested too deep", "json_invalid") from None
    except ValueError as exc:
        # no UTF-8, no JSON, NaN, an integer of too many digits, or a name twice
        raise invalid(("body",), f"the body must be JSON: {exc}", "json_invalid") from None


def _validated(data: Any, model: type[Body]) -> Body:
    try:
        return model.model_validate(data)
    except ValidationError as exc:
        problems = exc.errors(include_url=False, include_context=False, include_input=False)
        raise InvalidRequestError(
            {
                "type": problem["type"],
                "loc": ("body", *problem["loc"]),
                "msg": problem["msg"].removeprefix("Value error, "),
            }
            for problem in problems
        ) from None


def _within(limit: int, text: str) -> str:
    if limit and (size := size_of(text)) > limit:
        raise _too_large(f"the value takes {size:,} bytes as JSON", limit, size)
    return text


def _too_large(what: str, limit: int, size: int | None = None) -> ValueTooLargeError:
    return ValueTooLargeError(
        f"{what}, and max_value_storage_bytes is {limit:,}; keep the data elsewhere and store its location, or have the "
        "server's AIRFLOW__STATE_STORE__MAX_VALUE_STORAGE_BYTES raised (0: no limit)",
        path="value",
        size=size,
        limit=limit,
    )
