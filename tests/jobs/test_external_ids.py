"""External ids and results: any JSON value is an id, and every way gives one result."""

from __future__ import annotations

import math
import uuid

import pytest

from keepstate.errors import InvalidTypeError, InvalidValueError, KeepstateError
from tests.jobs.attempts import KEY, SUBMISSION
from tests.jobs.clouds import Cloud, CrashError, FindingOperator, Operator


@pytest.mark.parametrize(
    "external_id",
    [
        0,
        "",
        False,
        0.0,
        [],
        {},
        "driver-20261129-0001",
        2**70,
        {"name": "nightly", "uid": "5f0c"},
        ["eu-1", 7, None],
    ],
    ids=repr,
)
def test_any_json_value_is_an_id(external_id, attempt) -> None:
    """An id that is empty, zero or structured is stored and compared whole, as it is."""
    cloud = Cloud(ids=[external_id])
    with pytest.raises(CrashError):
        Operator(cloud, crash="wait").execute(attempt(1))
    result = Operator(cloud).execute(attempt(2))["result of"]
    assert (type(result), result) == (type(external_id), external_id)
    assert cloud.calls == ["submit", "wait", "status", "wait"]


def test_the_same_name_with_another_uid_is_another_job(attempt) -> None:
    """A structured id tells a job from a later one of the same name."""
    cloud = Cloud(ids=[{"name": "nightly", "uid": "1"}, {"name": "nightly", "uid": "2"}])
    with pytest.raises(CrashError):
        Operator(cloud, crash="wait").execute(attempt(1))
    cloud.jobs[0].id = {"name": "nightly", "uid": "somebody else's"}
    assert Operator(cloud).execute(attempt(2)) == {"result of": {"name": "nightly", "uid": "2"}}


def test_an_id_that_is_no_json_is_refused_and_the_job_is_found_again(attempt, person) -> None:
    """When the id can't be stored, that is noted, and the next attempt finds the job by its token."""
    cloud = Cloud(ids=[("job", 1)])
    with pytest.raises(InvalidTypeError, match=r"submit_job\(\).*tuple"):
        FindingOperator(cloud).execute(attempt(1))
    assert person.get(SUBMISSION) == {
        "token": cloud.tokens[0],
        "state": "unrecorded",
        "external_id": "('job', 1)",
    }
    cloud.jobs[0].id = "job 1"
    assert FindingOperator(cloud).execute(attempt(2)) == {"result of": "job 1"}
    assert len(cloud.jobs) == 1


@pytest.mark.parametrize("external_id", [("job", 1), uuid.UUID(int=7), math.nan, "caf\udce9"], ids=ascii)
def test_an_id_that_is_no_json_leads_to_no_second_job(external_id, attempt, person) -> None:
    """Without a search, attempts refuse to submit again until a person has decided."""
    cloud = Cloud(ids=[external_id, "job-2"])
    with pytest.raises((InvalidTypeError, InvalidValueError), match="no retry submits another"):
        Operator(cloud).execute(attempt(1))
    for number in (2, 3):
        with pytest.raises(KeepstateError, match="nothing is submitted again") as refused:
            Operator(cloud).execute(attempt(number))
        assert ascii(external_id) in str(refused.value)
    assert len(cloud.jobs) == 1
    person.delete(SUBMISSION)
    assert Operator(cloud).execute(attempt(4)) == {"result of": "job-2"}


def test_the_id_of_such_a_job_may_be_set_by_hand(attempt, person) -> None:
    """Then the job is gone on with, as any other."""
    cloud = Cloud(ids=[("job", 1)])
    with pytest.raises(InvalidTypeError):
        Operator(cloud).execute(attempt(1))
    cloud.jobs[0].id = "job-1"
    person.set(KEY, "job-1")
    assert Operator(cloud).execute(attempt(2)) == {"result of": "job-1"}
    assert len(cloud.jobs) == 1


@pytest.mark.parametrize("external_id", [0, "", {"name": "n", "uid": "u"}], ids=repr)
def test_any_json_value_may_be_found(external_id, attempt) -> None:
    """What find_job returns is an id unless it is None."""
    cloud = Cloud(ids=[external_id])
    with pytest.raises(CrashError):
        FindingOperator(cloud, crash="submit").execute(attempt(1))
    assert FindingOperator(cloud).execute(attempt(2)) == {"result of": external_id}
    assert len(cloud.jobs) == 1


def test_no_id_is_a_warning_and_the_attempt_goes_on(attempt, person, warned) -> None:
    """A submission that returns None is waited for; it can be found by its token only."""
    cloud = Cloud(ids=[None, None])
    with pytest.raises(CrashError):
        Operator(cloud, crash="wait").execute(attempt(1))
    assert [text for text in warned() if "returned no id" in text]
    assert person.get(KEY) is None
    assert person.get(SUBMISSION) == {"token": cloud.tokens[0], "state": "intended"}
    assert Operator(cloud).execute(attempt(2)) == {"result of": None}
    assert cloud.tokens[0] == cloud.tokens[1]


def test_no_id_does_not_leave_an_earlier_job_s_id(attempt, person) -> None:
    """The id of a failed job is gone when its successor returned none."""
    cloud = Cloud(ids=["job-1", None])
    with pytest.raises(CrashError):
        Operator(cloud, crash="wait").execute(attempt(1))
    cloud.jobs[0].status = "FAILED"
    Operator(cloud).execute(attempt(2))
    assert KEY not in dict(person.items())


@pytest.mark.parametrize("status", ["fresh", "RUNNING", "SUCCEEDED"])
def test_every_way_returns_the_job_s_result(status, attempt) -> None:
    """Fresh, reconnected and already succeeded, the result is what get_job_result says."""
    cloud = Cloud()
    if status != "fresh":
        with pytest.raises(CrashError):
            Operator(cloud, crash="wait").execute(attempt(1))
        cloud.jobs[0].status = status
    cloud.calls.clear()
    assert Operator(cloud).execute(attempt(2)) == {"result of": "job-1"}
    asked = {"fresh": ["submit", "wait"], "RUNNING": ["status", "wait"], "SUCCEEDED": ["status"]}
    assert cloud.calls == asked[status]


def test_running_an_operator_again_gives_the_result_again(attempt) -> None:
    """The same operator object may be executed again: it collects what is there."""
    cloud = Cloud()
    operator = Operator(cloud)
    assert operator.execute(attempt(1)) == operator.execute(attempt(2)) == {"result of": "job-1"}
    assert len(cloud.jobs) == 1


def test_an_operator_object_carries_nothing_into_another_run(store) -> None:
    """One operator object executed for two runs submits two jobs with two tokens, each stored with its own run."""
    cloud = Cloud()
    operator = Operator(cloud)
    for run in ("one", "two"):
        operator.execute({"task_state_store": store.task("dag", run, "task", try_number=1)})
    stored = [store.task("dag", run, "task").get(SUBMISSION)["token"] for run in ("one", "two")]
    assert cloud.tokens == stored
    assert len(set(stored)) == 2
