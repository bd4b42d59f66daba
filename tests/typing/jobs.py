"""What `mypy --strict` sees of ResumableJobMixin. Read by mypy, never executed."""

from __future__ import annotations

from typing import Any, TypedDict

from typing_extensions import assert_type

from keepstate import BaseOperator, ResumableJobMixin, ResumeAction, ResumeDecision


class JobId(TypedDict):
    """A structured id."""

    name: str
    uid: str


class PlainOperator:
    """The base of an operator, with a logger of its own kind."""

    def __init__(self, *, task_id: str) -> None:
        self.task_id = task_id


class SubmitOperator(ResumableJobMixin, PlainOperator):
    """A class may narrow what ids, statuses and contexts are."""

    external_id_key = "my_job_id"

    def execute(self, context: dict[str, Any]) -> int:
        """Run the job."""
        result: int = self.execute_resumable(context)
        return result

    def submit_job(self, context: dict[str, Any]) -> JobId:
        """Submit the job."""
        assert_type(self.submission_token, str | None)
        return {"name": f"nightly-{self.submission_token}", "uid": "5f0c"}

    def get_job_status(self, external_id: JobId, context: dict[str, Any]) -> str:
        """Ask for the status."""
        return external_id["uid"]

    def is_job_active(self, status: str) -> bool:
        """Say whether it runs."""
        return status == "RUNNING"

    def is_job_succeeded(self, status: str) -> bool:
        """Say whether it is done."""
        return status == "SUCCEEDED"

    def is_job_failed(self, status: str) -> bool:
        """Say whether it failed."""
        return status == "FAILED"

    def find_job(self, token: str, context: dict[str, Any]) -> JobId | None:
        """Look the job up."""
        return {"name": token, "uid": "5f0c"}

    def poll_until_complete(self, external_id: JobId, context: dict[str, Any]) -> None:
        """Wait."""

    def get_job_result(self, external_id: JobId, context: dict[str, Any]) -> int:
        """Fetch the result."""
        self.log.info("job %s is done", external_id)
        return 7


def steps(operator: SubmitOperator, context: dict[str, Any]) -> None:
    """Take the steps of a deferrable operator."""
    assert_type(operator.durable, bool)
    assert_type(operator.external_id_key, str)
    decision = operator.resolve_resume(context)
    assert_type(decision, ResumeDecision)
    assert_type(decision.action, ResumeAction)
    if decision.action is ResumeAction.SUBMIT:
        assert_type(operator.prepare_submission(context), str)
        operator.record_submission(context, operator.submit_job(context))


operator = SubmitOperator(task_id="submit", durable=False)
steps(operator, {})
ResumableJobMixin()  # type: ignore[abstract]


class LocalOperator(ResumableJobMixin, BaseOperator):
    """The mixin beside keepstate's own operator, whose ``log`` it takes."""

    def execute(self, context: Any) -> Any:
        """Run the job."""
        self.log.info("running")
        return self.execute_resumable(context)

    def submit_job(self, context: Any) -> int:
        """Submit the job."""
        return 7

    def get_job_status(self, external_id: int, context: Any) -> str:
        """Ask for the status."""
        return f"status of {external_id}"

    def is_job_active(self, status: str) -> bool:
        """Say whether it runs."""
        return status == "RUNNING"

    def is_job_succeeded(self, status: str) -> bool:
        """Say whether it is done."""
        return status == "SUCCEEDED"

    def poll_until_complete(self, external_id: int, context: Any) -> None:
        """Wait."""

    def get_job_result(self, external_id: int, context: Any) -> None:
        """There is none."""


LocalOperator(task_id="local", retries=3, durable=False)
