"""The steps that execute_resumable is built from, for operators that defer."""

from __future__ import annotations

import pytest

from keepstate.jobs import ResumeAction, ResumeDecision
from tests.jobs.attempts import KEY, SUBMISSION
from tests.jobs.clouds import Cloud, CrashError, ExactOperator, FindingOperator, Operator


def test_a_decision_submits_and_waits_for_nothing(attempt, person) -> None:
    """resolve_resume says what to do; the store changes only where a job was found by its token."""
    cloud = Cloud()
    assert ExactOperator(cloud).resolve_resume(attempt(1)) == ResumeDecision(ResumeAction.SUBMIT)
    assert dict(person.items()) == {}
    with pytest.raises(CrashError):
        ExactOperator(cloud, crash="submit").execute(attempt(1))
    cloud.calls.clear()

    decision = ExactOperator(cloud).resolve_resume(attempt(2))
    assert decision == ResumeDecision(ResumeAction.RECONNECT, "job-1", "RUNNING")
    assert dict(person.items()) == {
        KEY: "job-1",
        SUBMISSION: {"token": cloud.tokens[0], "state": "submitted"},
    }
    before = [person.entry(KEY), person.entry(SUBMISSION)]
    cloud.jobs[0].status = "SUCCEEDED"
    decision = ExactOperator(cloud).resolve_resume(attempt(2))
    assert decision == ResumeDecision(ResumeAction.ALREADY_SUCCEEDED, "job-1", "SUCCEEDED")
    cloud.jobs[0].status = "FAILED"
    operator = ExactOperator(cloud)
    assert operator.resolve_resume(attempt(2)) == ResumeDecision(ResumeAction.SUBMIT, None, "FAILED")
    # whoever submitted without preparing must not do it with the failed job's token
    assert operator.submission_token is None
    assert [person.entry(KEY), person.entry(SUBMISSION)] == before
    assert cloud.calls == ["find", "status", "status", "status"]


def test_a_deferrable_operator_is_built_from_the_steps(attempt, person) -> None:
    """Decide, prepare, submit, record, then defer: the next attempt reconnects."""

    class Deferred(FindingOperator):
        def execute(self, context):
            decision = self.resolve_resume(context)
            if decision.action is ResumeAction.ALREADY_SUCCEEDED:
                return self.get_job_result(decision.external_id, context)
            external_id = decision.external_id
            if decision.action is ResumeAction.SUBMIT:
                token = self.prepare_submission(context)
                assert person.get(SUBMISSION) == {"token": token, "state": "intended"}
                external_id = self.cloud.submit(token)
                self.record_submission(context, external_id)
            return ("defer", external_id)

    cloud = Cloud()
    assert Deferred(cloud).execute(attempt(1)) == ("defer", "job-1")
    assert Deferred(cloud).execute(attempt(2)) == ("defer", "job-1")
    cloud.jobs[0].status = "SUCCEEDED"
    assert Deferred(cloud).execute(attempt(3)) == {"result of": "job-1"}
    assert cloud.calls == ["submit", "status", "status"]


def test_an_operator_made_anew_prepares_from_what_is_stored(attempt) -> None:
    """prepare_submission needs no decision made by the same object: what is stored tells which token it is."""
    cloud = Cloud()
    pending = Operator(cloud).prepare_submission(attempt(1))
    assert Operator(cloud).prepare_submission(attempt(1)) == pending
    recorder = Operator(cloud)
    recorder.record_submission(attempt(1), "job-1")
    assert recorder.submission_token == pending
    # the job is over, or the caller would not prepare another one
    anew = Operator(cloud).prepare_submission(attempt(1))
    assert anew != pending
    assert Operator(cloud).prepare_submission(attempt(1)) == anew


def test_an_id_recorded_by_an_object_made_anew_settles_the_submission(attempt, person) -> None:
    """Recording alone marks the intent as submitted, so that deleting the id later asks for a new job."""
    token = Operator(Cloud()).prepare_submission(attempt(1))
    Operator(Cloud()).record_submission(attempt(1), "job-1")
    assert person.get(SUBMISSION) == {"token": token, "state": "submitted"}


def test_an_id_without_a_submission_may_be_recorded(attempt, person) -> None:
    """record_submission stores an id that came from somewhere else."""
    Operator(Cloud()).record_submission(attempt(1), "from elsewhere")
    assert dict(person.items()) == {KEY: "from elsewhere"}
