"""Options that several commands share, declared once."""

from __future__ import annotations

from typing import Annotated

from keepstate.cli.declared import Argument, Option

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
