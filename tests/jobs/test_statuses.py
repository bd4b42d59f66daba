"""What a job's status leads to, and what an exception on the way does."""

from __future__ import annotations

import pickle

import pytest

from keepstate.errors import UnknownJobStatusError
from tests.jobs.attempts import KEY, SUBMISSION
from tests.jobs.clouds import Cloud, CrashError, ExactOperator, FindingOperator, Operator


@pytest.mark.parametrize(("operator", "refused"), [(FindingOperator, False), (ExactOperator, True)])
@pytest.mark.parametrize("status", ["GONE", "SUSPENDED", None, 17])
def test_an_unknown_status_is_a_failure_only_to_a_class_that_can_t_tell(
    status, operator, refused, attempt, person
) -> None:
    """With is_job_failed, a status that is nothing known ends the attempt; without it, the guide's rule resubmits."""
    cloud = Cloud()
    with pytest.raises(CrashError):
        operator(cloud, crash="wait").execute(attempt(1))
    cloud.jobs[0].status = status
    if not refused:
        assert operator(cloud).execute(attempt(2)) == {"result of": "job-2"}
        assert len(set(cloud.tokens)) == 2
        return
    with pytest.raises(UnknownJobStatusError, match=f"'job-1'.*'{KEY}'") as caught:
        operator(cloud).execute(attempt(2))
    assert len(cloud.jobs) == 1
    assert person.get(KEY) == "job-1"
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.external_id, error.status, str(error)) == ("job-1", status, str(caught.value))


def test_what_unknown_status_advises_works(attempt, person) -> None:
    """After UnknownJobStatusError a person who deletes the key gets a new submission."""
    cloud = Cloud()
    with pytest.raises(CrashError):
        ExactOperator(cloud, crash="wait").execute(attempt(1))
    cloud.jobs[0].status = "SUSPENDED"
    with pytest.raises(UnknownJobStatusError):
        ExactOperator(cloud).execute(attempt(2))
    person.delete(KEY)
    assert ExactOperator(cloud).execute(attempt(3)) == {"result of": "job-2"}


@pytest.mark.parametrize("operator", [Operator, FindingOperator, ExactOperator])
def test_a_failed_job_is_submitted_anew_with_a_new_token(operator, attempt, person) -> None:
    """After a terminal failure the job, its id and its token are new ones."""
    cloud = Cloud()
    with pytest.raises(CrashError):
        operator(cloud, crash="wait").execute(attempt(1))
    cloud.jobs[0].status = "FAILED"
    assert operator(cloud).execute(attempt(2)) == {"result of": "job-2"}
    assert person.get(KEY) == "job-2"
    assert person.get(SUBMISSION) == {"token": cloud.tokens[1], "state": "submitted"}
    assert cloud.tokens[0] != cloud.tokens[1]


@pytest.mark.parametrize("operator", [Operator, FindingOperator, ExactOperator])
def test_a_status_query_that_raises_ends_the_attempt(operator, attempt, person) -> None:
    """The exception is the class's own, the id stays, and nothing is submitted."""
    cloud = Cloud()
    with pytest.raises(CrashError):
        operator(cloud, crash="wait").execute(attempt(1))
    before = dict(person.items())
    cloud.broken = ConnectionResetError("by peer")
    with pytest.raises(ConnectionResetError, match="by peer"):
        operator(cloud).execute(attempt(2))
    assert dict(person.items()) == before
    cloud.broken = None
    assert operator(cloud).execute(attempt(3)) == {"result of": "job-1"}
    assert len(cloud.jobs) == 1


def test_a_search_that_raises_ends_the_attempt(attempt, person) -> None:
    """When find_job raises, nothing is submitted and the intent stays."""

    class Blind(FindingOperator):
        def find_job(self, token, context):
            raise TimeoutError("no answer")

    cloud = Cloud()
    with pytest.raises(CrashError):
        Blind(cloud, crash="submit").execute(attempt(1))
    before = dict(person.items())
    with pytest.raises(TimeoutError, match="no answer"):
        Blind(cloud).execute(attempt(2))
    assert dict(person.items()) == before
    assert FindingOperator(cloud).execute(attempt(3)) == {"result of": "job-1"}
    assert len(cloud.jobs) == 1


def test_a_submission_that_raises_is_tried_again_with_its_token(attempt) -> None:
    """Nobody knows whether a submission that raised made a job, so the search comes first, and the token stays."""

    class Refusing(FindingOperator):
        def submit_job(self, context):
            self.cloud.calls.append(f"refuse {self.submission_token}")
            raise ConnectionAbortedError

    cloud = Cloud()
    with pytest.raises(ConnectionAbortedError):
        Refusing(cloud).execute(attempt(1))
    FindingOperator(cloud).execute(attempt(2))
    assert cloud.calls == [f"refuse {cloud.tokens[0]}", "find", "submit", "wait"]
