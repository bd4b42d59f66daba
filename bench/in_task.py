"""Inside a task: the same body on Airflow's own task state store and on keepstate.

Airflow's store is reached from a real task alone. So that it can take turns with the others, the task connects to
the process that measures, does what that asks for, and sends the times.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
from contextlib import closing, contextmanager
from functools import partial
from importlib.metadata import version
from itertools import cycle
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import airflow, places
from bench.contenders import Contender, ContenderError, Group, Manner, Opened, Operation, timed
from bench.embedded import VALUES, durability, file_durability
from bench.postgres import server_durability
from bench.served import serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.connection import Connection

    from bench.contenders import Sampler

_ADDRESS = "BENCH_ADDRESS"
_PATIENCE = 180.0


def body(store: Any) -> Mapping[str, Sampler]:
    """What the task does, over and over, with the store that it was given."""
    values = cycle(VALUES)
    return {
        "set": timed(lambda: store.set("page", next(values))),
        "get": timed(lambda: store.get("page")),
    }


def answer(store: Any) -> None:
    """Do what is asked for, until that is nothing: what runs in Airflow's task."""
    operations = body(store)
    with Client(os.environ[_ADDRESS], authkey=b"bench") as requests:
        while request := requests.recv():
            verb, count = request
            requests.send(operations[verb](count))


# -------------------------------------------------------------------------------------------------- Airflow


@contextmanager
def airflow_task(where: str) -> Iterator[Opened]:
    """Run the body in a task that the scheduler started: its store is reached by way of its supervisor and the API server."""
    del where
    with _prepared() as (installed, listener):
        services = (["api-server"], ["scheduler", "--skip-serve-logs"], ["dag-processor"])
        with installed.running(*services):
            installed.begin_run("in_task", "bench", installed.token())
            remark = "API server, scheduler (LocalExecutor) and DAG processor as they come"
            yield from _measured(installed, listener, remark)


@contextmanager
def airflow_dags_test(where: str) -> Iterator[Opened]:
    """Run the body under ``airflow dags test``, where supervisor and API server are in the task's own process."""
    del where
    with _prepared() as (installed, listener), installed.running(["dags", "test", "in_task"]):
        yield from _measured(installed, listener, "`airflow dags test`: all in one process")


@contextmanager
def _prepared() -> Iterator[tuple[airflow.Installed, Listener]]:
    with places.folder() as home:
        address = str(Path(home, "task"))
        with Listener(address, "AF_UNIX", authkey=b"bench") as listener:
            yield airflow.install(Path(home), **{_ADDRESS: address}), listener


def _measured(installed: airflow.Installed, listener: Listener, remark: str) -> Iterator[Opened]:
    requests = _task(installed, listener)

    def sample(verb: str, count: int) -> list[int]:
        try:
            requests.send((verb, count))
            if requests.poll(_PATIENCE):
                times: list[int] = requests.recv()
                return times
        except (EOFError, OSError):
            pass
        raise ContenderError(f"Airflow's task does not answer any more: {installed.said()}")

    yield Opened(
        {verb: partial(sample, verb) for verb in ("set", "get")},
        Manner(airflow.VERSION, _durability(installed), f"its own task state store; {remark}"),
    )
    requests.send(None)
    requests.close()


def _durability(installed: airflow.Installed) -> str:
    """Say how durable its database is: the journal's mode stays with the file, and of the rest Airflow sets nothing."""
    with closing(sqlite3.connect(installed.home / "airflow.db")) as connection:
        (mode,), (level,) = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("journal_mode", "synchronous")
        )
    return durability(mode, level)


def _task(installed: airflow.Installed, listener: Listener) -> Connection:
    """Wait until the task connects."""
    arrived: queue.Queue[Connection] = queue.Queue()
    threading.Thread(target=lambda: arrived.put(listener.accept()), daemon=True).start()
    try:
        return arrived.get(timeout=_PATIENCE)
    except queue.Empty:
        raise ContenderError(
            f"Airflow's task did not run within {_PATIENCE:g} s: {installed.said()}"
        ) from None


# ------------------------------------------------------------------------------------------------ keepstate


@contextmanager
def embedded(where: str) -> Iterator[Opened]:
    """Run the body on keepstate in a SQLite file."""
    del where
    with places.folder() as folder:
        url = f"sqlite:///{Path(folder, 'keepstate.db')}"
        yield from _attempt(url, file_durability(url), "embedded, in a SQLite file")


@contextmanager
def on_postgres(where: str) -> Iterator[Opened]:
    """Run the body on keepstate in PostgreSQL."""
    yield from _attempt(where, server_durability(where), "connected to PostgreSQL")


@contextmanager
def over_http(where: str) -> Iterator[Opened]:
    """Run the body on keepstate behind ``keepstate serve``, which keeps a SQLite file."""
    del where
    with places.folder() as folder:
        url = f"sqlite:///{Path(folder, 'keepstate.db')}"
        with serving(url, Path(folder)) as served:
            os.environ["KEEPSTATE_TOKEN"] = served.token
            remark = "over HTTP to `keepstate serve` on the same machine, with a SQLite file under it"
            yield from _attempt(served.url, file_durability(url), remark)


def _attempt(url: str, durability: str, remark: str) -> Iterator[Opened]:
    from keepstate import connect

    with connect(url) as store:
        task = store.task("in_task", "bench", "measured", try_number=1)
        yield Opened(body(task), Manner(version("keepstate"), durability, remark))


_FACTS: dict[str, str] = {}

GROUP = Group(
    name="in-task",
    title="Inside a task",
    contenders=(
        Contender("Airflow", airflow_task, to_open=900),
        Contender("Airflow, dags test", airflow_dags_test, to_open=900),
        Contender("keepstate", embedded),
        Contender("keepstate, PostgreSQL", on_postgres),
        Contender("keepstate, HTTP", over_http),
    ),
    operations=(
        Operation("set", rounds=15, samples=40, warm_up=60),
        Operation("get", rounds=15, samples=40, warm_up=60),
    ),
    place=partial(places.postgres_server, _FACTS),
    facts=_FACTS,
    is_gain=True,
)
