"""The task's end of its connection to the supervisor: answers of ours are told from Airflow's own."""

from __future__ import annotations

import functools
import os
import select
import threading
from typing import TYPE_CHECKING, Any

from keepstate.integrations.airflow import messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

traffic = threading.RLock()
"""Held while a request waits for its answer. Airflow before 3.2 has no lock, and the twins of our verbs run on threads."""


def _let_go() -> None:
    """Free the lock in a forked child, where a thread that held it is no more."""
    global traffic  # noqa: PLW0603 - one lock for the process, as there is one channel
    traffic = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class NoAnswerError(Exception):
    """The supervisor has not answered in time."""


_in_dag_processor = False
_TRIGGERER = "airflow.jobs.triggerer_job_runner"


def is_heard(channel: Any) -> bool:
    """Whether a supervisor of ours listens at the other end: the DAG processor and the triggerer have channels like a task's."""
    return not _in_dag_processor and type(channel).__module__ != _TRIGGERER


def extend_dag_processor(module: ModuleType) -> None:
    """Have callbacks that the DAG processor runs known as such. Its manager never answers us, and logs what it is asked."""
    execute_callbacks = module.__dict__["_execute_callbacks"]

    @functools.wraps(execute_callbacks)
    def unheard(*args: Any, **given: Any) -> Any:
        global _in_dag_processor  # noqa: PLW0603 - the process is forked for one file, and has one channel
        _in_dag_processor = True
        try:
            return execute_callbacks(*args, **given)
        finally:
            _in_dag_processor = False

    module.__dict__["_execute_callbacks"] = unheard


class _Awaited(threading.local):
    """The request of ours that this thread waits for, and for how long."""

    number: int | None = None
    seconds: float | None = None


_awaited = _Awaited()


def ask(
    channel: Callable[[], Any], request: messages.StateRequest, *, seconds: float
) -> messages.StateAnswer:
    """Send a request through Airflow's channel and return the answer to it. Raises `NoAnswerError`.

    ``channel`` is asked for once it is our turn: `airflow dags test` takes it away while a request is under way.
    """
    with traffic:
        _awaited.number, _awaited.seconds = request.number, seconds
        try:
            answer = channel().send(request)
        finally:
            _awaited.number = _awaited.seconds = None
    if not isinstance(answer, messages.StateAnswer):
        raise NoAnswerError(f"the supervisor answered with {type(answer).__name__}")
    return answer


def extend(module: ModuleType) -> None:
    """Extend Airflow's ``CommsDecoder``: one request at a time, and frames with our answers are read by us."""
    kind = module.__dict__["CommsDecoder"]
    send, read_frame, from_frame = kind.send, kind._read_frame, kind._from_frame  # noqa: SLF001

    @functools.wraps(send)
    def in_turn(self: Any, msg: Any) -> Any:
        with traffic:
            return send(self, msg)

    @functools.wraps(read_frame)
    def read_awaited(self: Any, *args: Any, **given: Any) -> Any:
        while True:
            _wait_for(self.socket)
            frame = read_frame(self, *args, **given)
            answer = messages.parse(getattr(frame, "body", None))
            if answer is None or answer.number == _awaited.number:
                return frame
            # it came after its request had given up, and whoever waits now means another one

    @functools.wraps(from_frame)
    def told_apart(self: Any, frame: Any) -> Any:
        answer = None if frame.error is not None else messages.parse(frame.body)
        return from_frame(self, frame) if answer is None else answer

    kind.send, kind._read_frame, kind._from_frame = in_turn, read_awaited, told_apart  # noqa: SLF001


def _wait_for(socket: Any) -> None:
    """Wait until there is something to read, if this thread waits for an answer of ours."""
    if _awaited.seconds is None:
        return
    poll = select.poll()
    poll.register(socket, select.POLLIN | select.POLLHUP)
    if not poll.poll(_awaited.seconds * 1000):
        raise NoAnswerError(f"the supervisor has not answered for {_awaited.seconds:g} s")
