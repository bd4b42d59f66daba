"""A link from each task instance to keepstate's pages, for Airflow 2.11 and 3.0, whose own pages have no room for them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote


class StorageLink:
    """One of Airflow's operator links, for every operator. It is asked for when somebody looks at a task instance.

    It derives from nothing of Airflow's, whose class for that would be imported with every DAG file.
    """

    name = "Storage"
    operators: tuple[Any, ...] = ()

    def __init__(self, pages_url: str) -> None:
        """Link to the `keepstate serve` at that URL."""
        self._pages_url = pages_url

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return where the page of a task instance is; not by `keepstate.web`, which needs more than 2.11 has."""
        del operator
        dag, run, task = (quote(text, safe="") for text in (ti_key.dag_id, ti_key.run_id, ti_key.task_id))
        address = f"{self._pages_url}/dags/{dag}/runs/{run}/tasks/{task}"
        return address if ti_key.map_index < 0 else f"{address}/mapped/{ti_key.map_index}"
