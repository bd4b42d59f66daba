"""The mixin beside keepstate's own BaseOperator, retried by the local runtime."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from keepstate import BaseOperator, dag_run
from tests.jobs.attempts import KEY, SUBMISSION
from tests.jobs.clouds import Cloud, CrashError, FindingOperator

if TYPE_CHECKING:
    from keepstate import StateStore


class LocalOperator(FindingOperator, BaseOperator):
    """Loses as many attempts as it is told to, where it is told to."""

    template_fields = ("crash",)

    def __init__(self, *, lose: int = 0, **kwargs: Any) -> None:
        super().__init__(retry_delay=timedelta(0), **kwargs)
        self.lose = lose

    def _maybe_crash(self, method: str) -> None:
        if self.crash == method and self.lose:
            self.lose -= 1
            raise CrashError(method)


@pytest.mark.parametrize("crash", ["submit", "wait"])
def test_a_retry_finds_the_job(crash: str, store: StateStore) -> None:
    """An operator that loses attempts submits once, whether its id was stored or not."""
    cloud = Cloud()
    with dag_run("nightly", "1", store=store):
        operator = LocalOperator(task_id="export", cloud=cloud, crash=crash, lose=2, retries=2)
        assert operator.run() == {"result of": "job-1"}
    assert len(cloud.jobs) == 1
    assert dict(store.task("nightly", "1", "export").items()) == {
        KEY: "job-1",
        SUBMISSION: {"token": cloud.tokens[0], "state": "submitted"},
    }


def test_a_later_process_finds_the_job(store: StateStore) -> None:
    """When the retries are used up, the run is continued by another operator object, and the job is found."""
    cloud = Cloud()
    with pytest.raises(CrashError), dag_run("nightly", "1", store=store):
        LocalOperator(task_id="export", cloud=cloud, crash="submit", lose=1)
    with dag_run("nightly", "1", store=store):
        assert LocalOperator(task_id="export", cloud=cloud, crash="submit").run() == {"result of": "job-1"}
    assert cloud.calls == ["submit", "find", "status", "wait"]


def test_not_durable_submits_in_each_attempt(store: StateStore) -> None:
    """With durable=False each attempt has a job and a token of its own, and nothing is stored."""
    cloud = Cloud()
    with dag_run("nightly", "1", store=store):
        operator = LocalOperator(
            task_id="export", cloud=cloud, crash="wait", lose=1, retries=1, durable=False
        )
        assert operator.run() == {"result of": "job-2"}
    assert len(set(cloud.tokens)) == 2
    assert dict(store.task("nightly", "1", "export").items()) == {}


def test_each_run_has_a_job_of_its_own(store: StateStore) -> None:
    """Another run of the same task knows nothing of the first one's job."""
    cloud = Cloud()
    for run_id in ("1", "2"):
        with dag_run("nightly", run_id, store=store):
            LocalOperator(task_id="export", cloud=cloud)
    assert len(set(cloud.tokens)) == 2
