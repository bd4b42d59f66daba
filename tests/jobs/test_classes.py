"""The shapes of classes that derive from the mixin."""

from __future__ import annotations

import functools
import inspect
import logging
from abc import ABCMeta
from typing import Any

import pytest

from keepstate.jobs import ResumableJobMixin
from tests.jobs.clouds import Cloud, CrashError, FindingOperator, Operator


class PlainOperator:
    """What an operator's base looks like: keyword arguments, and none left over."""

    def __init__(self, *, task_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.task_id = task_id
        self.log = logging.getLogger(f"operators.{task_id}")


class Hook:
    """What a hook of a job system looks like."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}

    def submit(self) -> str:
        job = f"my-{len(self.states) + 1}"
        self.states[job] = "PENDING"
        return job

    def get_status(self, job: str) -> str:
        return self.states[job]

    def wait(self, job: str) -> None:
        self.states[job] = "SUCCEEDED"


class GuideShapedOperator(ResumableJobMixin, PlainOperator):
    """The shape of the guide's example: the mixin first, six methods, nothing else of ours."""

    external_id_key = "my_job_id"
    hook = Hook()

    def execute(self, context):
        return self.execute_resumable(context)

    def submit_job(self, context) -> str:
        return self.hook.submit()

    def get_job_status(self, external_id, context) -> str:
        return self.hook.get_status(external_id)

    def is_job_active(self, status: str) -> bool:
        return status in ("RUNNING", "PENDING")

    def is_job_succeeded(self, status: str) -> bool:
        return status == "SUCCEEDED"

    def poll_until_complete(self, external_id, context) -> None:
        self.hook.wait(external_id)

    def get_job_result(self, external_id, context) -> Any:
        return None


def test_the_guide_s_shape_of_a_class_works(attempt, person, caplog) -> None:
    """A class written as in the guide submits once, reconnects, collects, and resubmits what failed."""
    caplog.set_level(logging.INFO)
    hook = GuideShapedOperator.hook = Hook()
    operator = GuideShapedOperator(task_id="shaped")
    assert (operator.task_id, operator.durable) == ("shaped", True)
    operator.record_submission(attempt(1), hook.submit())
    assert operator.execute(attempt(2)) is None
    assert hook.states == {"my-1": "SUCCEEDED"}
    assert operator.execute(attempt(3)) is None
    hook.states["my-1"] = "KILLED"
    assert operator.execute(attempt(4)) is None
    assert hook.states == {"my-1": "KILLED", "my-2": "SUCCEEDED"}
    assert person.get("my_job_id") == "my-2"
    assert {record.name for record in caplog.records} == {"operators.shaped"}


def test_durable_is_taken_out_of_the_operator_s_arguments() -> None:
    """The argument durable is the mixin's, everything else goes on to the operator."""
    assert GuideShapedOperator(task_id="t", durable=False).durable is False
    with pytest.raises(TypeError):
        GuideShapedOperator(task_id="t", unheard_of=1)
    with pytest.raises(TypeError):
        GuideShapedOperator()


def test_the_mixin_may_come_second() -> None:
    """A class whose base does not pass arguments on is durable all the same."""

    class Base:
        def __init__(self, task_id: str) -> None:
            self.task_id = task_id

    class Second(Base, GuideShapedOperator):
        pass

    assert Second("t").durable is True


def test_positional_arguments_go_on_to_the_operator() -> None:
    """Outside Airflow an operator may take positional arguments."""

    class Base:
        def __init__(self, task_id: str) -> None:
            self.task_id = task_id

    class Positional(ResumableJobMixin, Base):
        submit_job = get_job_status = is_job_active = is_job_succeeded = None  # type: ignore[assignment]
        poll_until_complete = get_job_result = None  # type: ignore[assignment]

    operator = Positional("t", durable=False)
    assert (operator.task_id, operator.durable) == ("t", False)


@pytest.mark.parametrize("missing", sorted(ResumableJobMixin.__abstractmethods__))
def test_six_methods_have_to_be_written(missing) -> None:
    """A class that lacks one of the guide's six methods can't be made."""
    bodies = {name: lambda *_: None for name in ResumableJobMixin.__abstractmethods__ - {missing}}
    with pytest.raises(TypeError, match=missing):
        type("Incomplete", (ResumableJobMixin,), bodies)()
    assert len(bodies) == 5


def test_find_job_may_be_inherited(attempt) -> None:
    """find_job is an ordinary method: of the class, of its base, or of another mixin."""

    class Search:
        def find_job(self, token, context):
            return self.cloud.find(token)  # type: ignore[attr-defined]

    class Searching(Search, Operator):
        pass

    class Inheriting(FindingOperator):
        def find_job(self, token, context):
            return super().find_job(token, context)

    for number, kind in enumerate((Searching, Inheriting), start=1):
        cloud = Cloud()
        context = {"task_state_store": attempt(1)["task_state_store"]}
        context["task_state_store"].clear()
        with pytest.raises(CrashError):
            kind(cloud, crash="submit").execute(context)
        assert kind(cloud).execute(context) == {"result of": "job-1"}
        assert len(cloud.jobs) == 1, number


def test_other_bases_hear_of_a_new_class_too() -> None:
    """The mixin passes the making of a class, and its arguments, on to the other bases."""
    heard = []

    class Registry:
        def __init_subclass__(cls, *, label: str = "", **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            heard.append((cls.__name__, label))

    class Registered(ResumableJobMixin, Registry, label="x"):
        pass

    assert heard == [("Registered", "x")]


def test_a_class_that_names_its_own_init_keeps_it() -> None:
    """Deriving from the mixin gives a plain class no __init__ of ours."""
    assert "__init__" not in vars(GuideShapedOperator)
    assert GuideShapedOperator.__init__ is ResumableJobMixin.__init__


# ------------------------------------------------------------------------------------------ where an engine wraps inits


class WrappingMeta(ABCMeta):
    """Wraps a class's own __init__ as Airflow's metaclass does, and as strictly: the outermost has to be wrapped.

    The real one is tried in test_airflow.py, which takes minutes.
    """

    @classmethod
    def _apply_defaults(cls, init):
        names = set(inspect.signature(init).parameters)

        @functools.wraps(init)
        def wrapper(self, *, default_args=None, **kwargs):
            defaults = {**DAG_DEFAULTS, **(default_args or {})}
            kwargs = {**{name: defaults[name] for name in names & defaults.keys()}, **kwargs}
            init(self, **kwargs, default_args=defaults)
            self.instantiated = init == self.__init__.__wrapped__

        return wrapper

    def __new__(cls, name, bases, namespace):
        made = super().__new__(cls, name, bases, namespace)
        if made.__init__ is not made.mro()[1].__init__:
            made.__init__ = cls._apply_defaults(made.__init__)
        return made


DAG_DEFAULTS: dict[str, Any] = {}


class WrappedBase(metaclass=WrappingMeta):
    def __init__(self, *, task_id: str, default_args: Any = None) -> None:
        self.task_id = task_id


class Between(ResumableJobMixin):
    """A base between the mixin and the operator."""

    submit_job = get_job_status = is_job_active = is_job_succeeded = None  # type: ignore[assignment]
    poll_until_complete = get_job_result = None  # type: ignore[assignment]


class Left(Between, WrappedBase):
    """Leaves __init__ to the mixin."""


class Named(Between, WrappedBase):
    """Has an __init__ of its own."""

    def __init__(self, *, command: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.command = command


class Derived(Named):
    """Leaves __init__ to its base."""


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [(Left, {}), (Named, {"command": "c"}), (Derived, {"command": "c"})],
)
def test_an_engine_that_wraps_inits_is_given_one_to_wrap(kind, arguments, monkeypatch) -> None:
    """An operator is instantiated to the end, with durable from the call, else the defaults, else True."""

    def durable(**given: Any) -> bool:
        operator = kind(task_id="t", **arguments, **given)
        assert operator.instantiated
        assert operator.task_id == "t"
        return operator.durable

    assert durable() is True
    assert durable(durable=False) is False
    assert durable(default_args={"durable": False}) is False
    assert durable(durable=True, default_args={"durable": False}) is True
    monkeypatch.setitem(DAG_DEFAULTS, "durable", False)
    assert durable() is False
    assert durable(default_args={"durable": True}) is True
