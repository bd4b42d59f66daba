"""The server of these tests: the real application on a real socket of loopback, in a thread beside the test."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from keepstate.server import serving
from keepstate.server.app import create_app, create_service
from keepstate.server.roles import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI

    from keepstate.server.health import Health
    from keepstate.server.service import Service
    from keepstate.store import StateStore


class Served:
    """A server that is running: where it is, what it stands on, and tokens for it."""

    def __init__(self, service: Service, app: FastAPI, url: str) -> None:
        self.service = service
        self.app = app
        self.url = url
        self.health: Health = app.state.health

    def token(self, role: str = "admin", dags: str | None = None, **more: Any) -> str:
        """Make a token."""
        names = {token.name for token in self.service.tokens.all()}
        return self.service.tokens.create(f"{role}-{len(names)}", Role(role), dags=dags, **more)

    def headers(self, role: str = "admin", dags: str | None = None, **more: Any) -> dict[str, str]:
        """Make a token, as the headers that carry it."""
        return {"Authorization": f"Bearer {self.token(role, dags, **more)}"}


@contextmanager
def serving_store(store: StateStore, **options: Any) -> Iterator[Served]:
    """Serve a store until the block is left."""
    service = create_service(store)
    app = create_app(service, **options)
    with running(app) as url:
        yield Served(service, app, url)


@contextmanager
def running(app: Any) -> Iterator[str]:
    """Serve an application on a free port of loopback; the block gets its URL."""
    listening = serving.listen("127.0.0.1", 0)
    ready = threading.Event()
    server = serving.make_server(app, on_ready=ready.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert ready.wait(20), "the server did not start"
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(40)
        listening.close()
        assert not thread.is_alive(), "the server did not end"
