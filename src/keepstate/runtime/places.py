"""Which task instance a supervised command is, and whether it is the run too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.errors import InvalidInputError
from keepstate.runtime.names import program_name
from keepstate.runtime.runs import supervised_attempt
from keepstate.scope import TaskScope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keepstate.settings import Settings


class Place:
    """A command's task instance. ``is_run``: it is the run as well; a ``run_id`` of ``None`` is yet to be chosen."""

    def __init__(
        self,
        around: Settings,
        command: Sequence[str],
        dag_id: str | None,
        run_id: str | None,
        task_id: str | None,
        map_index: int,
    ) -> None:
        """Take the ids that are given; for the others the supervised attempt ``around``, or the program's name.

        Raises ``InvalidIdError``, and ``InvalidInputError`` where it would be the command around it.
        """
        name = program_name(command)
        supervised = supervised_attempt(around)
        inside = dag_id is None and run_id is None and supervised is not None
        if inside:
            dag_id, run_id = around.dag_id, around.run_id
        self.dag_id = dag_id or name
        self.run_id = run_id
        self.is_run = not inside and (run_id is None or task_id is None)
        self._task_id = task_id or name
        self._map_index = map_index
        # ids are checked before anything is begun
        scope = self.scope("any")
        if inside and (scope.task_id, map_index) == (around.task_id, around.map_index):
            raise InvalidInputError(
                f"{self.scope()} is the command that this one is part of; give this one a --task-id of its own"
            )

    def scope(self, run_id: str = "") -> TaskScope:
        """Return the task instance; in ``run_id``, where none was given."""
        return TaskScope(self.dag_id, self.run_id or run_id, self._task_id, self._map_index)
