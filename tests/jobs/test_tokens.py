"""Submission tokens: one for each submission, whoever looks and whatever a person changes."""

from __future__ import annotations

import logging

import pytest

from keepstate.clock import DAY, system_clock
from keepstate.connect import connect
from keepstate.errors import BackendUnavailableError
from keepstate.jobs import ResumeAction
from keepstate.settings import Settings
from tests.jobs.attempts import KEY, SUBMISSION
from tests.jobs.clouds import Cloud, CrashError, FindingOperator, Operator


def test_the_token_is_readable_while_submitting_and_after_reconnecting(attempt) -> None:
    """submit_job, and every later attempt on the same job, see the same token."""
    cloud = Cloud()
    first, second, third = Operator(cloud, crash="wait"), Operator(cloud), Operator(cloud)
    with pytest.raises(CrashError):
        first.execute(attempt(1))
    second.execute(attempt(2))
    third.execute(attempt(3))
    (token,) = cloud.tokens
    assert token
    assert first.tokens == {"submit": token, "wait": token}
    assert second.tokens == {"wait": token, "result": token}
    assert third.tokens == {"result": token}


def test_a_found_job_s_token_is_readable_too(attempt) -> None:
    """Reconnecting by token shows the token."""
    cloud = Cloud()
    with pytest.raises(CrashError):
        FindingOperator(cloud, crash="submit").execute(attempt(1))
    operator = FindingOperator(cloud)
    operator.execute(attempt(2))
    assert operator.tokens == {"wait": cloud.tokens[0], "result": cloud.tokens[0]}


def test_an_id_from_elsewhere_has_no_token(attempt, person) -> None:
    """An id that Airflow's own mixin or a person stored is reconnected to; there is no token for it."""
    cloud = Cloud()
    cloud.submit(None)
    person.set(KEY, "job-1")
    operator = FindingOperator(cloud)
    assert operator.execute(attempt(1)) == {"result of": "job-1"}
    assert operator.tokens == {"wait": None, "result": None}
    assert len(cloud.jobs) == 1


def test_a_failed_job_from_elsewhere_is_submitted_anew(attempt, person) -> None:
    """The first submission after an id from elsewhere gets a token, and the old id goes."""
    cloud = Cloud()
    cloud.submit(None)
    cloud.jobs[0].status = "FAILED"
    person.set(KEY, "job-1")
    assert FindingOperator(cloud).execute(attempt(1)) == {"result of": "job-2"}
    assert cloud.tokens[1]


def test_a_deleted_id_asks_for_a_new_job(attempt, person) -> None:
    """When a person deletes the id of a submitted job, it isn't looked for: a new token, a new submission."""
    cloud = Cloud()
    with pytest.raises(CrashError):
        FindingOperator(cloud, crash="wait").execute(attempt(1))
    person.delete(KEY)
    assert FindingOperator(cloud).execute(attempt(2)) == {"result of": "job-2"}
    assert "find" not in cloud.calls
    assert cloud.tokens[0] != cloud.tokens[1]


def test_cleared_entries_ask_for_a_new_job(attempt, person) -> None:
    """The same when a person clears everything."""
    cloud = Cloud()
    with pytest.raises(CrashError):
        FindingOperator(cloud, crash="wait").execute(attempt(1))
    person.clear()
    assert FindingOperator(cloud).execute(attempt(2)) == {"result of": "job-2"}
    assert "find" not in cloud.calls


@pytest.mark.parametrize(
    "odd", ["text", 7, [], {}, {"token": 5}, {"token": None, "state": "intended"}], ids=repr
)
def test_a_submission_edited_into_nonsense_counts_as_none(odd, attempt, person) -> None:
    """What a person made unreadable under the submission's key breaks nothing."""
    person.set(SUBMISSION, odd)
    cloud = Cloud()
    assert FindingOperator(cloud).execute(attempt(1)) == {"result of": "job-1"}
    assert cloud.calls == ["submit", "wait"]
    assert cloud.tokens[0]


def test_the_id_and_its_submission_change_at_one_moment(attempt, person) -> None:
    """Id and submission are written under one version, and expire together."""
    Operator(Cloud()).execute(attempt(1))
    found = [person.entry(KEY), person.entry(SUBMISSION)]
    assert len({(entry.version, entry.updated_at, entry.expires_at) for entry in found}) == 1


def test_expired_entries_ask_for_a_new_job() -> None:
    """After its retention a job is forgotten as a whole: no id without a submission, nor the other way round."""
    now = system_clock()
    cloud = Cloud()
    with connect("memory:", settings=Settings(), clock=lambda: now) as store:
        context = {"task_state_store": store.task("dag", "run", "task", try_number=1)}
        with pytest.raises(CrashError):
            FindingOperator(cloud, crash="wait").execute(context)
        now += 29 * DAY
        assert FindingOperator(cloud).resolve_resume(context).action is ResumeAction.RECONNECT
        now += 2 * DAY
        assert FindingOperator(cloud).execute(context) == {"result of": "job-2"}
    assert "find" not in cloud.calls


def test_a_key_of_the_class_s_own(attempt, person) -> None:
    """external_id_key names both entries."""

    class Named(Operator):
        external_id_key = "my_job_id"

    cloud = Cloud()
    Named(cloud).execute(attempt(1))
    assert dict(person.items()) == {
        "my_job_id": "job-1",
        "my_job_id.submission": {"token": cloud.tokens[0], "state": "submitted"},
    }


def test_without_a_search_an_intent_is_a_warning(attempt, warned) -> None:
    """A class without find_job is told that a job may be running unknown, and submits with the same token."""
    cloud = Cloud()
    with pytest.raises(CrashError):
        Operator(cloud, crash="submit").execute(attempt(1))
    assert not warned()
    Operator(cloud).execute(attempt(2))
    (warning,) = warned()
    assert "find_job" in warning
    assert cloud.tokens[0] in warning
    assert cloud.tokens[0] == cloud.tokens[1]


def test_when_the_id_can_t_be_stored_the_log_has_it(attempt, caplog) -> None:
    """A store that goes away after the submission ends the attempt, with the job's id in its log."""
    caplog.set_level(logging.INFO, "keepstate.jobs")

    class Failing(FindingOperator):
        def submit_job(self, context):
            job = super().submit_job(context)
            context["task_state_store"] = Gone()
            return job

    class Gone:
        def swap(self, values, drop):
            raise BackendUnavailableError("gone", address="memory:")

    cloud = Cloud()
    with pytest.raises(BackendUnavailableError):
        Failing(cloud).execute(attempt(1))
    assert f"Submitted job job-1, with the token {cloud.tokens[0]}" in caplog.messages
    assert FindingOperator(cloud).execute(attempt(2)) == {"result of": "job-1"}
