"""Options that several commands share, declared once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from keepstate.cli.declared import Argument, Option, Together
from keepstate.scope import RunScope

_SCOPE = "Scope (default: the task that `keepstate run` supervises)"
_STORE = "Which store"

DagId = Annotated[str | None, Option("--dag-id", metavar="ID", help="The dag.", panel=_SCOPE)]
RunId = Annotated[str | None, Option("--run-id", metavar="ID", help="The run.", panel=_SCOPE)]
TaskId = Annotated[str | None, Option("--task-id", metavar="ID", help="The task.", panel=_SCOPE)]
MapIndex = Annotated[
    int | None,
    Option("--map-index", metavar="N", help="The index of a mapped task's instance.", panel=_SCOPE),
]
AssetName = Annotated[
    str | None,
    Option(
        "--asset",
        metavar="NAME",
        help="An asset, by its name, instead of a task instance.",
        panel=_SCOPE,
    ),
]
AssetUri = Annotated[
    str | None, Option("--asset-uri", metavar="URI", help="An asset, by its uri.", panel=_SCOPE)
]


@dataclass(frozen=True)
class Named(Together):
    """Which task instance, run or asset is named."""

    dag_id: DagId = None
    run_id: RunId = None
    task_id: TaskId = None
    map_index: MapIndex = None
    asset: AssetName = None
    asset_uri: AssetUri = None

    @property
    def run(self) -> RunScope | None:
        """The run that is named as a whole, if it is that."""
        if not self.dag_id or not self.run_id or self != Named(self.dag_id, self.run_id):
            return None
        return RunScope(self.dag_id, self.run_id)


NOTHING = Named()
"""None of these options."""

# of commands about a run as a whole
DagOfRun = Annotated[str | None, Option("--dag-id", metavar="ID", help="The run's dag.")]
Run = Annotated[str | None, Option("--run-id", metavar="ID", help="The run.")]

Url = Annotated[
    str | None,
    Option(
        "--url",
        metavar="URL",
        help="The store to use. Other users can see it in the list of processes, so put a URL with a password into the "
        "environment, as KEEPSTATE_URL. Without either: the embedded SQLite file in KEEPSTATE_HOME. airflow: means the store of "
        "the tasks of the Airflow that is installed here.",
        panel=_STORE,
    ),
]
Key = Annotated[str, Argument("KEY", "The entry's key.")]
AsJson = Annotated[bool, Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Don't ask for confirmation.")]
Limit = Annotated[int, Option("--limit", metavar="N", minimum=1, help="Show at most N.", default=True)]
