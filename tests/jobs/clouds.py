"""An external job system in memory, and operators over it, for tests that need no process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from keepstate.jobs import ResumableJobMixin

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass
class Job:
    """A job of the cloud."""

    id: Any
    token: str | None
    status: str = "RUNNING"


@dataclass
class Cloud:
    """Jobs in a list. ``ids`` are handed out in their order; what a caller did is in ``calls``."""

    ids: Iterable[Any] = field(default_factory=lambda: (f"job-{n}" for n in range(1, 99)))
    jobs: list[Job] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    broken: Exception | None = None

    def __post_init__(self) -> None:
        self._ids = iter(self.ids)

    def submit(self, token: str | None) -> Any:
        self.calls.append("submit")
        self.jobs.append(Job(next(self._ids), token))
        return self.jobs[-1].id

    def status(self, job_id: Any) -> str:
        self.calls.append("status")
        if self.broken:
            raise self.broken
        return next(
            (job.status for job in self.jobs if (type(job.id), job.id) == (type(job_id), job_id)), "GONE"
        )

    def find(self, token: str) -> Any:
        self.calls.append("find")
        return next((job.id for job in reversed(self.jobs) if job.token == token), None)

    @property
    def tokens(self) -> list[str | None]:
        """The token of each submission."""
        return [job.token for job in self.jobs]


class Operator(ResumableJobMixin):
    """Submits one job, and sees it succeed while it waits. ``crash`` names a method that ends the attempt instead."""

    def __init__(self, cloud: Cloud, *, crash: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cloud = cloud
        self.crash = crash
        self.tokens: dict[str, str | None] = {}

    def execute(self, context):
        return self.execute_resumable(context)

    def submit_job(self, context):
        self.tokens["submit"] = self.submission_token
        job = self.cloud.submit(self.submission_token)
        self._maybe_crash("submit")
        return job

    def get_job_status(self, external_id, context):
        return self.cloud.status(external_id)

    def is_job_active(self, status):
        return status == "RUNNING"

    def is_job_succeeded(self, status):
        return status == "SUCCEEDED"

    def poll_until_complete(self, external_id, context):
        self.tokens["wait"] = self.submission_token
        self.cloud.calls.append("wait")
        self._maybe_crash("wait")
        for job in self.cloud.jobs:
            if job.id == external_id:
                job.status = "SUCCEEDED"
        return "what waiting returns is nobody's result"

    def get_job_result(self, external_id, context):
        self.tokens["result"] = self.submission_token
        return {"result of": external_id}

    def _maybe_crash(self, method: str) -> None:
        if self.crash == method:
            raise CrashError(method)


class FindingOperator(Operator):
    """Finds a job by its token."""

    def find_job(self, token, context):
        return self.cloud.find(token)


class ExactOperator(FindingOperator):
    """Knows failure when it sees it, too."""

    def is_job_failed(self, status):
        return status == "FAILED"


class CrashError(Exception):
    """The attempt ends here."""


class FourVerbs:
    """A store with the guide's four verbs only, as Airflow 3.3 gives it to a task."""

    def __init__(self, store: Any) -> None:
        self.get, self.set, self.delete, self.clear = store.get, store.set, store.delete, store.clear
