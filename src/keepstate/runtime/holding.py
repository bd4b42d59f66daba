"""Holding a run: which one goes on, or begins, and that of several processes one at most has it."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from keepstate.errors import AccessDeniedError, AlreadyRunningError, UnsupportedError
from keepstate.runtime.attempts import begin
from keepstate.runtime.names import new_run_id
from keepstate.scope import RunScope

if TYPE_CHECKING:
    from keepstate.runtime.attempts import HeldAttempt
    from keepstate.scope import RunInfo
    from keepstate.store import StateStore

log = logging.getLogger("keepstate.runtime")

# how many of a dag's runs, newest first, are searched for one that is unfinished
_LOOK_BACK = 200
# for how long one of two new runs waits for the other to withdraw
_RIVALRY = 2.0
_GLANCE = 0.02


def hold_run(
    store: StateStore,
    dag_id: str,
    run_id: str | None = None,
    *,
    take_over: bool = False,
    guard: int | None = None,
) -> HeldAttempt:
    """Begin and hold a run; without a ``run_id`` the newest unfinished run of the dag, or else a new one.

    A run is unfinished when it was begun as a whole, by this function, and has not succeeded. Raises
    ``AlreadyRunningError`` while a living process holds it, unless ``take_over`` is set.
    """
    if run_id is None:
        known = store.backend.runs(dag_id, limit=_LOOK_BACK)
        found = next((run for run in known if run.state not in {None, "success"}), None)
        if found is None:
            return _hold_new(store, dag_id, {run.run_id for run in known}, guard)
        run_id = found.run_id
        if found is not known[0]:
            log.warning(
                "%s / %s has not succeeded, and goes on, though %s began after it; name a run id to begin another run",
                dag_id,
                run_id,
                known[0].run_id,
            )
    return begin(store, RunScope(dag_id, run_id), take_over=take_over, guard=guard)


def _hold_new(store: StateStore, dag_id: str, known: set[str], guard: int | None) -> HeldAttempt:
    """Begin a new run; of several processes that do so at the same moment, one at most goes on.

    Each begins first and looks around then, so of any two at least one sees the other. The smaller id has precedence,
    but goes on only when the other has withdrawn, and so is erased: the other may not have seen it, and gone on.
    """
    held = begin(store, RunScope(dag_id, new_run_id("manual", store.clock)), guard=guard)
    try:
        _outlast_rivals(held, known)
    except BaseException:
        # nobody else could stop its heart
        held.release()
        raise
    return held


def _outlast_rivals(held: HeldAttempt, known: set[str]) -> None:
    dag_id, run_id = held.scope.dag_id, held.scope.run_id
    deadline = time.monotonic() + _RIVALRY
    while rivals := _rivals(held.store.backend.runs(dag_id, limit=_LOOK_BACK), known, run_id):
        if min(rivals) < run_id or time.monotonic() > deadline:
            _withdraw(held, dag_id, run_id)
            raise AlreadyRunningError(
                f"{RunScope(dag_id, min(rivals))} began at the same moment, and is running; "
                "wait until it ends, or give each run a run id of its own",
                host=None,
                pid=None,
                try_number=None,
            )
        time.sleep(_GLANCE)


def _rivals(runs: list[RunInfo], known: set[str], own: str) -> list[str]:
    """Return which of a dag's newest runs have begun since the ``known`` ones were listed."""
    if len(known) >= _LOOK_BACK:
        # there were more, of which some come into sight when a known one is deleted: below all that is left of these
        below = max((place for place, run in enumerate(runs) if run.run_id in known), default=len(runs))
        runs = runs[:below]
    return [run.run_id for run in runs if run.state is not None and run.run_id not in {*known, own}]


def _withdraw(held: HeldAttempt, dag_id: str, run_id: str) -> None:
    """Erase a run that has just begun; where that can't be done, or is not ours to do, let it stand as failed."""
    try:
        held.store.delete_run(dag_id, run_id)
    except (UnsupportedError, AccessDeniedError):
        held.end("failed", reason="another run began at the same moment")
