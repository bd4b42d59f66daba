"""``task_state_store`` and ``asset_state_store`` in the context of Airflow's tasks."""

from __future__ import annotations

import functools
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from keepstate.integrations.airflow.lazy import Lazy

if TYPE_CHECKING:
    from types import ModuleType

    from keepstate.integrations.airflow.attempts import Begun
    from keepstate.integrations.airflow.stores import Desk

log = logging.getLogger("keepstate")

_KEPT = "_keepstate_stores"

NAMES = ("task_state_store", "asset_state_store")


def admit_names(module: ModuleType) -> None:
    """Let TaskFlow functions have parameters of these names that are filled from the context."""
    known = module.__dict__.get("KNOWN_CONTEXT_KEYS")
    if known is not None:
        known.update(NAMES)


def extend_task_runner(module: ModuleType) -> None:
    """Offer the stores to the tasks of Airflow 3."""
    kind = module.__dict__["RuntimeTaskInstance"]
    get_template_context = kind.get_template_context

    @functools.wraps(get_template_context)
    def with_stores(self: Any) -> Any:
        context = get_template_context(self)
        _offer(context, self)
        return context

    kind.get_template_context = with_stores
    _flush_at_the_end(module)


def extend_task_runner_of_3_3(module: ModuleType) -> None:
    """Put keepstate's own accessors, with all their verbs, where Airflow 3.3 has its own.

    Only where keepstate is Airflow's backend and the task can reach its store directly, at ``KEEPSTATE_URL``: else all
    stays as Airflow made it.
    """
    kind = module.__dict__["RuntimeTaskInstance"]
    get_template_context = kind.get_template_context

    @functools.wraps(get_template_context)
    def with_stores(self: Any) -> Any:
        context = get_template_context(self)
        with suppress(Exception):
            from keepstate.integrations.airflow import configuration

            if configuration.is_direct():
                context.update(_stores_of(self))
        return context

    kind.get_template_context = with_stores
    _flush_at_the_end(module)


def extend_models(module: ModuleType) -> None:
    """Offer the stores to the tasks of Airflow 2.11."""
    get_template_context = module.__dict__["_get_template_context"]

    @functools.wraps(get_template_context)
    def with_stores(**given: Any) -> Any:
        context = get_template_context(**given)
        _offer(context, given.get("task_instance"))
        return context

    module.__dict__["_get_template_context"] = with_stores
    _flush_at_the_end(module)
    _leave_when_stale(module)


def _flush_at_the_end(module: ModuleType) -> None:
    """Have what throttled checkpoints hold back written before Airflow hears how the attempt ended."""
    execute_task = module.__dict__["_execute_task"]

    @functools.wraps(execute_task)
    def then_flush(*args: Any, **given: Any) -> Any:
        try:
            return execute_task(*args, **given)
        finally:
            _flush()

    module.__dict__["_execute_task"] = then_flush


def _leave_when_stale(module: ModuleType) -> None:
    """Have a superseded attempt end without a word to Airflow, which on 2.11 would take it for the current one's.

    There the end of an attempt is written into the row of the task instance, whoever writes: a failure would put the task
    up for retry, and a success end it, while the good attempt runs.
    """
    execute_task = module.__dict__["_execute_task"]

    @functools.wraps(execute_task)
    def or_leave(task_instance: Any, *args: Any, **given: Any) -> Any:
        # one that Airflow has forked for this attempt; `airflow dags test`, and tests, have no job to run in
        is_forked = getattr(task_instance, "job_id", None) is not None
        try:
            return execute_task(task_instance, *args, **given)
        finally:
            if is_forked:
                from keepstate.integrations.airflow import stale

                # whatever the task made of the error, by then it knows, and nothing of it counts any more
                stale.leave_if_noticed()

    module.__dict__["_execute_task"] = or_leave


def _flush() -> None:
    from keepstate.integrations.airflow import stores

    try:
        stores.flush()
    except Exception:
        # the task's own outcome stands: what is lost is how far a checkpoint had come since it was last written
        log.exception("what a checkpoint of this task held back could not be written")


def _offer(context: Any, ti: Any) -> None:
    """Put the stores into a context that has none; whatever Airflow hands over, this raises nothing."""
    with suppress(Exception):
        if NAMES[0] not in context:
            context.update(_stores_of(ti))


def stores_of_process(ti: Any) -> dict[str, Lazy] | None:
    """Return the accessors of a task instance that this process carries out, and ``None`` for one it only looks at."""
    kept: dict[str, Lazy] | None = vars(ti).get(_KEPT)
    return kept


def _stores_of(ti: Any) -> dict[str, Lazy]:
    """Return the accessors of a task instance: the same ones in each of its contexts, of which 3.0 makes several.

    They are kept where a cached property would be: with the task instance, for as long as that one lives.
    """
    kept: dict[str, Any] = vars(ti)
    stores: dict[str, Lazy] | None = kept.get(_KEPT)
    if stores is None:
        from keepstate.integrations.airflow.attempts import Begun

        desk = functools.cache(functools.partial(_desk, Begun.of(ti)))
        stores = kept[_KEPT] = {
            NAMES[0]: Lazy(NAMES[0], lambda: desk().task_state_store()),
            NAMES[1]: Lazy(NAMES[1], lambda: desk().asset_state_store()),
        }
    return stores


def _desk(begun: Begun) -> Desk:
    from keepstate.integrations.airflow.stores import Desk

    return Desk(begun)
