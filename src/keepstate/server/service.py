"""What every part of the server stands on, handed to each request."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Protocol

from keepstate.server.failures import Failures

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection, Request

    from keepstate.server.metrics import Metrics
    from keepstate.server.roles import Caller
    from keepstate.server.tokens import Tokens
    from keepstate.server.work import Work
    from keepstate.store import StateStore


class Host(Protocol):
    """A program that this is part of: its users come here, and its pages stand around ours.

    ``name`` is for people. ``edits``: its own pages change entries already, so ours don't show that a second time.
    """

    name: str
    edits: bool

    async def caller_of(self, request: Request) -> Caller:
        """Return who sent a request, as the host knows them."""


@dataclass(frozen=True)
class Service:
    """The store that is served, and the threads that call it. ``store.clock`` is the time that counts here.

    ``ending`` is set when the server is to end: what would go on for ever, the events of a page, then does.
    Without a ``host``, tokens say who somebody is, and pages have a login and a navigation of their own.
    """

    store: StateStore
    work: Work
    tokens: Tokens
    metrics: Metrics
    failures: Failures = field(default_factory=Failures)
    ending: Event = field(default_factory=Event)
    host: Host | None = None


def service_of(connection: HTTPConnection) -> Service:
    """Return the service that answers this request."""
    service: Service = connection.app.state.service
    return service
