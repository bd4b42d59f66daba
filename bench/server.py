"""Servers under load: durable writes and reads a second, over the same REST, with PostgreSQL under both."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from bench import airflow, places, wrk
from bench.contenders import Contender, ContenderError, Group, Load, Manner, Opened, Operation
from bench.embedded import file_durability
from bench.postgres import server_durability
from bench.served import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_CONTENT, _OK = 204, 200


@contextmanager
def airflow_server(where: str) -> Iterator[Opened]:
    """Run Airflow's API server, and no more of Airflow: nothing else then asks it or its database."""
    with places.folder() as home:
        database = places.another_database(where, "airflow")
        installed = airflow.install(
            Path(home),
            database=database,
            # its five connections would be made anew all the time
            AIRFLOW__DATABASE__SQL_ALCHEMY_POOL_SIZE=str(wrk.CONNECTIONS),
        )
        with installed.running(["api-server"]):
            token = installed.token()
            installed.begin_run(wrk.DAG_ID, wrk.RUN_ID, token)
            manner = Manner(
                airflow.VERSION,
                server_durability(database),
                "`airflow api-server` as it comes, but with a connection to PostgreSQL for each of wrk's; no access log; "
                "psycopg2; SimpleAuthManager",
            )
            yield _opened(installed.url, token, manner)


@contextmanager
def keepstate_server(where: str, *, on: str) -> Iterator[Opened]:
    """Run ``keepstate serve`` over a store on SQLite or PostgreSQL."""
    from keepstate import connect

    with places.folder() as home:
        if on == "PostgreSQL":
            url = places.another_database(where, "keepstate")
            durability = server_durability(url)
        else:
            url = f"sqlite:///{Path(home, 'keepstate.db')}"
            durability = file_durability(url)
        with connect(url) as store:
            for task_id in wrk.TASKS:
                # known from now on, as a task instance is that has used its store
                store.task(wrk.DAG_ID, wrk.RUN_ID, task_id, try_number=1).get("page")
        with serving(url, Path(home)) as served:
            manner = Manner(
                version("keepstate"),
                durability,
                "`keepstate serve` as it comes; no access log; versions and history",
            )
            yield _opened(served.url, served.token, manner)


def _opened(url: str, token: str, manner: Manner) -> Opened:
    for path in wrk.PATHS:
        value = {"value": {"page": 0}}
        status, answer = airflow.ask(f"{url}{path}", "PUT", value, token=token)
        if status != _NO_CONTENT:
            raise ContenderError(f"PUT {path} is answered {status}: {answer}")
        status, answer = airflow.ask(f"{url}{path}", "GET", token=token)
        if status != _OK or answer["value"] != value["value"]:
            raise ContenderError(f"GET {path} is answered {status}: {answer}")

    def load(method: str, seconds: int) -> Load:
        found = wrk.load(url, token, method, seconds)
        # wrk goes away in the midst of requests, whose answers would cost the next one's time
        airflow.ask(f"{url}{wrk.PATHS[0]}", "GET", token=token)
        return found

    return Opened({method: partial(load, method) for method in ("PUT", "GET")}, manner)


_FACTS: dict[str, str] = {}


@contextmanager
def _place() -> Iterator[str]:
    """Give the URL of a PostgreSQL server that does nothing else."""
    try:
        _FACTS["wrk"] = wrk.version()
    except subprocess.SubprocessError as exc:
        raise ContenderError(f"wrk does not run: {exc}") from exc
    with places.postgres_server(_FACTS) as url:
        yield url


GROUP = Group(
    name="server",
    title=f"Servers, {wrk.CONNECTIONS} connections",
    contenders=(
        Contender("Airflow's API server", airflow_server, to_open=900),
        Contender("keepstate, PostgreSQL", partial(keepstate_server, on="PostgreSQL")),
        Contender("keepstate, SQLite", partial(keepstate_server, on="SQLite")),
    ),
    operations=(
        # the warm-up fills the bounded history of each entry: from then on each write also removes one
        Operation("PUT", rounds=9, samples=3, warm_up=5, is_load=True),
        Operation("GET", rounds=9, samples=3, warm_up=2, is_load=True),
    ),
    place=_place,
    facts=_FACTS,
    is_gain=True,
)
