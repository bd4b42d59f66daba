"""The web pages: what every task remembers, to be seen and put right in a browser.

``keepstate.server.app`` mounts them, and inside Airflow its API server does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.web import assets, dags, editing, grid, history, login, runs, search, static, task_instance
from keepstate.web.addresses import ASSETS, DAGS, EVENTS, TASK
from keepstate.web.asked import LARGEST_FORM
from keepstate.web.trouble import of_no_page

if TYPE_CHECKING:
    from keepstate.server.routes import Route

__all__ = ["LARGEST_FORM", "PATHS", "of_no_page", "of_task_instances", "routes"]

PATHS = (f"{DAGS}/", f"{ASSETS}/")
"""Where the paths begin that take forms."""

routes: list[Route] = [
    *login.routes,
    *dags.routes,
    *grid.routes,
    *runs.routes,
    *task_instance.routes,
    *assets.routes,
    *editing.routes,
    *history.routes,
    *search.routes,
    *static.routes,
]
"""What answers browsers. ``docs/reference/web-pages.md`` lists the same paths; a test compares."""

of_task_instances: list[Route] = [
    route for route in routes if route.path.removeprefix(EVENTS).startswith(TASK)
]
"""The pages of task instances alone, for a host whose own pages lead there."""
