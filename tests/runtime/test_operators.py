"""Operators: when they run, what they are given, and what they refuse."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from keepstate import (
    BaseOperator,
    InvalidInputError,
    InvalidTypeError,
    PythonOperator,
    ResumableJobMixin,
    StateStore,
    TaskArgumentsChangedError,
    dag_run,
    get_current_context,
    task,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.programs import Programs


@pytest.fixture
def run(store: StateStore) -> Iterator[Any]:
    """A run that is open for the test."""
    with dag_run("nightly", "1", store=store) as run:
        yield run


class Copy(BaseOperator):
    """Notes each of its attempts."""

    template_fields = ("source", "options", "command")
    seen: list[Any]

    def __init__(self, *, source: Any, options: Any = None, fail: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.options = options
        self.command: str | None = None
        self.fail = fail
        self.seen = []

    def execute(self, context: Any) -> Any:
        self.seen.append([self.source, self.options, self.command])
        self.command = f"cp {self.source}"
        if context["task_state_store"].increment("count") <= self.fail:
            raise RuntimeError
        return [self.source, context["ti"].try_number, context["task"] is self]


def test_made_in_a_run_it_runs(run: Any, store: StateStore) -> None:
    """In a dag_run block an operator runs where it is made, once; run() gives its result."""
    operator = Copy(task_id="copy", source="{{ run_id }}", options=["{{ ti.task_id }}", 3])
    assert operator.seen == [["1", ["copy", 3], None]]
    assert operator.run() == ["1", 1, True]
    assert len(operator.seen) == 1
    assert [one.state for one in store.attempts("nightly", "1", "copy")] == ["success"]


def test_made_elsewhere_it_waits_for_run(store: StateStore) -> None:
    """Outside any run, an operator that a module makes runs when it is told to, in the run that is current then."""
    operator = Copy(task_id="copy", source="{{ run_id }}")
    assert operator.seen == []
    for run_id in ("1", "2"):
        with dag_run("nightly", run_id, store=store):
            assert operator.run() == operator.run() == [run_id, 1, True]
    assert operator.seen == [["1", None, None], ["2", None, None]]
    assert operator.source == "{{ run_id }}"


def test_an_operator_as_a_tool_of_a_task(run: Any, store: StateStore) -> None:
    """Inside a task an operator is only made: its execute() may be called with the task's own context."""

    @task
    def work(context: Any) -> Any:
        tool = Copy(task_id="tool", source="here")
        return [*tool.execute(context)[:2], tool.seen]

    assert work() == ["here", 1, [["here", None, None]]]
    assert [one.scope.task_id for one in store.task_instances("nightly", "1")] == ["work"]


def test_each_attempt_starts_from_the_templates(run: Any) -> None:
    """What an attempt has done to a template field is gone in the next; with retries as for @task."""
    operator = Copy(
        task_id="copy",
        source="{{ ti.try_number }}",
        fail=2,
        retries=2,
        retry_delay=0,
        options={"a": "{{ ds }}"},
    )
    day = get_day(run)
    assert operator.seen == [[str(number), {"a": day}, None] for number in (1, 2, 3)]
    assert operator.run() == ["3", 3, True]
    assert (operator.source, operator.options, operator.command) == (
        "{{ ti.try_number }}",
        {"a": "{{ ds }}"},
        None,
    )


def get_day(run: Any) -> str:
    """Return the day on which the run began."""
    return f"{run.logical_date:%Y-%m-%d}"


def test_a_failure_goes_out_where_it_is_made(run: Any, store: StateStore) -> None:
    """The exception of the last attempt is raised; the operator may be made and tried again."""
    for state in ("failed", "failed"):
        with pytest.raises(RuntimeError):
            Copy(task_id=f"copy_{len(store.task_instances('nightly', '1'))}", source="x", fail=3)
        assert store.task_instances("nightly", "1")[-1].state == state


def test_what_succeeded_is_not_run_again(store: StateStore) -> None:
    """In the same run its stored result is returned, if its template fields are the same."""
    for expected in (1, 0):
        with dag_run("nightly", "1", store=store):
            operator = Copy(task_id="copy", source="{{ ti.try_number }}", options={"a": (1,)})
            assert operator.run() == ["1", 1, True]
            assert len(operator.seen) == expected
    with dag_run("nightly", "1", store=store), pytest.raises(TaskArgumentsChangedError):
        Copy(task_id="copy", source="other", options={"a": (1,)})


def test_ids_are_used_once(run: Any) -> None:
    """Two operators, or an operator and a task, can't share an id in a run."""

    @task
    def load() -> None: ...

    Copy(task_id="copy", source="x")
    with pytest.raises(InvalidInputError, match="'copy' is used twice"):
        Copy(task_id="copy", source="y")
    load()
    with pytest.raises(InvalidInputError, match="a call of the task 'load'"):
        Copy(task_id="load", source="y")
    Copy(task_id="late", source="x")
    assert task(task_id="late")(lambda ti: ti.task_id)() == "late__1"


def test_what_an_operator_takes() -> None:
    """An option of an engine's is refused by name, a missing task_id by Python; a missing execute() says what it needs."""
    with pytest.raises(TypeError, match="Copy takes no pool, trigger_rule: it takes task_id, retries"):
        Copy(task_id="t", source="x", trigger_rule="all_done", pool="p")
    with pytest.raises(TypeError, match="task_id"):
        Copy(source="x")
    with pytest.raises(InvalidTypeError, match="retries"):
        Copy(task_id="t", source="x", retries="3")
    operator = BaseOperator(task_id="t", retries=2, inlets=["a"])
    assert (operator.task_id, operator.retries, operator.inlets, operator.outlets) == ("t", 2, ["a"], [])
    assert (repr(operator), operator.log.name) == ("<BaseOperator t>", "keepstate.operators.BaseOperator")
    with pytest.raises(NotImplementedError, match="execute"):
        operator.execute({})


def test_a_template_field_that_is_not_there(run: Any) -> None:
    """The class and the attribute are named."""

    class Bad(BaseOperator):
        template_fields = ("nope",)

    with pytest.raises(InvalidInputError, match="Bad names 'nope' in template_fields"):
        Bad(task_id="t")


def test_python_operator(run: Any) -> None:
    """Arguments are rendered and handed on, the rest comes from the context by name; a coroutine function is awaited."""

    def call(a: Any, b: Any, task_state_store: Any = None, **context: Any) -> Any:
        task_state_store.set("called", True)
        assert context["ti"] is get_current_context()["ti"]
        return [a, b, context["task"].task_id]

    async def later(x: int) -> int:
        return x + 1

    given = ["{{ run_id }}"]
    operator = PythonOperator(
        task_id="call", python_callable=call, op_args=given, op_kwargs={"b": ["{{ task.task_id }}"]}
    )
    assert operator.run() == ["1", ["call"], "call"]
    assert given == ["{{ run_id }}"]
    assert PythonOperator(task_id="later", python_callable=later, op_args=(1,)).run() == 2

    class Later(BaseOperator):
        async def execute(self, context: Any) -> Any:
            return [await later(2), get_current_context()["ti"].task_id]

    assert Later(task_id="own").run() == [3, "own"]
    with pytest.raises(InvalidTypeError, match="python_callable"):
        PythonOperator(task_id="t", python_callable="call")


def test_the_mixin_beside_it(run: Any, store: StateStore) -> None:
    """ResumableJobMixin and BaseOperator make an operator: submitted once, and reconnected to."""

    class Job(ResumableJobMixin, BaseOperator):
        submitted: ClassVar[list[str]] = []

        def execute(self, context: Any) -> Any:
            return self.execute_resumable(context)

        def submit_job(self, context: Any) -> str:
            assert self.submission_token
            self.submitted.append(f"job-{len(self.submitted)}")
            return self.submitted[-1]

        def get_job_status(self, external_id: str, context: Any) -> str:
            return "RUNNING"

        def is_job_active(self, status: str) -> bool:
            return status == "RUNNING"

        def is_job_succeeded(self, status: str) -> bool:
            return False

        def poll_until_complete(self, external_id: str, context: Any) -> None:
            if context["ti"].try_number < 3:
                raise ConnectionError

        def get_job_result(self, external_id: str, context: Any) -> str:
            return external_id

    job = Job(task_id="job", retries=2, retry_delay=0)
    assert job.run() == "job-0"
    assert Job.submitted == ["job-0"]
    assert store.task("nightly", "1", "job").get("remote_job_id") == "job-0"


MAIN = """
    import sys
    from keepstate import BaseOperator, PythonOperator, dag_run

    class Say(BaseOperator):
        template_fields = ("word",)

        def __init__(self, *, word, **kwargs):
            super().__init__(**kwargs)
            self.word = word

        def execute(self, context):
            print(self.word, flush=True)
            if self.word == "bad":
                raise RuntimeError("that was bad")
            return self.word

    print("begin", flush=True)
    Say(task_id="first", word="{{ ti.task_id }}")
    kept = Say(task_id="second", word="second")
    print(kept.run())
    [Say(task_id=f"loop{i}", word=str(i)) for i in range(2)]

    def main():
        Say(task_id="within", word="within")

    main()
    if sys.argv[1:]:
        Say(task_id="bad", word="bad")
    print("end", flush=True)
"""


def test_a_main_program_that_only_makes_operators(programs: Programs) -> None:
    """As a DAG file does: each runs where it stands, in order and once; a failure is the program's own."""
    done = programs.run(programs.python(MAIN))
    assert done.stdout.split() == ["begin", "first", "second", "second", "0", "1", "within", "end"]
    assert done.returncode == 0
    failed = programs.run(programs.python(MAIN, "fail"))
    assert failed.returncode == 1
    assert "end" not in failed.stdout
    assert "RuntimeError: that was bad" in failed.stderr
    assert 'Say(task_id="bad", word="bad")' in failed.stderr


def test_an_imported_module_only_makes_them(programs: Programs) -> None:
    """What runs as a program can be imported without running anything."""
    programs.write(MAIN, "flow.py")
    done = programs.run(programs.python("import flow; print(flow.kept.seen if 0 else 'imported')"))
    # the module itself calls run() once
    assert done.stdout.split() == ["begin", "second", "second", "end", "imported"]


def test_under_a_supervisor_they_use_its_run(programs: Programs, store: StateStore) -> None:
    """Operators of a supervised program are tasks of the supervised run; what succeeded is not run again after a failure."""
    command = programs.supervised(programs.python(MAIN, "fail"), "--run-id", "1", "--retries", 1)
    done = programs.run(command)
    assert done.returncode == 1
    assert done.stdout.split().count("first") == 1
    assert done.stdout.split().count("bad") == 2
    states = {one.scope.task_id: one.state for one in store.task_instances("job.py", "1")}
    assert states.pop("job.py") == states.pop("bad") == "failed"
    assert set(states.values()) == {"success"}
    assert logging.getLogger("keepstate").level == logging.NOTSET
