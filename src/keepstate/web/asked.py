"""A browser's request, and what stands around every page: who asks, whether they may, and how trouble is shown."""

from __future__ import annotations

import re
from binascii import a2b_qp
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from keepstate.scope import Writer
from keepstate.server.auth import caller_of
from keepstate.server.limits import body_within
from keepstate.server.roles import ROLES, Right
from keepstate.server.routes import Route
from keepstate.server.service import service_of
from keepstate.web import trouble
from keepstate.web.addresses import Addresses
from keepstate.web.frame import Crumb, Frame, here
from keepstate.web.marks import digest
from keepstate.web.rendering import render

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from keepstate.backends.base import Backend
    from keepstate.server.roles import Caller
    from keepstate.server.service import Service
    from keepstate.settings import Settings
    from keepstate.store import StateStore

    Watch = Callable[["Asked"], object]
    """Returns what changes when the page does: anything that JSON can hold, or that has a text."""

    Endpoint = Callable[[Request], Awaitable[Response]]

LARGEST_FORM = 64 * 1024 * 1024
"""Bytes of a form: it writes a byte of a value in three, and a task may have stored 16 MiB."""

# taking this much apart takes longer than switching threads
_LARGE_FORM = 100_000
_MOST_FIELDS = 50
_NO_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_LAST_PAGE = 10**9
_PAGE_NUMBER = re.compile(r"[0-9]{1,12}", re.ASCII)
_NOT_FOUND = 404


@dataclass(frozen=True)
class Asked:
    """A request, who sent it, and what it is answered from."""

    request: Request
    caller: Caller
    service: Service
    fields: Mapping[str, str] = field(default_factory=dict)
    mark: str = ""

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
        return Writer("web", name=self.caller.name)

    @property
    def addresses(self) -> Addresses:
        """Where the other pages are."""
        return Addresses(self.request.scope.get("root_path", ""))

    @property
    def may_write(self) -> bool:
        """Whether the caller sees what changes something."""
        return Right.WRITE in ROLES[self.caller.role]

    @property
    def may_edit(self) -> bool:
        """Whether entries are changed here, and not in the pages of the host around them."""
        return self.may_write and not (self.service.host and self.service.host.edits)

    @property
    def host(self) -> str:
        """The program whose pages these are part of; empty where they stand alone."""
        return self.service.host.name if self.service.host else ""

    @property
    def part_only(self) -> bool:
        """Whether a script asks for the part of the page that changes, to put it in the place of the one there."""
        headers = self.request.headers
        return "hx-request" in headers and "hx-history-restore-request" not in headers

    def path(self, name: str) -> str:
        """Return a part of the path."""
        found: str = self.request.path_params[name]
        return found

    def query(self, name: str) -> str:
        """Return a parameter of the query; absent is empty."""
        return self.request.query_params.get(name, "")

    def page_number(self) -> int:
        """Return which page of a list is asked for, from 1; what is no number is the first."""
        text = self.query("page")
        return min(max(int(text), 1), _LAST_PAGE) if _PAGE_NUMBER.fullmatch(text) else 1

    def frame(self, title: str, section: str, *crumbs: Crumb, text: str = "") -> Frame:
        """Return what stands around a page."""
        return Frame(
            title,
            self.caller.name,
            self.caller.role.value,
            self.addresses,
            section,
            here(self.request),
            crumbs,
            text,
            self.mark,
            self.host,
        )

    def answer(self, page: Any, template: str, part: str, status: int = 200) -> Response:
        """Return the page, or only its part where a script asked."""
        return HTMLResponse(render(part if self.part_only else template, page), status)


def page(
    path: str,
    call: Callable[[Asked], Response],
    *,
    right: Right = Right.READ,
    method: str = "GET",
    watch: Watch | None = None,
    largest: Callable[[Settings], int] = lambda _: LARGEST_FORM,
) -> Route:
    """Make the route of a page. ``call`` runs on a thread of the store's: one that writes, for a POST that needs to.

    ``watch`` returns what changes when the page does, where that is followed live; ``largest`` how many bytes a form may have.
    Who is not known is sent to log in; whoever lacks the ``right``, and what is not there, is told so on a page.
    """

    async def endpoint(request: Request) -> Response:
        try:
            caller = await caller_of(request)
            caller.require(right)
            service = service_of(request)
            fields = await _fields(request, service, largest(service.store.settings))
            asked, work = Asked(request, caller, service, fields), service.work
            run = work.write if method == "POST" and right is not Right.READ else work.read
            return await run(_carried_out, call, asked, watch)
        except Exception as exc:  # noqa: BLE001 - whatever it is, a person waits for a page
            return trouble.answer(request, exc)

    return Route(path, endpoint, methods=[method])


def _carried_out(call: Callable[[Asked], Response], asked: Asked, watch: Watch | None) -> Response:
    # looked for before the page is read: what changes in between is then seen twice, and not missed
    return call(asked if watch is None else replace(asked, mark=digest(watch(asked))))


def not_found(what: str) -> HTTPException:
    """Make the answer for what is not there, as far as the caller can know."""
    return HTTPException(_NOT_FOUND, f"This {what} does not exist, or you are not allowed to see it.")


async def _fields(request: Request, service: Service, largest: int) -> dict[str, str]:
    if request.method != "POST":
        return {}
    body = await body_within(request, largest)
    # a large one would keep all others waiting
    return fields_of(body) if len(body) < _LARGE_FORM else await service.work.read(fields_of, body)


def fields_of(body: bytes) -> dict[str, str]:
    """Return the fields of a form, as a browser sends it. Answers 400 for what is none.

    `urllib.parse` makes an object of each escaped byte: of a form of 60 MB, gigabytes, and that for seconds.
    """
    unreadable = HTTPException(400, "The form can't be read. Reload the page and try again.")
    if body.count(b"&") >= _MOST_FIELDS or _NO_ESCAPE.search(body):
        raise unreadable
    pairs = (field.partition(b"=") for field in body.split(b"&") if field)
    try:
        return {_plain(name): _plain(value) for name, _, value in pairs}
    except ValueError:
        raise unreadable from None


def _plain(text: bytes) -> str:
    # quoted-printable is the same but for its sign, and is undone by C
    return a2b_qp(text.replace(b"+", b" ").replace(b"=", b"%3D").replace(b"%", b"=")).decode()
