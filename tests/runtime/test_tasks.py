"""``@task``: what it hands in, renders, stores, retries and refuses."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from keepstate import (
    BackendUnavailableError,
    BaseOperator,
    ConfigurationError,
    InvalidIdError,
    InvalidInputError,
    InvalidTypeError,
    InvalidValueError,
    StaleAttemptError,
    StateStore,
    TaskArgumentsChangedError,
    ValueTooLargeError,
    connect,
    dag_run,
    get_current_context,
    task,
    task_state_store,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keepstate.scope import Attempt


@pytest.fixture
def run(store: StateStore) -> Iterator[Any]:
    """A run that is open for the test."""
    with dag_run("nightly", "2026-11-29", store=store) as run:
        yield run


def attempts(store: StateStore, task_id: str) -> list[Attempt]:
    """Return a task's attempts, oldest first."""
    return store.attempts("nightly", "2026-11-29", task_id)[::-1]


def failing(times: int, error: Callable[[], BaseException] = RuntimeError) -> Callable[[], list[int]]:
    """Return a function that fails so often, then returns its calls."""
    calls: list[int] = []

    def flaky() -> list[int]:
        calls.append(len(calls) + 1)
        if len(calls) <= times:
            raise error()
        return calls

    flaky.calls = calls  # type: ignore[attr-defined]
    return flaky


# --------------------------------------------------------------------------------------------- handing in


def test_bare_and_declared(run: Any) -> None:
    """`@task` works with and without a declaration; the function stays what it was, for direct calls too."""

    @task
    def bare(x: int) -> int:
        """Doc."""
        return x + 1

    @task()
    def empty() -> str:
        return "empty"

    @task(task_id="named", retries=1)
    def declared(*, x: int = 3) -> int:
        return x

    assert (bare(1), empty(), declared(), bare.function(5)) == (2, "empty", 3, 6)
    assert (bare.__name__, bare.__doc__, bare.task_id, declared.task_id) == ("bare", "Doc.", "bare", "named")


def test_parameters_are_served_by_name(run: Any, store: StateStore) -> None:
    """What the context has is handed in by name, `context` is all of it, and the caller's own arguments win."""

    @task(store_result=False)
    def names(
        x: int, task_state_store: Any = None, *, ti: Any, run_id: Any = None, asset_state_store: Any = None
    ) -> Any:
        return task_state_store, ti, run_id, asset_state_store, x

    state, ti, run_id, assets, x = names(7)
    assert (x, run_id) == (7, "2026-11-29")
    assert (ti.dag_id, ti.run_id, ti.task_id, ti.map_index, ti.try_number) == (
        "nightly",
        "2026-11-29",
        "names",
        -1,
        1,
    )
    assert (str(ti), ti.max_tries, ti.overtaken) == ("nightly / 2026-11-29 / names, attempt 1", 1, False)
    assert ti.attempt_id == attempts(store, "names")[0].attempt_id
    assert "asset" in repr(assets)
    assert "attempt 1" in repr(state)
    assert names(7, "mine", ti="his", run_id="its")[:3] == ("mine", "his", "its")

    @task(store_result=False)
    def everything(context: Any) -> Any:
        return context

    @task(store_result=False)
    def spread(x: int, ds: Any = None, **context: Any) -> Any:
        return context, ds

    whole = everything()
    assert whole["run_id"] == "2026-11-29"
    assert whole["dag_run"] is run
    assert whole["task"] is everything
    assert whole["ti"] is whole["task_instance"]
    rest, ds = spread(1)
    assert set(rest) == set(whole) - {"ds"}
    assert ds == whole["ds"]
    assert spread(1, ti="mine")[0]["ti"] == "mine"


def test_a_default_other_than_none_is_kept(run: Any) -> None:
    """A parameter that happens to have a name of the context and a default of its own keeps that."""

    @task
    def mine(run_id: str = "of my own", try_number: int = 12) -> list[Any]:
        return [run_id, try_number]

    assert mine() == ["of my own", 12]

    @task
    def beside(run_id: str = "of my own", **context: Any) -> list[Any]:
        return [run_id, "run_id" in context, "ti" in context]

    assert beside() == ["of my own", False, True]


def test_a_call_that_cannot_work_is_refused_before_anything_is_stored(run: Any, store: StateStore) -> None:
    """Python's own TypeError, and no attempt of it is on record."""

    @task(retries=5)
    def load(url: str, task_state_store: Any = None) -> None:
        raise AssertionError

    for call in (load, lambda: load(1, 2, 3), lambda: load("u", nope=1)):
        with pytest.raises(TypeError, match=r"load|argument"):
            call()
    assert attempts(store, "load") == []


def test_the_context_outside_its_task(store: StateStore) -> None:
    """get_current_context() and task_state_store() mean the running task, in threads too; elsewhere they say what to do."""
    seen = []

    @task(store_result=False)
    def outer() -> None:
        seen.append(get_current_context()["ti"].task_id)
        with ThreadPoolExecutor(1) as pool:
            seen.append(pool.submit(lambda: get_current_context()["ti"].task_id).result())
            pool.submit(lambda: task_state_store().set("from", "a thread")).result()
        inner()
        seen.append(get_current_context()["ti"].task_id)

    @task
    def inner() -> None:
        seen.append(get_current_context()["ti"].task_id)

    with dag_run("nightly", "2026-11-29", store=store):
        outer()
    assert seen == ["outer", "outer", "outer.inner", "outer"]
    assert store.task("nightly", "2026-11-29", "outer").get("from") == "a thread"
    with pytest.raises(ConfigurationError, match="no task is running"):
        get_current_context()
    with pytest.raises(ConfigurationError, match="keepstate run"):
        task_state_store()


def test_tasks_side_by_side_keep_to_themselves(run: Any) -> None:
    """Tasks on several threads at once each see their own context; a bare thread among several is told to say."""
    barrier = threading.Barrier(3)
    confused = []

    @task(store_result=False)
    def side(name: str, ti: Any) -> Any:
        barrier.wait(10)
        with ThreadPoolExecutor(1) as pool, pytest.raises(InvalidInputError, match="copy_context"):
            pool.submit(get_current_context).result()
        confused.append(name)
        barrier.wait(10)
        return get_current_context()["ti"] is ti

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(side, "abc"))
    assert sorted(confused) == ["a", "b", "c"]


# ---------------------------------------------------------------------------------------------- templates


def test_string_arguments_are_rendered(run: Any) -> None:
    """Strings are rendered, in containers too; what holds no template, and what is no string, is left as it is."""
    marker = object()

    @task(store_result=False)
    def show(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs["x"], kwargs["plain"]

    args, x, plain = show(
        "/tmp/log_{{ run_id }}.out",
        ["{{ ti.task_id }}", {"deep": ("{% if try_number == 1 %}first{% endif %}\n", 3)}],
        marker,
        x={"{{ key }}": "{{ dag_run.dag_id }}"},
        plain="{ not } a {template",
    )
    assert args[0] == "/tmp/log_2026-11-29.out"
    assert args[1] == ["show", {"deep": ("first\n", 3)}]
    assert args[2] is marker
    assert (x, plain) == ({"{{ key }}": "nightly"}, "{ not } a {template")


def test_dates_are_those_of_the_run(store: StateStore) -> None:
    """`ds`, `ts` and `logical_date` tell when the run first began, and stay so when it goes on later."""

    @task(store_result=False)
    def dates(text: str, logical_date: Any = None) -> Any:
        return text, logical_date

    seen = []
    for _ in range(2):
        with dag_run("nightly", "2026-11-29", store=store):
            seen.append(dates("{{ ds }} {{ ts }} {{ ds_nodash }} {{ ts_nodash }}"))
    began = store.attempts("nightly", "2026-11-29")[-1].started_at
    assert seen == [seen[0]] * 2
    assert seen[0][1] == began
    assert seen[0][0].split()[:2] == [f"{began:%Y-%m-%d}", began.isoformat()]


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ nope }}", "'nope' is undefined"),
        ("{{ run_id", "unexpected end"),
        ("{{ ti.__class__.__mro__ }}", "unsafe"),
        ("{{ run_id.nope }}", "no attribute"),
        ("{{ dag_run.store.settings.url }}", "no attribute 'store'"),
        ("{{ task_state_store.get('token') }}", "undefined"),
        ("{{ ti.held.store }}", "no attribute 'held'"),
        ("{{ task.function }}", "no attribute 'function'"),
        ("{{ 1 // 0 }}", "zero"),
        ("{{ 'a' * 10000000000 }}", "too much"),
        ("{{ 9 ** 9 ** 9 }}", "too much"),
    ],
)
def test_a_template_that_cannot_be_rendered(run: Any, store: StateStore, template: str, told: str) -> None:
    """An unknown name, bad syntax and what the sandbox forbids fail the task at once, retries or not, and say why."""

    @task(retries=5, retry_delay=60)
    def load(text: str) -> None:
        raise AssertionError

    with pytest.raises(InvalidInputError, match=told):
        load(template)
    assert [attempt.state for attempt in attempts(store, "load")] == ["failed"]


# ------------------------------------------------------------------------------------------ names, results


def test_calls_are_named_in_order(run: Any, store: StateStore) -> None:
    """load, load__1, load__2 as in TaskFlow; override names one."""

    @task
    def load(x: int, ti: Any = None) -> str:
        return f"{ti.task_id} {x}"

    eu = load.override(task_id="load_eu")
    assert [load(1), load(2), eu(3), load(4), eu(5)] == [
        "load 1",
        "load__1 2",
        "load_eu 3",
        "load__2 4",
        "load_eu__1 5",
    ]
    assert len(store.task_instances("nightly", "2026-11-29")) == 5
    # what is taken is passed over
    assert load.override(task_id="load__3")(6) == "load__3 6"
    assert [load(7), load(8)] == ["load__4 7", "load__5 8"]


def test_a_task_that_succeeded_is_not_run_again(store: StateStore) -> None:
    """In the same run its stored result is returned, equal in value and type, None too; in another run it runs."""
    calls = []
    values: list[Any] = [None, 0, "", [1, {"a": [2.5, None]}], {"ü": "\U0001f642"}, False]

    @task
    def give(place: int) -> Any:
        calls.append(place)
        return values[place]

    for run_id in ("one", "one", "two"):
        with dag_run("nightly", run_id, store=store):
            given = [give(place) for place in range(len(values))]
            assert given == values
            assert list(map(type, given)) == list(map(type, values))
    assert calls == [*range(6), *range(6)]


def test_arguments_are_compared_however_they_are_passed(store: StateStore) -> None:
    """The same arguments by position or by name are the same; other ones are TaskArgumentsChangedError."""
    calls: list[Any] = []

    @task
    def load(a: Any, b: Any = 2, task_state_store: Any = None) -> int:
        calls.append(a)
        return len(calls)

    with dag_run("nightly", "1", store=store):
        load([1, {"k": (2, 3)}], b=4)
    for call in (lambda: load([1, {"k": [2, 3]}], 4), lambda: load(b=4, a=[1, {"k": (2, 3)}])):
        with dag_run("nightly", "1", store=store):
            assert call() == 1
    with dag_run("nightly", "1", store=store), pytest.raises(TaskArgumentsChangedError, match="override"):
        load([1, {"k": (2, 4)}], b=4)


class Point(NamedTuple):
    """A tuple that is none."""

    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "error", "told"),
    [
        (object(), InvalidTypeError, "of type object"),
        ((1, 2), InvalidTypeError, "tuple"),
        ({"rows": [1, {2}]}, InvalidTypeError, r"value\['rows'\]\[1\]"),
        (Point(1, 2), InvalidTypeError, "Point"),
        (math.nan, InvalidValueError, "nan"),
        ("x" * (17 << 20), ValueTooLargeError, "bytes"),
    ],
)
def test_a_result_that_is_not_json(
    run: Any, store: StateStore, value: Any, error: type[Exception], told: str
) -> None:
    """It fails the task clearly, once, whatever the retries, and says what to do."""
    calls = []

    @task(retries=3, retry_delay=60)
    def give() -> Any:
        calls.append(1)
        return value

    with pytest.raises(error, match=told) as caught:
        give()
    assert "store_result=False" in str(caught.value)
    assert calls == [1]
    assert attempts(store, "give")[0].state == "failed"
    assert give.override(store_result=False, task_id="kept")() is value


def test_without_a_stored_result_a_task_runs_each_time(store: StateStore) -> None:
    """With store_result=False nothing is kept; a task whose result was not stored runs again when it is to be."""
    calls = []

    @task(store_result=False)
    def give(x: int) -> int:
        calls.append(x)
        return x

    for x in (1, 2):
        with dag_run("nightly", "1", store=store):
            assert give(x) == x
    with dag_run("nightly", "1", store=store):
        assert give.override(store_result=True)(3) == 3
    with dag_run("nightly", "1", store=store):
        assert give.override(store_result=True)(3) == 3
    assert calls == [1, 2, 3]


def test_a_repeated_call_is_bound_to_its_arguments(
    store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The list of a loop has changed between attempts: a call never goes on with what another item has stored."""

    @task
    def load(name: str, task_state_store: Any = None) -> str:
        seen = task_state_store.get("file", "new")
        task_state_store.set("file", name)
        if seen == "new" and name != "a":
            raise RuntimeError(name)
        return f"{name} after {seen}"

    def attempt(*names: str) -> list[str]:
        with dag_run("nightly", "1", store=store):
            return [load(name) for name in names]

    for names in (("a", "b"), ("a", "c")):
        with pytest.raises(RuntimeError, match=names[1]):
            attempt(*names)
    assert "starts without state" in caplog.text
    assert attempt("a", "c") == ["a after new", "c after c"]
    assert [entry.value for entry in store.task("nightly", "1", "load__1").history("file")] == [
        "c",
        "c",
        None,
        "b",
    ]


def test_the_first_call_is_bound_to_its_arguments_too(
    store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes to stand first in a list does not go on with what the former first has stored."""

    @task
    def load(name: str, task_state_store: Any = None) -> str | None:
        seen: str | None = task_state_store.get("file")
        task_state_store.set("file", name)
        if seen is None and name == "acme":
            raise RuntimeError(name)
        return seen

    for name, raised in (("acme", True), ("aaron", False)):
        with contextlib.suppress(RuntimeError), dag_run("nightly", "1", store=store):
            assert load(name) is None
            assert not raised
    assert "starts without state" in caplog.text
    assert [entry.value for entry in store.task("nightly", "1", "load").history("file")][-1] == "acme"


def test_an_attempt_anew_finds_the_tasks_inside_it(run: Any, store: StateStore) -> None:
    """A retried task does not run again what has succeeded inside it; two calls side by side keep to their own."""
    submitted: list[int] = []

    @task
    def submit(number: int) -> int:
        submitted.append(number)
        return number * 10

    class Tool(BaseOperator):
        def execute(self, context: Any) -> int:
            submitted.append(0)
            return 7

    @task(retries=2, retry_delay=0)
    def pipeline(first: int, ti: Any = None) -> list[int]:
        done = [submit(first), submit(first + 1), Tool(task_id=f"tool_{first}").run()]
        with pytest.raises(InvalidInputError, match="used twice"):
            Tool(task_id=f"tool_{first}").run()
        if ti.try_number < 3:
            raise RuntimeError
        return done

    assert pipeline(1) == [10, 20, 7]
    assert submit(9) == 90
    assert pipeline(5) == [50, 60, 7]
    assert submitted == [1, 2, 0, 9, 5, 6, 0]
    inner = ("pipeline.submit", "pipeline.submit__1", "submit", "pipeline__1.submit", "pipeline__1.submit__1")
    assert [len(attempts(store, name)) for name in inner] == [1, 1, 1, 1, 1]
    assert attempts(store, "pipeline.submit__2") == []


def test_clear_on_success(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the setting on, success removes a task's entries in the same moment; failure leaves them."""
    monkeypatch.setenv("AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS", "True")

    @task
    def work(fail: bool, task_state_store: Any = None) -> None:
        task_state_store.set("k", 1)
        if fail:
            raise RuntimeError

    with connect() as store, dag_run("nightly", "1", store=store):
        with pytest.raises(RuntimeError):
            work(True)
        assert store.task("nightly", "1", "work").get("k") == 1
        work(False)
        assert store.task("nightly", "1", "work__1").get("k") is None


# ------------------------------------------------------------------------------------------------ retries


def test_a_failed_attempt_is_followed_by_another(
    run: Any, store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Each attempt has its number and an accessor of its own, state carries over, and all are on record."""
    seen = []

    @task(retries=3, retry_delay=0)
    def work(task_state_store: Any, ti: Any) -> int:
        seen.append((ti.try_number, ti.max_tries, id(task_state_store)))
        count: int = task_state_store.increment("count")
        if count < 3:
            raise ValueError(f"not yet {count}")
        return count

    assert work() == 3
    assert [(number, most) for number, most, _ in seen] == [(1, 4), (2, 4), (3, 4)]
    assert [(one.state, one.reason) for one in attempts(store, "work")] == [
        ("up_for_retry", "ValueError: not yet 1"),
        ("up_for_retry", "ValueError: not yet 2"),
        ("success", None),
    ]
    assert "next attempt begins in 0 s" in caplog.text


def test_the_last_failure_goes_out(run: Any, store: StateStore) -> None:
    """When the retries are used up, the task's own exception is raised, and the attempt is on record as failed."""
    flaky = failing(9, KeyError)
    with pytest.raises(KeyError):
        task(task_id="work", retries=2, retry_delay=0)(flaky)()
    assert flaky.calls == [1, 2, 3]  # type: ignore[attr-defined]
    assert [one.state for one in attempts(store, "work")] == ["up_for_retry", "up_for_retry", "failed"]


def test_try_numbers_go_on_and_retries_count_anew(store: StateStore) -> None:
    """A run that goes on later numbers its attempts further, and each call has its retries."""
    flaky = failing(4)
    work = task(task_id="work", retries=1, retry_delay=0)(flaky)
    for _ in range(2):
        with pytest.raises(RuntimeError), dag_run("nightly", "2026-11-29", store=store):
            work()
    with dag_run("nightly", "2026-11-29", store=store):
        assert work() == [1, 2, 3, 4, 5]
    assert [one.try_number for one in attempts(store, "work")] == [1, 2, 3, 4, 5]
    assert [run.state for run in store.runs("nightly")] == ["success"]


def test_pauses(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are retry_delay, or with a backoff delay * 2^(n-1) up to max_retry_delay; numbers are seconds."""
    from keepstate.runtime import calls

    slept: list[float] = []
    monkeypatch.setattr(calls.time, "sleep", slept.append)
    task(task_id="a", retries=2, retry_delay=timedelta(minutes=10))(failing(2))()
    task(
        task_id="b",
        retries=5,
        retry_delay=3,
        retry_exponential_backoff=True,
        max_retry_delay=timedelta(seconds=20),
    )(failing(5))()
    task(task_id="c", retries=2)(failing(2))()
    assert slept == [600, 600, 3, 6, 12, 20, 20, 300, 300]


class Untellable(Exception):  # noqa: N818 - a user's
    """An exception whose own text fails."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("caf\udce9"), "ValueError: caf\\udce9"),
        (ValueError("a\0b\x1b[31m\nc é"), "ValueError: a\\x00b\\x1b[31m\nc é"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 1988),
        (Untellable(), "Untellable, whose text can't be told"),
    ],
    ids=["surrogate", "control", "long", "untellable"],
)
def test_whatever_an_exception_says_it_is_retried(
    run: Any, store: StateStore, error: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The text of an exception is anybody's; what is stored of it is what every store can hold."""
    # what is captured goes from process to process where tests run side by side, and a lone surrogate can't
    caplog.set_level(logging.CRITICAL + 1)
    assert task(task_id="work", retries=1, retry_delay=0)(failing(1, lambda: error))() == [1, 2]
    assert [one.reason for one in attempts(store, "work")] == [reason, None]


def test_an_outage_while_a_failure_is_recorded(
    run: Any, store: StateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next attempt supersedes the one whose end could not be stored, as well as one whose beginning was not heard of."""
    backend, down = store.backend, ["end", "begin"]

    def flaky(name: str, real: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(request: Any) -> Any:
            answer = real(request) if name == "begin" or name not in down else None
            if name in down and not (name == "begin" and "end" in down):
                down.remove(name)
                raise BackendUnavailableError("down")
            return answer

        return call

    for name in ("end", "begin"):
        monkeypatch.setattr(backend, name, flaky(name, getattr(backend, name)))
    assert task(task_id="work", retries=3, retry_delay=0)(failing(1))() == [1, 2]
    assert down == []
    assert "has ended, which could not be stored then" in caplog.text
    assert [one.try_number for one in attempts(store, "work")] == [1, 2, 3]


def test_a_success_is_recorded_with_patience(
    run: Any, store: StateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A result that took hours is not lost to a store that is away for a moment."""
    backend, real, down = store.backend, store.backend.end, [1, 2]

    def end(request: Any) -> None:
        if down:
            down.pop()
            raise BackendUnavailableError("down")
        real(request)

    monkeypatch.setattr(backend, "end", end)
    monkeypatch.setattr("keepstate.runtime.attempts._BETWEEN_TRIES", 0)
    assert task(task_id="work")(failing(0))() == [1]
    assert "it is tried again" in caplog.text
    assert [one.state for one in attempts(store, "work")] == ["success"]


@pytest.mark.parametrize(
    ("declared", "failures", "pause"),
    [
        ({"retry_delay": 3600, "max_retry_delay": 60}, 1, 60),
        ({"retry_delay": timedelta(days=2)}, 1, 172_800),
        ({"retry_delay": timedelta(days=2), "retry_exponential_backoff": True}, 1, 86_400),
        ({"retry_delay": 1, "retry_exponential_backoff": 1e200}, 3, 86_400),
        ({"retry_delay": 1, "retry_exponential_backoff": 1e200, "max_retry_delay": 7}, 9, 7),
        ({"retry_delay": 0, "retry_exponential_backoff": 1e200}, 9, 0),
    ],
)
def test_no_pause_is_longer_than_the_longest(declared: Any, failures: int, pause: float) -> None:
    """`max_retry_delay` bounds a fixed delay as well; without it only what grows is bounded, by a day."""
    assert task(**declared)(failing(0)).options.policy.pause_after(failures) == pause


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize(("retries", "state"), [(0, "failed"), (1, "up_for_retry")])
def test_an_interrupt_ends_the_attempt(
    run: Any, store: StateStore, error: type[BaseException], retries: int, state: str
) -> None:
    """Ctrl-C and sys.exit() record the attempt's end and go out at once, without a retry in this process."""
    flaky = failing(1, error)
    with pytest.raises(error):
        task(task_id="work", retries=retries, retry_delay=60)(flaky)()
    assert flaky.calls == [1]  # type: ignore[attr-defined]
    assert [one.state for one in attempts(store, "work")] == [state]


def test_a_stale_attempt_ends_without_retry_and_touches_nothing(
    run: Any, store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Once a later attempt has begun, the earlier one ends at its next verb; the later one's state and record stay."""
    calls = []

    @task(retries=5, retry_delay=0)
    def work(task_state_store: Any) -> None:
        calls.append(1)
        for page in task_state_store.checkpoint(range(10), every=100):
            if page == 3:
                later = store.task("nightly", "2026-11-29", "work", try_number=2)
                later.set("who", "later")
            if page == 5:
                task_state_store.set("who", "earlier")

    with pytest.raises(StaleAttemptError, match="attempt 2"):
        work()
    assert calls == [1]
    assert dict(store.task("nightly", "2026-11-29", "work").items()) == {"who": "later"}
    assert [one.state for one in attempts(store, "work")] == ["superseded", "running"]
    assert "attempt 1" in caplog.text


# -------------------------------------------------------------------------------------------- checkpoints


def test_a_held_back_checkpoint_is_written_before_the_end_is_recorded(run: Any, store: StateStore) -> None:
    """A throttled position is there when the attempt has failed, also while the traceback keeps the generator alive."""
    kept = []

    @task(retries=1, retry_delay=0)
    def work(task_state_store: Any) -> list[int]:
        pages = task_state_store.checkpoint(range(10), every=100)
        kept.append(pages)
        done = []
        for page in pages:
            if page == 4 and len(kept) == 1:
                raise RuntimeError("in the middle")
            done.append(page)
        return done

    assert work() == [4, 5, 6, 7, 8, 9]
    assert store.task("nightly", "2026-11-29", "work").get("position")["done"] is True


def test_a_held_back_checkpoint_is_written_on_success_too(run: Any, store: StateStore) -> None:
    """A loop that is left with its generator kept, in a task that succeeds."""
    kept = []

    @task
    def work(task_state_store: Any) -> int:
        pages = task_state_store.checkpoint(range(10), every=100)
        kept.append(pages)
        return next(page for page in pages if page == 6)

    assert work() == 6
    assert store.task("nightly", "2026-11-29", "work").get("position")["position"] == 6


# --------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("declared", "error", "told"),
    [
        ({"pool": "big", "queue": "q"}, TypeError, "pool, queue"),
        ({"retries": -1}, InvalidInputError, "retries"),
        ({"retries": 1.5}, InvalidTypeError, "retries"),
        ({"retry_delay": -1}, InvalidInputError, "retry_delay"),
        ({"retry_delay": "10m"}, InvalidTypeError, "retry_delay"),
        ({"max_retry_delay": timedelta(-1)}, InvalidInputError, "max_retry_delay"),
        ({"retry_exponential_backoff": 0.5}, InvalidInputError, "retry_exponential_backoff"),
        ({"retry_exponential_backoff": "yes"}, InvalidTypeError, "retry_exponential_backoff"),
        ({"task_id": "a/b"}, InvalidIdError, "task_id"),
        ({"task_id": ""}, InvalidIdError, "task_id"),
        ({"inlets": [3]}, InvalidTypeError, "inlets"),
        ({"store_result": "no"}, InvalidTypeError, "store_result"),
    ],
)
def test_a_declaration_that_makes_no_sense(
    declared: dict[str, Any], error: type[Exception], told: str
) -> None:
    """It is refused where it stands, by name."""
    with pytest.raises(error, match=told):
        task(**declared)(lambda: None)
    with pytest.raises(error, match=told):
        task(lambda: None).override(**declared)


def test_a_task_needs_a_function() -> None:
    """A positional argument that is no function gets the advice to name the task by keyword."""
    with pytest.raises(InvalidTypeError, match="task_id="):
        task("load")  # type: ignore[call-overload]


def test_outside_any_run_the_process_is_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks outside dag_run share a run of this process's own; the first call says so, once."""

    @task
    def load(ti: Any = None) -> list[str]:
        return [ti.run_id, ti.task_id]

    with caplog.at_level(logging.WARNING):
        first, second = load(), load()
    assert first[0] == second[0]
    assert [first[1], second[1]] == ["load", "load__1"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "dag_run" in caplog.text


def test_a_skipped_task_leaves_its_inner_calls_to_nobody_else(store: StateStore) -> None:
    """What one call of a task has called belongs to it: another call, that goes on alone, has calls of its own."""
    submitted: list[str] = []
    failing = {"b"}

    @task
    def submit() -> int:
        submitted.append("job")
        return len(submitted)

    @task
    def pipeline(which: str) -> int:
        job = submit()
        if which in failing:
            raise RuntimeError(which)
        return job

    with pytest.raises(RuntimeError), dag_run("etl", "r1", store=store):
        [pipeline(which) for which in "ab"]
    failing.clear()
    with dag_run("etl", "r1", store=store):
        assert [pipeline(which) for which in "ab"] == [1, 2]
    ids = {info.scope.task_id for info in store.task_instances("etl", "r1")}
    assert ids == {"pipeline", "pipeline__1", "pipeline.submit", "pipeline__1.submit"}
