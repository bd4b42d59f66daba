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

_AT_ONCE = 1000


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
    found, total = _matching(asked, text, number) if text else _all(asked, number)
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
    found, total = _all(asked, asked.page_number())
    return total, [(dag.dag_id, dag.runs, dag.last_state, dag.updated_at) for dag in found]


def _all(asked: Asked, number: int) -> tuple[list[DagInfo], int]:
    pattern, backend = asked.caller.dags, asked.backend
    found = backend.dags(pattern=pattern, limit=PER_PAGE, offset=(number - 1) * PER_PAGE)
    return found, backend.count_dags(pattern=pattern)


def _matching(asked: Asked, text: str, number: int) -> tuple[list[DagInfo], int]:
    # patterns know upper from lower case, and people who look for something don't
    wanted, matching, offset = text.casefold(), [], 0
    while batch := asked.backend.dags(pattern=asked.caller.dags, limit=_AT_ONCE, offset=offset):
        matching += [dag for dag in batch if wanted in dag.dag_id.casefold()]
        offset += _AT_ONCE
    begin = (number - 1) * PER_PAGE
    return matching[begin : begin + PER_PAGE], len(matching)


def home(asked: Asked) -> Response:
    """Send whoever comes to the front door to the dags."""
    return RedirectResponse(asked.addresses.dags(), 303)


routes = [page("/", home), page(DAGS, show, watch=watch), events(DAGS, watch)]
