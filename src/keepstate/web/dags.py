"""The list of dags: where everybody begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from keepstate.web.addresses import DAGS
from keepstate.web.asked import page
from keepstate.web.frame import Crumb
from keepstate.web.live import events
from keepstate.web.paging import PER_PAGE, Pager, pager

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.responses import Response

    from keepstate.scope import DagInfo
    from keepstate.web.asked import Asked
    from keepstate.web.frame import Frame

_AT_ONCE = 1000
_LOOKED_AT = 200


@dataclass(frozen=True)
class DagLine:
    """A dag in the list. ``active_at`` is when its runs, or the tasks of the last one, last changed."""

    dag: DagInfo
    active_at: datetime


@dataclass(frozen=True)
class Dags:
    """The dags that have runs, or those of them whose id has ``text`` in it."""

    frame: Frame
    text: str
    lines: tuple[DagLine, ...]
    pager: Pager


def show(asked: Asked) -> Response:
    """Show the dags."""
    text, number = asked.query("q").strip(), asked.page_number()
    found, total = _matching(asked, text, number) if text else _all(asked, number)
    addresses = asked.addresses
    context = Dags(
        asked.frame("Dags", "dags", Crumb("Dags")),
        text,
        tuple(_line(asked, dag) for dag in found),
        pager(addresses.dags(), number, total, q=text),
    )
    return asked.answer(context, "dags.html", "_dags.html")


def _line(asked: Asked, dag: DagInfo) -> DagLine:
    # a run's own row is not touched by what its tasks do
    newest = asked.backend.task_instances(
        dag.dag_id, dag.last_run_id, now=asked.store.clock(), limit=_LOOKED_AT
    )
    return DagLine(dag, max(dag.updated_at, *(info.updated_at for info in newest), dag.last_created_at))


def watch(asked: Asked) -> object:
    """Return what changes when the list does."""
    found, total = _all(asked, asked.page_number())
    return total, [
        (line.dag.dag_id, line.dag.runs, line.dag.last_state, line.active_at)
        for line in (_line(asked, dag) for dag in found)
    ]


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
