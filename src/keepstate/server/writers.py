"""Who wrote something, as far as a caller may know it: of a task out of its reach, only that it was one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from keepstate.scope import Writer, writer_of

if TYPE_CHECKING:
    from keepstate.backends.answers import ChangeNotice, StoredEntry, StoredVersion
    from keepstate.server.roles import Caller

    Written = TypeVar("Written", StoredEntry, StoredVersion, ChangeNotice)


def writer_for(caller: Caller, text: str | None) -> Writer | None:
    """Return the writer that a stored text names, without the ids of a task that the caller does not reach.

    ``None`` is for nobody known, and for a text that names nobody: it must not keep what was written from its readers.
    """
    writer = writer_of(text)
    if writer is None:
        return None
    dag_id: Any = writer.dag_id
    if dag_id is None or (type(dag_id) is str and caller.reaches_dag(dag_id)):
        return writer
    return Writer(writer.kind)


def written_for(caller: Caller, verb: str, answer: Any) -> Any:
    """Return the answer to a verb with the writers in it as the caller may know them."""
    if caller.dags is None or answer is None:
        return answer
    if verb == "read":
        return replace(answer, entries=tuple(_for(caller, one) for one in answer.entries))
    if verb == "history":
        return [_for(caller, one) for one in answer]
    if verb == "changes":
        version, notices = answer
        return version, [_for(caller, one) for one in notices]
    return answer


def _for(caller: Caller, one: Written) -> Written:
    # most writers name no task: those of a task's own entries leave out what the scope says already
    if one.writer is None or '"dag_id"' not in one.writer:
        return one
    writer = writer_for(caller, one.writer)
    return replace(one, writer=None if writer is None else writer.to_text())
