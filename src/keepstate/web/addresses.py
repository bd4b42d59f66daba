"""Where each page is. The paths mirror Airflow's, so they can be guessed; ids are percent-encoded here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from keepstate.scope import TaskScope

DAGS = "/dags"
DAG = DAGS + "/{dag_id}"
RUN = DAG + "/runs/{run_id}"
TASK = RUN + "/tasks/{task_id}"
MAPPED = TASK + "/mapped/{map_index}"
EVENTS = "/events"
"""Below this, at a page's own path, are its events."""

ASSETS = "/assets"
ASSET = ASSETS + "/{asset_id}"


@dataclass(frozen=True)
class Addresses:
    """Addresses below ``prefix``, the path that a proxy serves the pages under ("" at the root)."""

    prefix: str = ""

    def dags(self) -> str:
        """Return where the dags are listed."""
        return self.prefix + DAGS

    def dag(self, dag_id: str) -> str:
        """Return where a dag's grid is."""
        return f"{self.dags()}/{_part(dag_id)}"

    def run(self, dag_id: str, run_id: str) -> str:
        """Return where a run's task instances are listed."""
        return f"{self.dag(dag_id)}/runs/{_part(run_id)}"

    def task(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Return where a task instance is, or the mapped ones of the task are listed."""
        return f"{self.run(dag_id, run_id)}/tasks/{_part(task_id)}"

    def task_instance(self, scope: TaskScope) -> str:
        """Return where a task instance is."""
        task = self.task(scope.dag_id, scope.run_id, scope.task_id)
        return task if scope.map_index < 0 else f"{task}/mapped/{scope.map_index}"

    def assets(self) -> str:
        """Return where the assets are listed."""
        return self.prefix + ASSETS

    def asset(self, asset_id: int) -> str:
        """Return where an asset is."""
        return f"{self.assets()}/{asset_id}"

    def search(self) -> str:
        """Return where the search is."""
        return f"{self.prefix}/search"

    def login(self, target: str) -> str:
        """Return where a browser logs in, to go on to ``target``."""
        return with_query(f"{self.prefix}/login", next=target)

    def events(self, here: str) -> str:
        """Return where the events of the page at ``here`` are."""
        return self.prefix + EVENTS + here.removeprefix(self.prefix)

    def logout(self) -> str:
        """Return where a browser logs out."""
        return f"{self.prefix}/logout"


def with_query(path: str, **query: object) -> str:
    """Return a path with a query; what is ``None`` or empty is left out."""
    given = {name: value for name, value in query.items() if value not in {None, ""}}
    return f"{path}?{urlencode(given)}" if given else path


def _part(text: str) -> str:
    return quote(text, safe="")
