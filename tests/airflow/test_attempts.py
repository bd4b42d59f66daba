"""Which attempt a task instance of Airflow's is, and which item it was mapped over."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from keepstate.backends.fencing import is_newer
from keepstate.integrations.airflow import attempts
from keepstate.integrations.airflow.attempts import Begun, attempt_of

BEGAN = datetime(2026, 11, 29, 12, tzinfo=timezone.utc)


@dataclass
class ExpandInput:
    values: dict[str, Any]

    def resolve(self, context: Any) -> tuple[dict[str, Any], set[int]]:
        return self.values, set()


@dataclass
class Task:
    expanded: ExpandInput | None = None
    groups: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.expanded is not None:
            # as in Airflow, only a mapped operator has it
            self._get_specified_expand_input = lambda: self.expanded

    def iter_mapped_task_groups(self) -> Any:
        return iter(self.groups)


@dataclass
class Group:
    _expand_input: ExpandInput


@dataclass
class TaskInstance:
    task: Any
    dag_id: str = "etl"
    run_id: str = "r1"
    task_id: str = "load"
    map_index: int | None = -1
    try_number: int = 1
    id: Any = None
    start_date: datetime | None = None

    def get_template_context(self) -> dict[str, Any]:
        return {"ti": self}


def attempt(**given: Any) -> Any:
    """Return the attempt of a task instance of which this much is given."""
    return attempt_of(Begun.of(TaskInstance(**{"task": Task(), **given})))


def test_from_3_0_on_a_try_has_an_id() -> None:
    """The engine's own id of a try is its attempt id."""
    number = uuid.uuid4()
    assert attempt(id=number, try_number=2, map_index=None).attempt_id == str(number)


@pytest.mark.parametrize("try_number", [0, None])
def test_what_airflow_has_not_counted_yet_is_the_first_try(try_number: Any) -> None:
    """`airflow tasks test` has a task instance that nobody has scheduled, and `airflow tasks render` half of one."""
    assert attempt(try_number=try_number).try_number == 1


def test_on_2_11_the_beginning_of_a_try_makes_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same whenever it is asked for, another for each try and run, and later tries have later ones.

    A try that was rescheduled has none, as Airflow lets it begin anew.
    """
    rescheduled: list[int] = []
    monkeypatch.setattr(attempts, "_was_rescheduled", lambda _scope, try_number: try_number in rescheduled)
    first, again = attempt(start_date=BEGAN), attempt(start_date=BEGAN)
    assert first.attempt_id == again.attempt_id
    assert uuid.UUID(first.attempt_id).version == 7
    later = attempt(start_date=BEGAN + timedelta(seconds=1))
    assert is_newer(later.attempt_id, first.attempt_id)
    others = {attempt(start_date=BEGAN, **{name: other}).attempt_id for name, other in OTHERS}
    assert len(others | {first.attempt_id}) == len(OTHERS) + 1
    assert attempt().attempt_id is None
    rescheduled.append(1)
    assert attempt(start_date=BEGAN).attempt_id is None
    assert attempt(start_date=BEGAN, try_number=2).attempt_id is not None


OTHERS = [("dag_id", "x"), ("run_id", "x"), ("task_id", "x"), ("map_index", 3), ("try_number", 2)]


def test_what_a_task_was_mapped_over_makes_its_item() -> None:
    """Equal values make an equal item, at whatever index; those of a mapped group count, too."""

    def item(values: dict[str, Any], index: int = 0, **more: Any) -> Any:
        return attempt(task=Task(ExpandInput(values), **more), map_index=index).item

    assert item({"page": "a"}) == item({"page": "a"}, index=5) != item({"page": "b"})
    in_group = item({"page": "a"}, groups=[Group(ExpandInput({"host": 1}))])
    assert in_group not in {None, item({"page": "a"})}
    assert attempt(task=Task(groups=[Group(ExpandInput({"host": 1}))]), map_index=0).item is not None
    assert attempt(task=Task()).item is None


@pytest.mark.parametrize("task", [Task(ExpandInput({"when": BEGAN})), Task(), Task(groups=[object()])])
def test_what_is_no_json_leaves_the_state_with_the_index(task: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Values that can't be compared for sure name no item, and the log says what that means."""
    caplog.set_level("INFO", "keepstate")
    assert attempt(task=task, map_index=0).item is None
    assert "etl / r1 / load [0]" in caplog.text
    assert "index" in caplog.text
