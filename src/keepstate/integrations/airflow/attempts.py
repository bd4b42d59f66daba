"""Which attempt an Airflow task instance is, and which item it was mapped over."""

from __future__ import annotations

import hashlib
import inspect
import logging
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keepstate.clock import to_micros
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


@dataclass(frozen=True)
class Begun:
    """A task instance as it was when its context was made: what changes later must not change which attempt it is.

    Rendering replaces a mapped operator by the one of this index, which no longer knows what was mapped; and Airflow 2 may
    reread the row of a stale process, which then belongs to a later try.
    """

    ti: Any
    task: Any
    try_number: Any
    start_date: Any

    @classmethod
    def of(cls, ti: Any) -> Begun:
        """Take down a task instance, or half of one, as the scheduler makes them: this raises nothing for these."""
        return cls(ti, ti.task, getattr(ti, "try_number", None), getattr(ti, "start_date", None))


def attempt_of(begun: Begun) -> TaskAttempt:
    """Return the attempt of a task instance."""
    ti = begun.ti
    map_index = -1 if ti.map_index is None else int(ti.map_index)
    scope = TaskScope(ti.dag_id, ti.run_id, ti.task_id, map_index)
    return TaskAttempt(
        scope=scope,
        try_number=counted(begun.try_number),
        attempt_id=_attempt_id(begun, scope),
        item=None if map_index < 0 else item_of(ti, begun.task, scope),
    )


def counted(try_number: Any) -> int:
    """Return the number of a try: `airflow tasks test` and `airflow tasks render` carry one out before Airflow counts any."""
    return max(1, int(try_number or 1))


def _attempt_id(begun: Begun, scope: TaskScope) -> str | None:
    """Return the id of a try: from 3.0 on Airflow's own, a UUIDv7 made anew for each.

    2.11 has none, but a try keeps the moment at which it began, over deferrals too. So one of the same kind is made of that: it
    tells the first try of a run that was deleted and made again from that of the one before. A try that was rescheduled begins
    anew each time, by Airflow's account; it goes by its number alone, and so for what it was when it first began.
    """
    if getattr(begun.ti, "id", None) is not None:
        return str(begun.ti.id)
    if begun.start_date is None or _was_rescheduled(scope, begun.try_number):
        return None
    millis = to_micros(begun.start_date) // 1000
    tail = hashlib.sha256(f"{scope!r} {begun.try_number} {begun.start_date.isoformat()}".encode()).digest()
    low = int.from_bytes(tail[:10], "big")
    bits = (millis << 80) | (0x7 << 76) | ((low >> 64) & 0xFFF) << 64 | (0b10 << 62) | (low & ((1 << 62) - 1))
    return str(uuid.UUID(int=bits))


def _was_rescheduled(scope: TaskScope, try_number: Any) -> bool:
    from airflow.models.taskreschedule import TaskReschedule

    with _session() as session:
        rows = session.query(TaskReschedule.id).filter_by(
            dag_id=scope.dag_id,
            run_id=scope.run_id,
            task_id=scope.task_id,
            map_index=scope.map_index,
            try_number=try_number,
        )
        return rows.first() is not None


@contextmanager
def _session() -> Iterator[Any]:
    """A session of our own on 2.11: the usual one belongs to the thread, and to what the task does with it."""
    from airflow import settings

    session = settings.Session.session_factory()
    try:
        yield session
    finally:
        session.close()


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
    # only mapped operators have it, in every version
    expand_input = getattr(task, "_get_specified_expand_input", None)
    if expand_input is not None:
        yield _resolved(expand_input(), context)
    for group in task.iter_mapped_task_groups():
        yield _resolved(group._expand_input, context)  # noqa: SLF001


def _resolved(expand_input: Any, context: Any) -> dict[str, Any]:
    if "session" not in inspect.signature(expand_input.resolve).parameters:
        return dict(expand_input.resolve(context)[0])
    # 2.11 reads XComs from the database itself
    with _session() as session:
        return dict(expand_input.resolve(context, session)[0])
