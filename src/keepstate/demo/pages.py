"""The pages over what the stories left behind, on this machine only, until somebody presses Ctrl-C."""

from __future__ import annotations

import webbrowser
from typing import TYPE_CHECKING

from keepstate.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.store import StateStore


def check() -> None:
    """Raise ``ConfigurationError`` where there is no server to show pages with."""
    try:
        import keepstate.server.app  # noqa: F401 - whether it can be
    except ModuleNotFoundError as exc:
        raise ConfigurationError(
            f"the pages need {exc.name}, which is not installed: pip install 'keepstate[server]'"
        ) from exc


def serve(store: StateStore, say: Callable[[str], None]) -> None:
    """Serve the pages at a free port of loopback, and open them where there is a browser with windows."""
    from keepstate.server import serving
    from keepstate.server.app import create_app, create_service
    from keepstate.server.roles import Role

    service = create_service(store)
    service.tokens.create("demo", Role.ADMIN)
    listening = serving.listen("127.0.0.1", 0)
    login = service.tokens.make_login(service.tokens.living()[0])
    link = f"http://127.0.0.1:{listening.getsockname()[1]}/login?code={login}"

    def ready() -> None:
        say(link)
        _open(link)

    try:
        serving.run(create_app(service), listening, on_ready=ready)
    finally:
        listening.close()


def _open(link: str) -> None:
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return
    # one of this very class draws in the terminal, where the demo is
    if type(browser) is not webbrowser.GenericBrowser:
        browser.open(link)
