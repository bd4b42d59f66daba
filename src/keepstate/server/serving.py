"""Running the application: the socket, the first token, and an end in good order."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from keepstate.connect import embedded_path
from keepstate.errors import ConfigurationError, InvalidInputError
from keepstate.server.protocol import CarefulProtocol
from keepstate.server.roles import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fastapi import FastAPI

    from keepstate.backends.answers import StoredToken
    from keepstate.server.tokens import Tokens
    from keepstate.settings import Settings

GRACE = 30
"""Seconds for which requests that have begun may go on when the server is told to end."""
_KEEP_ALIVE = 65
_LARGEST_PORT = 65_535
_MOST_CONNECTIONS = 1000


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises ``ConfigurationError`` saying which address can't be had, and why."""
    if port > _LARGEST_PORT:
        # the system would take the remainder for one
        raise ConfigurationError(
            f"there are ports up to {_LARGEST_PORT}, not {port}; choose another with --host and --port"
        )
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except (OSError, OverflowError, UnicodeError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise ConfigurationError(
            f"{host}:{port} can't be listened on: {reason}; choose another with --host and --port"
        ) from exc


def run(app: FastAPI, listening: socket.socket, *, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT; then answer what has begun, for at most ``GRACE`` seconds, and return."""
    make_server(app, on_ready=on_ready).run(sockets=[listening])


def make_server(app: FastAPI, *, on_ready: Callable[[], None]) -> Server:
    """Return a server that calls ``on_ready`` once it answers."""
    config = uvicorn.Config(
        app,
        http=CarefulProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
        limit_concurrency=_MOST_CONNECTIONS,
    )
    service = getattr(getattr(app, "state", None), "service", None)
    return Server(config, on_ready, service.ending if service is not None else threading.Event())


class Server(uvicorn.Server):
    """uvicorn's, which also tells when it answers and that it ends, and returns when it is told to end."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], ending: threading.Event) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        if not self.should_exit:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what has begun, and have end what would go on for ever."""
        self._ending.set()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on SIGTERM and SIGINT: by returning. uvicorn's own repeats the signal, and so dies before the store is closed.

        In another thread than the main one there are no signals to take.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def first_token(tokens: Tokens, settings: Settings) -> Path | None:
    """Make an admin token where none is valid, and return the file that it was written to, for its owner's eyes only."""
    file = embedded_path(settings).with_name("admin-token")
    for name in ("admin", *(f"admin-{n}" for n in range(2, 1000))):
        if an_admin(tokens) is not None:
            break
        try:
            # the file comes first: a token that nobody was told of would keep the next start from making one
            tokens.create(name, Role.ADMIN, hand_over=lambda text: _write_for_owner(file, text))
        except InvalidInputError:
            # the name is another token's, perhaps of a server that started at the same moment
            continue
        except OSError as exc:
            raise ConfigurationError(
                f"the first admin token can't be written to {file}: {exc.strerror}; set KEEPSTATE_HOME to another folder",
                variable="KEEPSTATE_HOME",
            ) from exc
        return file
    return None


def _write_for_owner(file: Path, text: str) -> None:
    """Put ``text`` into a file that only its owner may read, in place of whatever was there."""
    beside = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.write(f"{text}\n")
        beside.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def an_admin(tokens: Tokens) -> StoredToken | None:
    """Return the admin token that a login link is made for: the oldest that reaches everything."""
    return next(
        (
            token
            for token in tokens.living()
            if token.role == Role.ADMIN.value and token.dags is None and token.assets is None
        ),
        None,
    )
