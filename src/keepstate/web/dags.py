"""The list of dags: where everybody begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from keepstate.backends.answers import MOST_RUNS_COUNTED
from keepstate.web.addresses import DAGS
from keepstate.web.asked import page
from keepstate.web.frame import Crumb
from keepstate.web.live import events
from keepstate.web.paging import PER_PAGE, Pager, pager

if TYPE_CHECKING:
    from starlette.responses import Response

    from keepstate.scope import DagInfo
    from keepstate.web.asked import Asked
    from keepstate.web.frame import Frame


@dataclass(frozen=True)
class Dags:
    """The dags that have runs, or those of them whose id has ``text`` in it; ``most_runs`` may be more of a dag."""

    frame: Frame
    text: str
    dags: tuple[DagInfo, ...]
    most_runs: int
    pager: Pager


def show(asked: Asked) -> Response:
    """Show the dags."""
    text, number = asked.query("q").strip(), asked.page_number()
    found, total = _listed(asked)
    addresses = asked.addresses
    context = Dags(
        asked.frame("Dags", "dags", Crumb("Dags")),
        text,
        tuple(found),
        MOST_RUNS_COUNTED,
        pager(addresses.dags(), number, total, q=text),
    )
    return asked.answer(context, "dags.html", "_dags.html")


def watch(asked: Asked) -> object:
    """Return what changes when the list does."""
    found, total = _listed(asked)
    return total, [(dag.dag_id, dag.runs, dag.last_state, dag.updated_at) for dag in found]


def _listed(asked: Asked) -> tuple[list[DagInfo], int]:
    text, number = asked.query("q").strip(), asked.page_number()
    return _matching(asked, text, number) if text else _all(asked, number)


def _all(asked: Asked, number: int) -> tuple[list[DagInfo], int]:
    pattern, backend = asked.caller.dags, asked.backend
    found = backend.dags(pattern=pattern, limit=PER_PAGE, offset=(number - 1) * PER_PAGE)
    return found, backend.count_dags(pattern=pattern)


def _matching(asked: Asked, text: str, number: int) -> tuple[list[DagInfo], int]:
    # patterns know upper from lower case, and people who look for something don't; ids alone take a database far less
    wanted, ids = text.casefold(), asked.backend.dag_ids(pattern=asked.caller.dags)
    places = [place for place, dag_id in enumerate(ids) if wanted in dag_id.casefold()]
    begin = (number - 1) * PER_PAGE
    shown = places[begin : begin + PER_PAGE]
    if not shown:
        return [], len(places)
    found = asked.backend.dags(pattern=asked.caller.dags, limit=shown[-1] - shown[0] + 1, offset=shown[0])
    return [dag for dag in found if wanted in dag.dag_id.casefold()][:PER_PAGE], len(places)


def home(asked: Asked) -> Response:
    """Send whoever comes to the front door to the dags."""
    return RedirectResponse(asked.addresses.dags(), 303)


routes = [page("/", home), page(DAGS, show, watch=watch), events(DAGS, watch)]
