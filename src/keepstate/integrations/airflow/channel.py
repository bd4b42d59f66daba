"""The store of a task that has nothing configured: Airflow's metadata database, by way of the supervisor and the API server."""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import time
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

from keepstate.backends.requests import Session
from keepstate.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigurationError,
    KeepstateError,
    UnsupportedError,
)
from keepstate.integrations.airflow import comms, messages
from keepstate.wire import decode_answer, decode_error, encode_request
from keepstate.wire.asking import Asking

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

log = logging.getLogger("keepstate")

# Longer than the supervisor's own limit for one request to the API server, so that its answer still finds us waiting.
_LONGEST_ANSWER = 90.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0

_OK, _NOT_FOUND = 200, 404
_MAY_PASS = frozenset({None, 408, 425, 429, 500, 502, 503, 504})


class _Line:
    """How one process counts what it asks for. A forked one that went on with its parent's would have its changes taken for those."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.numbers = itertools.count(random.getrandbits(32))
        self.session = str(uuid.uuid4())
        self.changes = itertools.count(1)


class SupervisorBackend(Asking):
    """The verbs that a task may use on its own entries, and on those of its assets.

    Whatever else a backend can do is refused with ``UnsupportedError``: a task is no administrator.
    """

    address = "Airflow's metadata database (through the supervisor)"
    guide_only = False

    def __init__(self, *, retry_timeout: float) -> None:
        """Ask through this process's supervisor, again for ``retry_timeout`` seconds while trouble may pass."""
        self._retry_timeout = retry_timeout
        self._line = _Line()

    def __getattr__(self, verb: str) -> Any:
        if verb.startswith("_"):
            raise AttributeError(verb)
        raise UnsupportedError(
            f"a task can't use {verb}() through its supervisor; use the command line or REST, or set KEEPSTATE_URL"
        )

    def close(self) -> None:
        """Do nothing: the connection is Airflow's."""

    def _numbered(self, given: Session | None, ask: Callable[[Session], T]) -> T:
        del given
        # the traffic lock keeps the numbers in order
        with comms.traffic:
            line = self._own_line()
            return ask(Session(line.session, next(line.changes)))

    def _ask(self, verb: str, **arguments: Any) -> Any:
        text = json.dumps({"verb": verb, "request": encode_request(verb, arguments)})
        deadline = time.monotonic() + self._retry_timeout
        pause = _FIRST_PAUSE
        while True:
            reply = self._exchange(text)
            trouble = _trouble(reply)
            if trouble is None:
                return decode_answer(verb, json.loads(reply["text"])["answer"])
            left = deadline - time.monotonic()
            if not isinstance(trouble, BackendUnavailableError) or left <= 0:
                raise trouble
            time.sleep(min(left, pause * random.uniform(0.5, 1.5)))  # noqa: S311 - jitter is no secret
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _own_line(self) -> _Line:
        if self._line.pid != os.getpid():
            self._line = _Line()
        return self._line

    def _exchange(self, text: str) -> dict[str, Any]:
        request = messages.StateRequest(next(self._own_line().numbers), text)
        try:
            answer = comms.ask(_supervisor, request, seconds=_LONGEST_ANSWER)
        except comms.NoAnswerError as exc:
            raise BackendError(
                f"{exc}; keepstate has to be installed where Airflow's workers run, in the environment that starts tasks",
                address=self.address,
            ) from exc
        except (EOFError, OSError) as exc:
            raise BackendError(
                f"this process can't reach the task's supervisor: {str(exc) or type(exc).__name__}; processes that "
                "multiprocessing starts have no connection to it: use the store in the task's own, or set KEEPSTATE_URL",
                address=self.address,
            ) from exc
        reply: dict[str, Any] = json.loads(answer.text)
        return reply


def _supervisor() -> Any:
    from airflow.sdk.execution_time import task_runner

    channel = getattr(task_runner, "SUPERVISOR_COMMS", None)
    if channel is None or not comms.is_heard(channel):
        raise UnsupportedError(
            "task_state_store was used outside a task's own process, where Airflow gives no way to its database; "
            "set KEEPSTATE_URL to use it here too"
        )
    return channel


def _trouble(reply: dict[str, Any]) -> KeepstateError | None:
    """Return what is wrong with a reply of the API server, or ``None``."""
    status, text = reply["status"], reply["text"]
    address = SupervisorBackend.address
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    ours = decode_error(said.get("error")) if isinstance(said, dict) else None
    if ours is not None:
        return ours
    if status == _OK and isinstance(said, dict) and "answer" in said:
        return None
    if status == _NOT_FOUND:
        return ConfigurationError(
            "Airflow's API server has no keepstate, so there is nowhere to keep state: install keepstate there too and "
            "restart it, or set KEEPSTATE_URL for the workers"
        )
    if status in _MAY_PASS:
        return BackendUnavailableError(
            f"Airflow's API server could not be asked for state: {status or ''} {text:.300}", address=address
        )
    return BackendError(f"Airflow's API server answered {status}: {text:.300}", address=address)
