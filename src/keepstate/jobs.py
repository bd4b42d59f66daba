"""`ResumableJobMixin`: submit a long-running external job once, and find it again after a crash.

The rules, and where they come from: the guide's (Airflow 3.3) for active, succeeded and failed jobs; and for the submit
window, an intent that is stored before the submission, with a token by which the job can be found (apache/airflow#67118,
#64828).
"""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from keepstate.errors import InvalidTypeError, KeepstateError, UnknownJobStatusError

if TYPE_CHECKING:
    from collections.abc import Mapping


# tells "not given" from True, for the sake of Airflow's default_args
_UNSET: Any = object()


class ResumeAction(str, Enum):
    """What to do about the external job."""

    SUBMIT = "submit"
    RECONNECT = "reconnect"
    ALREADY_SUCCEEDED = "already_succeeded"


@dataclass(frozen=True)
class ResumeDecision:
    """What to do, about which job. ``status`` is what the job answered, where one was asked."""

    action: ResumeAction
    external_id: Any = None
    status: Any = None


@dataclass(frozen=True)
class _Memory:
    """What the store holds of the job: its id, and the submission that led or was to lead to it."""

    external_id: Any
    submission: Mapping[str, Any]

    @property
    def token(self) -> str | None:
        """The token of the submission, whatever became of it."""
        token = self.submission.get("token")
        return token if isinstance(token, str) else None

    @property
    def pending_token(self) -> str | None:
        """The token of a submission that was intended, and whose id never came back.

        A submitted job without an id is one whose id somebody deleted: that asks for a new submission.
        """
        settled = self.external_id is not None or self.submission.get("state") == "submitted"
        return None if settled else self.token

    @property
    def unrecorded(self) -> bool:
        """Whether a job was submitted whose id came back, and is nothing that can be stored."""
        return self.external_id is None and self.submission.get("state") == "unrecorded"


class ResumableJobMixin(ABC):
    """For operators that submit one external job and wait for it. Call ``execute_resumable(context)`` from ``execute``.

    The external id is stored under ``external_id_key`` before waiting begins, so that a retry reconnects. Before the
    submission, an intent with a ``submission_token`` is stored under ``<external_id_key>.submission``; a class that
    passes the token to the external system (as a tag, a name, or an idempotency key) and has a method
    ``find_job(token, context) -> external_id | None`` finds even a job whose id never came back.

    Optional methods of a class: ``find_job``, as above; ``is_job_failed(status) -> bool``, with which a status that is
    neither active, succeeded nor failed is ``UnknownJobStatusError`` instead of a failure.
    """

    if TYPE_CHECKING:
        # the operator beside which this is mixed in has it
        log: Any

    external_id_key: str = "remote_job_id"
    """The key under which the external id is stored. Renaming it on a deployed class loses jobs in flight."""

    submission_token: str | None = None
    """A UUID made once for each submission, the same on every retry until the job has failed for good.

    `submit_job` always has one. It is ``None`` before there is a submission, and for a job that something other than
    keepstate submitted.
    """

    durable: bool = True
    """Whether the store is used at all."""

    def __init__(self, *args: Any, durable: bool = _UNSET, **kwargs: Any) -> None:
        """Pass everything on to the operator. ``durable=False`` turns the store off, and nothing else."""
        super().__init__(*args, **kwargs)
        if durable is _UNSET:
            # where Airflow wraps a class's own __init__, it hands over the defaults of the DAG and of the task group
            durable = (kwargs.get("default_args") or {}).get("durable", type(self).durable)
        self.durable = durable

    # what Airflow's wrapper notes of the parameters it saw: by this, `Operator.partial(durable=...)` is admitted
    __init__.__dict__["_BaseOperatorMeta__param_names"] = frozenset({"durable"})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let Airflow wrap the ``__init__`` of an operator that leaves it to this mixin.

        Airflow wraps what a class defines itself, and needs the outermost one wrapped. It is told by its metaclass, so
        nothing of it is imported here, and a plain class stays as it is.
        """
        super().__init_subclass__(**kwargs)
        if hasattr(type(cls), "_apply_defaults") and cls.__init__ is ResumableJobMixin.__init__:

            def __init__(self: ResumableJobMixin, *, durable: bool = _UNSET, **kwargs: Any) -> None:  # noqa: N807
                ResumableJobMixin.__init__(self, durable=durable, **kwargs)

            cls.__init__ = __init__  # type: ignore[method-assign, assignment]

    # ------------------------------------------------------------------------------------ yours to write

    @abstractmethod
    def submit_job(self, context: Any) -> Any:
        """Submit the job and return its external id: any JSON value but ``None``."""

    @abstractmethod
    def get_job_status(self, external_id: Any, context: Any) -> Any:
        """Ask the external system and return its raw status. What it raises ends the attempt; the id stays."""

    @abstractmethod
    def is_job_active(self, status: Any) -> bool:
        """Return whether a job of that status can still be waited for."""

    @abstractmethod
    def is_job_succeeded(self, status: Any) -> bool:
        """Return whether a job of that status completed successfully."""

    @abstractmethod
    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        """Block until the job has ended; raise if it failed."""

    @abstractmethod
    def get_job_result(self, external_id: Any, context: Any) -> Any:
        """Return the result of a job that succeeded, or ``None``."""

    # ---------------------------------------------------------------------------------------------- ours

    def execute_resumable(self, context: Any) -> Any:
        """Submit or find the job, wait for it, and return its result: the same way, whichever it was.

        Raises what the class's own methods raise; `UnknownJobStatusError`; `StaleAttemptError` before a submission if a
        later attempt has begun; `InvalidTypeError` and its like when the id can't be stored, and `KeepstateError` in the
        attempts after it, as another submission would be a second job.
        """
        decision = self.resolve_resume(context)
        external_id = decision.external_id
        if decision.action is ResumeAction.SUBMIT:
            self.prepare_submission(context)
            external_id = self.submit_job(context)
            # said before it is stored: should storing fail, the log still tells which job is running
            _log(self).info("Submitted job %s, with the token %s", external_id, self.submission_token)
            self.record_submission(context, external_id)
        if decision.action is not ResumeAction.ALREADY_SUCCEEDED:
            self.poll_until_complete(external_id, context)
        return self.get_job_result(external_id, context)

    def resolve_resume(self, context: Any) -> ResumeDecision:
        """Decide what to do about the job, without submitting it or waiting for it (for deferrable operators).

        A job that is found by its token is recorded. After ``SUBMIT``, call `prepare_submission`, submit, and hand the id
        to `record_submission`.
        """
        self.submission_token = None
        store = self._store_of(context)
        if store is None:
            if self.durable:
                _log(self).warning(
                    "This context has no task_state_store, so %s can't find its job again after a crash",
                    type(self).__name__,
                )
            return ResumeDecision(ResumeAction.SUBMIT)
        memory = self._recall(store)
        external_id = memory.external_id
        self.submission_token = memory.token if external_id is not None else memory.pending_token
        if external_id is None and self.submission_token is not None:
            external_id = self._find_submitted(self.submission_token, context, unrecorded=memory.unrecorded)
            if external_id is not None:
                self.record_submission(context, external_id)
        if external_id is None:
            if memory.unrecorded:
                raise self._refusal(memory)
            return ResumeDecision(ResumeAction.SUBMIT)
        return self._judge(external_id, self.get_job_status(external_id, context))

    def prepare_submission(self, context: Any) -> str:
        """Store the intent to submit, and return the token to submit with.

        The token is a new one, unless an earlier attempt stored one whose id never came back: that one is used again.
        The id of an earlier job is forgotten in the same moment.
        """
        store = self._store_of(context)
        # what the store says decides, so this needs no memory of an earlier call: a deferred operator is made anew
        pending = None if store is None else self._recall(store).pending_token
        self.submission_token = token = pending or str(uuid.uuid4())
        if store is not None:
            intent = {self._submission_key: {"token": token, "state": "intended"}}
            _swap(store, intent, drop=[self.external_id_key])
        return token

    def record_submission(self, context: Any, external_id: Any) -> None:
        """Store the id of the job that was submitted, so that a retry finds it.

        An id that can't be stored is refused, and noted, so that no later attempt submits a second job.
        """
        store = self._store_of(context)
        if store is None:
            return
        if external_id is None:
            _log(self).warning(
                "submit_job() returned no id, so a retry can't find the job of %s again; return its external id",
                type(self).__name__,
            )
            return
        values = {self.external_id_key: external_id}
        if self.submission_token is None:
            self.submission_token = self._recall(store).pending_token
        if self.submission_token is not None:
            values[self._submission_key] = {"token": self.submission_token, "state": "submitted"}
        try:
            _swap(store, values)
        except (TypeError, ValueError) as exc:
            note = {
                "token": self.submission_token,
                "state": "unrecorded",
                "external_id": ascii(external_id)[:200],
            }
            _swap(store, {self._submission_key: note})
            kind = type(exc) if isinstance(exc, KeepstateError) else InvalidTypeError
            raise kind(
                f"submit_job() of {type(self).__name__} submitted a job and returned an id that can't be stored: {exc}. "
                "The job may be running, and no retry submits another; let submit_job() return JSON, such as str(id)",
                **vars(exc),
            ) from exc

    # ----------------------------------------------------------------------------------------- machinery

    @property
    def _submission_key(self) -> str:
        return f"{self.external_id_key}.submission"

    def _judge(self, external_id: Any, status: Any) -> ResumeDecision:
        log = _log(self)
        if self.is_job_active(status):
            log.info("Reconnecting to job %s, which is %s", external_id, status)
            return ResumeDecision(ResumeAction.RECONNECT, external_id, status)
        if self.is_job_succeeded(status):
            log.info("Job %s has succeeded already; not submitting it again", external_id)
            return ResumeDecision(ResumeAction.ALREADY_SUCCEEDED, external_id, status)
        is_job_failed = getattr(self, "is_job_failed", None)
        if is_job_failed is not None and not is_job_failed(status):
            raise UnknownJobStatusError(
                f"job {external_id!r} reports the status {status!r}, which {type(self).__name__} knows neither as active, "
                "nor as succeeded, nor as failed; its id stays stored and nothing was submitted. "
                f"Teach the class this status, or delete the key {self.external_id_key!r} to submit anew",
                external_id=external_id,
                status=status,
            )
        log.warning("Job %s has failed (%s); submitting a new one", external_id, status)
        self.submission_token = None
        return ResumeDecision(ResumeAction.SUBMIT, None, status)

    def _refusal(self, memory: _Memory) -> KeepstateError:
        return KeepstateError(
            f"an earlier attempt has submitted the job {memory.submission.get('external_id')}, with the token {memory.token}, "
            "and its id could not be stored, so nothing is submitted again. Let submit_job() return JSON, such as str(id); "
            f"then set the key {self.external_id_key!r} to the id of that job to go on with it, or delete the key "
            f"{self._submission_key!r} to submit anew"
        )

    def _find_submitted(self, token: str, context: Any, *, unrecorded: bool) -> Any:
        """Look for the job of an intent whose id never came back, or can't be stored."""
        find_job = getattr(self, "find_job", None)
        if find_job is None and unrecorded:
            return None
        if find_job is None:
            _log(self).warning(
                "An earlier attempt ended while submitting, and %s has no find_job() to look for its job: "
                "a job may be running that nobody knows of. Submitting again with the same token %s",
                type(self).__name__,
                token,
            )
            return None
        external_id = find_job(token, context)
        if external_id is not None:
            _log(self).info("Found job %s of an earlier attempt by its token", external_id)
        return external_id

    def _recall(self, store: Any) -> _Memory:
        keys = [self.external_id_key, self._submission_key]
        # Airflow's own accessor has the guide's four verbs alone
        found = store.peek(keys) if hasattr(store, "peek") else {key: store.get(key) for key in keys}
        submission = found.get(keys[1])
        return _Memory(found.get(keys[0]), submission if isinstance(submission, dict) else {})

    def _store_of(self, context: Any) -> Any:
        if not self.durable:
            return None
        return context.get("task_state_store") if hasattr(context, "get") else None


def _swap(store: Any, values: Mapping[str, Any], drop: list[str] | None = None) -> None:
    if hasattr(store, "swap"):
        store.swap(values, drop or [])
        return
    for key, value in values.items():
        store.set(key, value)
    for key in drop or []:
        store.delete(key)


def _log(operator: Any) -> Any:
    return getattr(operator, "log", None) or logging.getLogger("keepstate.jobs")
