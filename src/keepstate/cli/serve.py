"""`keepstate serve`."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from keepstate.cli import options, output
from keepstate.cli.declared import Option
from keepstate.cli.stores import opened
from keepstate.errors import ConfigurationError
from keepstate.settings import Settings

if TYPE_CHECKING:
    import socket

    from keepstate.server.service import Service
    from keepstate.store import StateStore

# A client tries again by itself, and meanwhile must not hold a place here.
_PATIENCE = 5.0
_LOOPBACK = ("127.", "::1", "localhost")


def serve_(
    host: Annotated[
        str,
        Option(
            "--host",
            metavar="ADDRESS",
            help="The address to listen on; 0.0.0.0 means all.",
            default=True,
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        Option(
            "--port",
            metavar="N",
            minimum=0,
            help="The port to listen on; 0 means any free port.",
            default=True,
        ),
    ] = 8484,
    root_path: Annotated[
        str,
        Option(
            "--root-path",
            metavar="PATH",
            help="The path prefix, like /keepstate, under which a proxy serves it.",
            default="/",
        ),
    ] = "",
    quiet: Annotated[bool, Option("--no-access-log", help="Don't print a line for each request.")] = False,
    url: options.Url = None,
) -> None:
    """Serve a store to workers on other machines, REST clients and browsers.

    The first start makes an admin token, writes it to `admin-token` in KEEPSTATE_HOME, and prints a link that logs a
    browser in once. More tokens come from `keepstate token create`.

    Requests are logged on stdout, one line of JSON each; other messages go to stderr. SIGTERM and Ctrl-C stop it
    after the requests that have begun are answered. It speaks plain HTTP: put a proxy with TLS in front of it before
    other machines use it.

    Examples:
      keepstate serve
      KEEPSTATE_URL=postgresql://state@db/state keepstate serve --host 0.0.0.0 --port 8484
    """
    try:
        from keepstate.server import serving
        from keepstate.server.app import create_app, create_service
        from keepstate.server.below import checked
    except ModuleNotFoundError as exc:
        if (exc.name or "").startswith("keepstate"):
            # a broken installation, which no extra mends
            raise
        raise ConfigurationError(
            f"the server needs {exc.name}, which is not installed: pip install 'keepstate[server]'"
        ) from exc
    root = checked(root_path)
    settings = Settings.load()
    with opened(url, replace(settings, retry_timeout=min(settings.retry_timeout, _PATIENCE))) as store:
        service = create_service(store)
        listening = serving.listen(host, port)
        new = serving.first_token(service.tokens, settings)
        _log_requests(quiet=quiet)
        app = create_app(service, cleanup_interval=settings.cleanup_interval, root_path=root)
        try:
            serving.run(
                app,
                listening,
                on_ready=lambda: _welcome(service, store, listening, root, None if new is None else str(new)),
            )
        finally:
            listening.close()
    output.note("ended")


def _welcome(
    service: Service, store: StateStore, listening: socket.socket, root: str, token_file: str | None
) -> None:
    """Say where the server is, and how to get in: called once it answers."""
    from keepstate.server import serving

    host, port = listening.getsockname()[:2]
    reached = f"http://{_reachable(host)}:{port}{root}"
    output.say(f"serving {store.backend.address} at {reached}")
    if not host.startswith(_LOOPBACK):
        output.say(
            "this is plain HTTP: reached from other machines, tokens are safe behind a proxy with TLS only"
        )
    if token_file is not None:
        output.say(f"made an admin token, in {token_file}")
    admin = serving.an_admin(service.tokens)
    if admin is not None and (token_file is not None or output.is_watched()):
        # good for one login in the next ten minutes, so a log that keeps it keeps no secret
        output.say(
            f"log a browser in (once, within 10 minutes): {reached}/login?code={service.tokens.make_login(admin)}"
        )


def _reachable(host: str) -> str:
    """Return a host that listens as a URL of this machine has it."""
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _log_requests(*, quiet: bool) -> None:
    access = logging.getLogger("keepstate.access")
    access.propagate = False
    if not quiet and sys.stdout is not None:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(message)s"))
        access.addHandler(handler)
        access.setLevel(logging.INFO)
    logging.getLogger("keepstate.server").setLevel(logging.INFO)
    # its own messages are about what the client did wrong; errors of ours have a trace, which belongs on stderr
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
