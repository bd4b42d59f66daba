"""What every part of the server stands on, handed to each request."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

from keepstate.server.failures import Failures

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from keepstate.server.metrics import Metrics
    from keepstate.server.tokens import Tokens
    from keepstate.server.work import Work
    from keepstate.store import StateStore


@dataclass(frozen=True)
class Service:
    """The store that is served, and the threads that call it. ``store.clock`` is the time that counts here.

    ``ending`` is set when the server is to end: what would go on for ever, the events of a page, then does.
    """

    store: StateStore
    work: Work
    tokens: Tokens
    metrics: Metrics
    failures: Failures = field(default_factory=Failures)
    ending: Event = field(default_factory=Event)


def service_of(connection: HTTPConnection) -> Service:
    """Return the service that answers this request."""
    service: Service = connection.app.state.service
    return service
