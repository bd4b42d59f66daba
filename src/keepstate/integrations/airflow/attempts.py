"""Which attempt an Airflow task instance is, and which item it was mapped over."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keepstate.errors import KeepstateError
from keepstate.scope import TaskScope
from keepstate.values import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("keepstate")


@dataclass(frozen=True)
class TaskAttempt:
    """One try of a task instance of Airflow's. ``attempt_id`` is unique to the try, ``item`` a fingerprint."""

    scope: TaskScope
    try_number: int
    attempt_id: str | None
    item: str | None


def attempt_of(ti: Any, task: Any, try_number: Any) -> TaskAttempt:
    """Return the attempt of a task instance.

    ``task`` and ``try_number`` are as they were before the task was rendered: a mapped operator still knows what it was
    mapped over.
    """
    map_index = -1 if ti.map_index is None else int(ti.map_index)
    scope = TaskScope(ti.dag_id, ti.run_id, ti.task_id, map_index)
    return TaskAttempt(
        scope=scope,
        try_number=int(try_number),
        attempt_id=_attempt_id(ti),
        item=None if map_index < 0 else item_of(ti, task, scope),
    )


def _attempt_id(ti: Any) -> str | None:
    # from 3.0 on, a UUIDv7 made anew for each try; 2.11 has none
    return None if getattr(ti, "id", None) is None else str(ti.id)


def item_of(ti: Any, task: Any, scope: TaskScope) -> str | None:
    """Return the fingerprint of the mapped values at this index, as they were before rendering.

    ``None``, said in the log, where they are no JSON: then the state belongs to the index, as in Airflow 3.3.
    """
    try:
        context = ti.get_template_context()
        values = list(_mapped_values(task, context))
        text = encode(values)
        if not values:
            log.warning(
                "%s has a map index, and nothing that it was mapped over: its state belongs to the index",
                scope,
            )
            return None
    except KeepstateError as exc:
        log.info("The state of %s belongs to its map index, not to its item: %s", scope, exc)
        return None
    except Exception:
        log.warning(
            "The state of %s belongs to its map index, not to its item, as what it was mapped over can't be told",
            scope,
            exc_info=True,
        )
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def _mapped_values(task: Any, context: Any) -> Iterator[dict[str, Any]]:
    """Yield what the task itself was expanded with, and its task group, where there are such."""
    if getattr(task, "is_mapped", False):
        # what the decorator and the plain operator keep in different places
        yield dict(task._get_specified_expand_input().resolve(context)[0])  # noqa: SLF001
    for group in task.iter_mapped_task_groups():
        yield dict(group._expand_input.resolve(context)[0])  # noqa: SLF001
