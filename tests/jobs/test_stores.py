"""The mixin without a store, over plain stores, and in attempts that were overtaken."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.backends.custom import BaseStoreBackend, CustomBackend
from keepstate.clock import system_clock
from keepstate.errors import StaleAttemptError, UnknownJobStatusError
from keepstate.jobs import ResumeAction, ResumeDecision
from keepstate.settings import Settings
from keepstate.store import StateStore
from tests.jobs.attempts import KEY, SUBMISSION
from tests.jobs.clouds import Cloud, CrashError, ExactOperator, FindingOperator, FourVerbs, Operator

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.accessors import TaskStateStore


class Untouchable:
    """A store that must be left alone."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the store was asked for {name}")


def test_not_durable_touches_nothing_and_does_the_rest(warned) -> None:
    """durable=False turns the store off and nothing else: a token of its own each time, and the result."""
    cloud = Cloud()
    operator = Operator(cloud, durable=False)
    for number in (1, 2):
        assert operator.execute({"task_state_store": Untouchable()}) == {"result of": f"job-{number}"}
        token = operator.submission_token
        assert operator.tokens == {"submit": token, "wait": token, "result": token}
    assert None not in cloud.tokens
    assert len(set(cloud.tokens)) == 2
    assert not warned()


def test_not_durable_holds_for_each_step() -> None:
    """The steps of a deferrable operator leave the store alone too."""
    operator = FindingOperator(Cloud(), durable=False)
    context = {"task_state_store": Untouchable()}
    assert operator.resolve_resume(context) == ResumeDecision(ResumeAction.SUBMIT)
    assert operator.prepare_submission(context) == operator.submission_token is not None
    operator.record_submission(context, "job-1")
    operator.resolve_resume(context)
    assert operator.submission_token is None


@pytest.mark.parametrize(
    "context",
    [{}, {"task_state_store": None}, None, object()],
    ids=["empty", "no store", "none", "no mapping"],
)
def test_a_context_without_a_store_is_one_warning(context, warned) -> None:
    """Without a store the job runs all the same, with a token, and one warning says what that costs."""
    cloud = Cloud()
    assert FindingOperator(cloud).execute(context) == {"result of": "job-1"}
    assert cloud.calls == ["submit", "wait"]
    assert cloud.tokens[0]
    (warning,) = warned()
    assert "task_state_store" in warning
    assert "FindingOperator" in warning


def test_an_attempt_overtaken_before_its_intent_submits_nothing(attempt) -> None:
    """An attempt thought dead, which wakes up after its successor has begun, is stopped before it submits."""
    cloud = Cloud()
    late, successor = FindingOperator(cloud), FindingOperator(cloud)
    context = attempt(1)
    assert late.resolve_resume(context).action is ResumeAction.SUBMIT
    successor.execute(attempt(2))
    with pytest.raises(StaleAttemptError):
        late.prepare_submission(context)
    with pytest.raises(StaleAttemptError):
        FindingOperator(cloud, crash="wait").record_submission(context, "job-9")
    assert len(cloud.jobs) == 1


def test_an_attempt_overtaken_while_submitting_leaves_its_job_to_its_successor(attempt, person) -> None:
    """The id may not be stored any more, but the successor finds the job by its token: one submission."""
    cloud = Cloud()
    seen: list[ResumeDecision] = []

    class Overtaken(FindingOperator):
        def submit_job(self, context):
            job = super().submit_job(context)
            seen.append(FindingOperator(cloud).resolve_resume(attempt(2)))
            return job

    with pytest.raises(StaleAttemptError):
        Overtaken(cloud).execute(attempt(1))
    assert seen == [ResumeDecision(ResumeAction.RECONNECT, "job-1", "RUNNING")]
    assert FindingOperator(cloud).execute(attempt(2)) == {"result of": "job-1"}
    assert cloud.tokens == [person.get(SUBMISSION)["token"]]


def test_an_attempt_overtaken_while_waiting_does_no_harm(attempt, person) -> None:
    """Waiting and fetching need no store, so a stale attempt that finishes changes nothing."""
    cloud = Cloud()

    class Overtaken(FindingOperator):
        def poll_until_complete(self, external_id, context):
            FindingOperator(cloud).execute(attempt(2))

    assert Overtaken(cloud).execute(attempt(1)) == {"result of": "job-1"}
    assert person.get(KEY) == "job-1"
    assert len(cloud.jobs) == 1


class Shelf(BaseStoreBackend):
    """A custom class as one would write it for Airflow."""

    def __init__(self) -> None:
        self.rows: dict[Any, str] = {}
        self.calls: list[str] = []

    def get(self, scope, key, *, session=None):
        self.calls.append(f"get {key}")
        return self.rows.get((scope, key))

    def set(self, scope, key, value, *, expires_at=None, session=None):
        self.calls.append(f"set {key}")
        self.rows[scope, key] = value

    def delete(self, scope, key, *, session=None):
        self.calls.append(f"delete {key}")
        self.rows.pop((scope, key), None)

    def clear(self, scope, *, all_map_indices=False, session=None):
        self.rows.clear()

    aget = aset = adelete = aclear = None  # type: ignore[assignment]


def four_verbs(store: StateStore, number: int) -> Any:
    """Return a stand-in for Airflow's own accessor."""
    return FourVerbs(store.task("dag", "run", "task", try_number=number))


@pytest.fixture(params=["four verbs", "custom class"])
def plain(request, store) -> Callable[[int], dict[str, Any]]:
    """The context of an attempt whose store can do no more than the guide says."""
    if request.param == "four verbs":
        return lambda number: {"task_state_store": four_verbs(store, number)}
    custom = StateStore(CustomBackend(Shelf()), settings=Settings(), clock=system_clock)
    return lambda number: {"task_state_store": custom.task("dag", "run", "task", try_number=number)}


def test_a_plain_store_is_enough(plain) -> None:
    """Over four verbs the mixin submits, finds, reconnects, resubmits and collects as it does over its own store."""
    cloud = Cloud()
    with pytest.raises(CrashError):
        ExactOperator(cloud, crash="submit").execute(plain(1))
    with pytest.raises(CrashError):
        ExactOperator(cloud, crash="wait").execute(plain(2))
    assert len(cloud.jobs) == 1
    cloud.jobs[0].status = "FAILED"
    with pytest.raises(CrashError):
        ExactOperator(cloud, crash="submit").execute(plain(3))
    assert len(cloud.jobs) == 2
    assert ExactOperator(cloud).execute(plain(4)) == {"result of": "job-2"}
    assert ExactOperator(cloud).execute(plain(5)) == {"result of": "job-2"}
    cloud.jobs[1].status = "SUSPENDED"
    with pytest.raises(UnknownJobStatusError):
        ExactOperator(cloud).execute(plain(6))
    assert len(cloud.jobs) == 2
    assert len(set(cloud.tokens)) == 2
    store = plain(6)["task_state_store"]
    assert store.get(KEY) == "job-2"
    assert store.get(SUBMISSION) == {"token": cloud.tokens[1], "state": "submitted"}


@pytest.mark.parametrize("wrap", [FourVerbs, lambda store: store], ids=["four verbs", "custom class"])
def test_a_plain_store_gets_the_intent_first_and_the_id_before_its_note(wrap) -> None:
    """Where two keys can't change at one moment, their order is such that a crash between them duplicates nothing."""
    shelf = Shelf()
    custom = StateStore(CustomBackend(shelf), settings=Settings(), clock=system_clock)
    Operator(Cloud()).execute({"task_state_store": wrap(custom.task("dag", "run", "task", try_number=1))})
    writes = [call for call in shelf.calls if not call.startswith("get")]
    assert writes == [f"set {SUBMISSION}", f"delete {KEY}", f"set {KEY}", f"set {SUBMISSION}"]


def test_an_id_beside_an_intent_is_a_submitted_job(plain) -> None:
    """A crash between the two last writes leaves both; when that job fails, its token is not used again."""
    cloud = Cloud()
    store = plain(1)["task_state_store"]
    token = FindingOperator(cloud).prepare_submission(plain(1))
    store.set(KEY, cloud.submit(token))
    operator = FindingOperator(cloud)
    assert operator.resolve_resume(plain(2)).action is ResumeAction.RECONNECT
    assert operator.submission_token == token
    cloud.jobs[0].status = "FAILED"
    assert FindingOperator(cloud).execute(plain(3)) == {"result of": "job-2"}
    assert cloud.tokens[1] != token
    assert "find" not in cloud.calls


def test_a_store_that_can_is_read_at_one_moment_and_changed_at_one_moment(store) -> None:
    """Two keys are one read and one transaction where the store offers that: four in all to submit, one to collect."""

    class Counting:
        def __init__(self, accessor: TaskStateStore) -> None:
            self.accessor = accessor
            self.calls: list[str] = []

        def peek(self, keys: list[str]) -> dict[str, Any]:
            self.calls.append("peek")
            return self.accessor.peek(keys)

        def swap(self, values: dict[str, Any], drop: list[str]) -> None:
            self.calls.append("swap")
            self.accessor.swap(values, drop)

    cloud = Cloud()
    counting = Counting(store.task("dag", "run", "task", try_number=1))
    Operator(cloud).execute({"task_state_store": counting})
    assert counting.calls == ["peek", "peek", "swap", "swap"]
    counting.calls.clear()
    Operator(cloud).execute({"task_state_store": counting})
    assert counting.calls == ["peek"]


def test_a_store_keeps_ids_with_the_default_retention(person, attempt) -> None:
    """Ids and submissions last as long as any entry without a retention of its own."""
    Operator(Cloud()).execute(attempt(1))
    entry = person.entry(KEY)
    assert entry.expires_at - entry.updated_at == timedelta(days=30)
