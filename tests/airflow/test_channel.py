"""A task's channel to its store, without Airflow: what stands in for its supervisor asks a store in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import pytest

import keepstate
from keepstate.clock import system_clock
from keepstate.errors import KeepstateError
from keepstate.integrations.airflow import channel, comms, messages
from keepstate.settings import Settings
from keepstate.store import StateStore
from keepstate.wire import decode_request, encode_answer, encode_error, takeable

if TYPE_CHECKING:
    from pathlib import Path

    from keepstate.backends.base import Backend

TASK_RUNNER = "airflow.sdk.execution_time.task_runner"


class Comms:
    """Answers as supervisor and API server together do, from the store at ``url``."""

    def __init__(self, url: str) -> None:
        self._url = url

    def send(self, request: messages.StateRequest) -> messages.StateAnswer:
        asked = json.loads(request.text)
        verb = asked["verb"]
        with keepstate.connect(self._url) as store:
            try:
                arguments = decode_request(verb, asked["request"], now=store.clock())
                said: Any = {
                    "answer": takeable(encode_answer(verb, getattr(store.backend, verb)(**arguments)))
                }
            except KeepstateError as exc:
                said = {"error": encode_error(exc)}
        return messages.StateAnswer(request.number, json.dumps({"status": 200, "text": json.dumps(said)}))


def runner(supervisor: Any) -> dict[str, ModuleType]:
    """Return the modules of a task process that has such a channel."""
    names = TASK_RUNNER.split(".")
    modules = {name: ModuleType(name) for name in (".".join(names[:n]) for n in range(1, len(names) + 1))}
    modules[TASK_RUNNER].__dict__["SUPERVISOR_COMMS"] = supervisor
    modules["airflow.sdk.execution_time"].__dict__["task_runner"] = modules[TASK_RUNNER]
    return modules


def a_task() -> keepstate.TaskStateStore:
    """Return the accessor of a task that has nothing configured."""
    backend = cast("Backend", channel.SupervisorBackend(retry_timeout=1))
    return StateStore(backend, settings=Settings(), clock=system_clock).task("d", "r", "t", try_number=1)


def write_from_forks(url: str) -> None:
    """Write from a task, then from two processes that it forks, one of which forks another, and from the task again."""
    sys.modules.update(runner(Comms(url)))
    own = a_task()
    own.set("start", 1)
    for n in (1, 2):
        pid = os.fork()
        if not pid:
            own.set(f"child {n}", n)
            if n == 1 and not os.fork():
                own.set("grandchild", 3)
                os._exit(0)
            if n == 1:
                os.wait()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    own.set("parent", 4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process forks here")
def test_what_forked_processes_of_a_task_write_is_written(tmp_path: Path) -> None:
    """No change of a forked process is taken for one of its parent's that had been applied, nor the other way round."""
    url = f"sqlite:///{tmp_path / 'state.db'}"
    code = f"from tests.airflow.test_channel import write_from_forks; write_from_forks({url!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with keepstate.connect(url) as store:
        found = dict(store.task("d", "r", "t").items())
    assert found == {"start": 1, "child 1": 1, "child 2": 2, "grandchild": 3, "parent": 4}


def test_callbacks_in_the_dag_processor_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its channel looks like a task's, and nobody at the other end knows keepstate: nothing is sent, as that would be logged."""
    sent: list[Any] = []

    class Manager:
        def send(self, request: Any) -> Any:
            sent.append(request)

    for name, module in runner(Manager()).items():
        monkeypatch.setitem(sys.modules, name, module)
    processor = ModuleType("airflow.dag_processing.processor")
    processor.__dict__["_execute_callbacks"] = lambda own: own.set("page", "secret")
    comms.extend_dag_processor(processor)
    with pytest.raises(keepstate.UnsupportedError, match="outside a task's own process"):
        processor._execute_callbacks(a_task())
    assert sent == []
    # a task's own process may load that module, too
    with pytest.raises(keepstate.BackendError):
        a_task().set("page", 1)
    assert len(sent) == 1


def test_a_process_without_a_connection_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What multiprocessing starts has another standard input than the task, which is where its supervisor listens."""

    class Closed:
        def send(self, request: Any) -> Any:
            raise OSError(88, "Socket operation on non-socket")

    for name, module in runner(Closed()).items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(keepstate.BackendError, match="can't reach the task's supervisor") as info:
        a_task().get("page")
    assert "Socket operation on non-socket" in str(info.value)
    assert "set KEEPSTATE_URL" in str(info.value)
    assert "has to be installed" not in str(info.value)
