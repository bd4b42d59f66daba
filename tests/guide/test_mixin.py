"""What the guide says of `ResumableJobMixin` and tests/jobs, which walks its crashes, leaves open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from keepstate import BaseOperator, ResumableJobMixin, dag_run

if TYPE_CHECKING:
    from keepstate import StateStore


class Failing(ResumableJobMixin, BaseOperator):
    """Its jobs fail while they are waited for, until ``heals`` is set."""

    heals = False

    def __init__(self, **declared: Any) -> None:
        super().__init__(**declared)
        self.submitted: list[str] = []

    def execute(self, context: Any) -> Any:
        return self.execute_resumable(context)

    def submit_job(self, context: Any) -> str:
        self.submitted.append(f"job-{len(self.submitted) + 1}")
        return self.submitted[-1]

    def get_job_status(self, external_id: Any, context: Any) -> str:
        return "FAILED"

    def is_job_active(self, status: Any) -> bool:
        return bool(status == "RUNNING")

    def is_job_succeeded(self, status: Any) -> bool:
        return bool(status == "SUCCEEDED")

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        assert context["task_state_store"].get("remote_job_id") == external_id
        if not self.heals:
            self.heals = True
            raise RuntimeError(f"{external_id} has failed")

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        return f"{external_id} is done"


def test_a_failure_while_waiting_fails_the_attempt_and_the_retry_submits_anew(store: StateStore) -> None:
    """What poll_until_complete raises ends the attempt; the retry finds the failed job and submits another one.

    The id stands under ``remote_job_id`` before waiting begins.
    """
    with dag_run("etl", "2026-11-29", store=store):
        operator = Failing(task_id="train", retries=1, retry_delay=0)
    assert operator.submitted == ["job-1", "job-2"]
    assert store.task("etl", "2026-11-29", "train").get("remote_job_id") == "job-2"
    assert [attempt.state for attempt in store.attempts("etl", "2026-11-29", "train")] == [
        "success",
        "up_for_retry",
    ]


def test_without_a_retry_the_failure_goes_out(store: StateStore) -> None:
    """The caller gets the class's own exception."""
    with pytest.raises(RuntimeError, match="job-1 has failed"), dag_run("etl", "2026-11-29", store=store):
        Failing(task_id="train")
