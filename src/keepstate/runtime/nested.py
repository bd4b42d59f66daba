"""Calls inside a task: each attempt of the outer task gives them the same names, so that what succeeded is found again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keepstate.runtime.runs import Run


class Names:
    """The names that one call of a task gives to the calls and operators inside it, over all of its attempts here."""

    def __init__(self, run: Run, outer: str) -> None:
        self.run = run
        # under the outer call's id, so that skipping one outer call does not hand its inner results to the next
        self.outer = outer
        self.lock = threading.Lock()
        self.calls: dict[str, list[str]] = {}
        self.operators: dict[str, object] = {}


class Inner:
    """One attempt of the outer call: its calls are counted from the beginning, and get the names of the attempt before."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._calls: dict[str, int] = {}
        self._operators: dict[str, object] = {}

    def name_call(self, run: Run, task_id: str) -> str:
        """Return the task id of the next call: the one that it had in an earlier attempt, if there was one."""
        names = self._names
        if run is not names.run:
            return run.name_call(task_id)[0]
        with names.lock:
            known = names.calls.setdefault(task_id, [])
            number = self._calls.get(task_id, 0)
            self._calls[task_id] = number + 1
            if number == len(known):
                known.append(run.name_call(f"{names.outer}.{task_id}")[0])
            return known[number]

    def claim(self, run: Run, task_id: str, operator: object) -> None:
        """Note that an operator has this task id, as one of an earlier attempt may have had before it."""
        names = self._names
        if run is not names.run:
            run.claim(task_id, operator)
            return
        with names.lock:
            first = names.operators.get(task_id, operator)
            again = self._operators.get(task_id, operator) is operator
            run.claim(task_id, first if again else operator)
            names.operators[task_id] = first
            self._operators[task_id] = operator


def name_call(outer: dict[str, Any] | None, run: Run, task_id: str) -> str:
    """Return the task id of the next call, inside the task whose context ``outer`` is, or in none."""
    return run.name_call(task_id)[0] if outer is None else outer["ti"].inner.name_call(run, task_id)


def claim(outer: dict[str, Any] | None, run: Run, task_id: str, operator: object) -> None:
    """Note that an operator has this task id, inside the task whose context ``outer`` is, or in none."""
    if outer is None:
        run.claim(task_id, operator)
    else:
        outer["ti"].inner.claim(run, task_id, operator)
