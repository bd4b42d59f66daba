"""keepstate as one of Airflow's plugins: what needs to hear of successes, and REST. It loads when DAG files may have been read."""

from __future__ import annotations

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
            from keepstate.integrations.airflow.rest import RestMiddleware

            self._real = RestMiddleware(self._app, self._prefix)
        await self._real(scope, receive, send)


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
