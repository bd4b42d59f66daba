"""keepstate as one of Airflow's plugins: what needs to hear of successes, REST, and pages. It loads when DAG files may have been read."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin

from keepstate.integrations.airflow import configuration, hooks

if TYPE_CHECKING:
    from collections.abc import Callable


class _LazyRest:
    """The middleware of `rest`, which loads at the first request: workers load plugins too, and serve none."""

    def __init__(self, app: Any, prefix: str = "") -> None:
        self._app = app
        self._prefix = prefix
        self._real: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or "/state-store" not in scope.get("path", ""):
            await self._app(scope, receive, send)
            return
        if self._real is None:
            # what it imports takes its time, in which others are served
            self._real = await asyncio.to_thread(self._load)
        await self._real(scope, receive, send)

    def _load(self) -> Any:
        from keepstate.integrations.airflow.rest import RestMiddleware

        return RestMiddleware(self._app, self._prefix)


class _LazyPages:
    """The application of `pages`, which loads at the first request too."""

    def __init__(self, *, edits: bool) -> None:
        self._edits = edits
        self._real: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._real is None:
            self._real = await asyncio.to_thread(self._load)
        await self._real(scope, receive, send)

    def _load(self) -> Any:
        from keepstate.integrations.airflow.pages import create_app

        return create_app(_PAGES, edits=self._edits)


_PAGES = "/keepstate"
"""Where the pages are, below Airflow's own address."""


def _listeners() -> list[Any]:
    if hooks.is_below_3_3():
        from keepstate.integrations.airflow import listener

        return [listener]
    if hooks.is_known() and not _is_backend():
        from keepstate.integrations.airflow import leftovers

        return [leftovers]
    # as the backend of 3.3, it is told of all by the API server
    return []


def _is_backend() -> bool:
    return configuration.load().backend == configuration.BACKEND


def _serves_rest() -> bool:
    """Whether the state stores' URLs are keepstate's: Airflow has none below 3.3, and from then on where it is the backend."""
    if hooks.is_airflow_2():
        return False
    return hooks.is_below_3_3() or (hooks.is_known() and _is_backend())


def _middlewares() -> list[dict[str, Any]]:
    if not _serves_rest():
        return []
    from airflow.configuration import conf

    prefix = urlsplit(conf.get("api", "base_url", fallback="") or "").path
    kwargs = {"prefix": prefix}
    return [{"middleware": _LazyRest, "args": [], "kwargs": kwargs, "name": "keepstate's REST"}]


def _is_native() -> bool:
    """Whether Airflow's own pages show and change what is stored, which is keepstate's: so does 3.3, and keeps no history."""
    return not hooks.is_below_3_3()


def _apps() -> list[dict[str, Any]]:
    if not (_serves_rest() and hooks.has_tabs()):
        return []
    app = _LazyPages(edits=_is_native())
    return [{"app": app, "url_prefix": _PAGES, "name": "keepstate's pages"}]


def _tabs() -> list[dict[str, Any]]:
    """Return the tab of each task instance: from 3.3 on it stands beside Airflow's own, and so has another name."""
    if not _apps():
        return []
    address = "dags/{DAG_ID}/runs/{RUN_ID}/tasks/{TASK_ID}/mapped/{MAP_INDEX}"
    return [
        {
            "name": "State History" if _is_native() else "Storage",
            # relative, as Airflow may be below a path
            "href": f"{_PAGES[1:]}/{address}",
            "destination": "task_instance",
            "url_route": "keepstate",
        }
    ]


def _links() -> list[Any]:
    """Return what leads from Airflow's pages to those of `keepstate serve`, where Airflow's own can't show them."""
    if not hooks.is_known() or hooks.has_tabs():
        return []
    pages_url = configuration.load().pages_url
    if pages_url is None:
        return []
    from keepstate.integrations.airflow.links import StorageLink

    return [StorageLink(pages_url)]


def _unless_in_trouble(make: Callable[[], list[Any]]) -> list[Any]:
    """Return what ``make`` makes, or nothing: a plugin that can't be loaded is shown to everybody as broken."""
    try:
        return make()
    except Exception:
        logging.getLogger("keepstate").exception(
            "keepstate's plugin does less than it should in this Airflow"
        )
        return []


class KeepstatePlugin(AirflowPlugin):  # type: ignore[misc]
    """See the module."""

    name = "keepstate"
    listeners = _unless_in_trouble(_listeners)
    fastapi_root_middlewares = _unless_in_trouble(_middlewares)
    fastapi_apps = _unless_in_trouble(_apps)
    external_views = _unless_in_trouble(_tabs)
    global_operator_extra_links = _unless_in_trouble(_links)
