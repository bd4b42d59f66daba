"""ResumableJobMixin: a training job on a cluster is submitted once, even if the worker dies while it is submitting.

    keepstate run --retries 10 --retry-delay 1m -- python -m examples.mixin_operator

The cluster is a folder here (keepstate.testing.spool), so that this runs anywhere; a real one has the same handful of calls.
The mixin stores an intent with a token before it submits. The job carries the token as a tag, and `find_job` finds it by that.
"""

from __future__ import annotations

import sys

from keepstate import BaseOperator, ResumableJobMixin
from keepstate.testing.spool import SpoolJobSystem

FOLDER = sys.argv[1] if sys.argv[1:] else "/tmp/keepstate-cluster"
SECONDS = float(sys.argv[2]) if sys.argv[2:] else 60.0


class TrainOperator(ResumableJobMixin, BaseOperator):
    external_id_key = "training_job"
    template_fields = ("model",)

    def __init__(self, *, model, **kwargs):
        super().__init__(**kwargs)
        self.model = model
        self.cluster = SpoolJobSystem(FOLDER)

    def execute(self, context):
        return self.execute_resumable(context)

    def submit_job(self, context):
        return self.cluster.submit(SECONDS, token=self.submission_token, payload={"model": self.model})

    def find_job(self, token, context):
        return self.cluster.find_by_token(token)

    def get_job_status(self, external_id, context):
        return self.cluster.status(external_id)

    def is_job_active(self, status):
        return status == "RUNNING"

    def is_job_succeeded(self, status):
        return status == "SUCCEEDED"

    def is_job_failed(self, status):
        return status in {"FAILED", "GONE"}

    def poll_until_complete(self, external_id, context):
        print(f"waiting for {external_id}", flush=True)
        if self.cluster.wait(external_id) != "SUCCEEDED":
            raise RuntimeError(f"{external_id} failed")

    def get_job_result(self, external_id, context):
        return self.cluster.result(external_id)


if __name__ == "__main__":
    print(TrainOperator(task_id="train", model="churn_{{ ds_nodash }}", retries=2).run())
