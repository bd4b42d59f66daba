"""Airflow as it runs: a scheduler with its LocalExecutor, and from 3.0 an API server and a DAG processor, on loopback."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.support.airflow import Airflow

PATIENCE = 240.0
"""Seconds that anything may take on a busy machine; all waits are for something to happen, and end when it has."""


ROLES = ("admin", "viewer")
"""The users there are, each named for its role, with the password ``a password``."""


@dataclass(frozen=True)
class Services:
    """A running Airflow. ``home`` has its logs, and its metadata database unless that is a PostgreSQL one."""

    airflow: Airflow
    home: Path
    environ: Mapping[str, str]
    url: str
    database: str | None = None

    def wait_for(self, what: str, found: Callable[[], Any], patience: float = PATIENCE) -> Any:
        """Wait until ``found`` returns something, and return it; fails with the logs when it doesn't."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            result = found()
            if result:
                return result
            time.sleep(0.2)
        raise AssertionError(f"{what} has not come about in {patience:g} s\n{self.logs()}")

    def notes(self) -> list[list[Any]]:
        """Return what the tasks noted so far."""
        path = self.home / "notes.jsonl"
        if not path.exists():
            return []
        # a line that is still being written has no end
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]]

    def note(self, *beginning: Any) -> list[Any]:
        """Wait for a note that begins like this, and return it."""

        def found() -> list[Any] | None:
            return next((one for one in self.notes() if one[: len(beginning)] == list(beginning)), None)

        noted: list[Any] = self.wait_for(f"the note {beginning}", found)
        return noted

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Ask the metadata database; ``?`` stands for a value."""
        if self.database is not None:
            with psycopg.connect(self.database) as postgres:
                return postgres.execute(sql.replace("?", "%s"), values).fetchall()  # type: ignore[arg-type]
        with closing(sqlite3.connect(self.home / "airflow.db", timeout=60)) as connection:
            return connection.execute(sql, values).fetchall()

    def states(self, dag_id: str) -> dict[str, str]:
        """Return the state of each task of a DAG that runs once."""
        rows = self.query("SELECT task_id, map_index, state FROM task_instance WHERE dag_id = ?", dag_id)
        return {task if index < 0 else f"{task}[{index}]": state for task, index, state in rows}

    def wait_until_done(self, dag_id: str) -> dict[str, str]:
        """Wait for the end of a DAG's run, and return its tasks' states."""
        self.wait_for(
            f"the end of {dag_id}",
            lambda: self.query(
                "SELECT state FROM dag_run WHERE dag_id = ? AND state IN ('success', 'failed')", dag_id
            ),
        )
        return self.states(dag_id)

    def request(
        self, method: str, path: str, *, token: str | None = None, body: Any = None
    ) -> tuple[int, Any]:
        """Send a request to the API server, and return its status and JSON."""
        status, answer, _ = self.exchange(method, path, token=token, body=body)
        return status, answer

    def exchange(
        self, method: str, path: str, *, token: str | None = None, body: Any = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Send a request as `request` does, and return the headers of its answer, too."""
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}{path}", data=data, headers=headers, method=method)
        try:
            with urlopen(request, timeout=60) as response:
                text = response.read()
                return response.status, json.loads(text) if text else None, response.headers
        except URLError as exc:
            if not hasattr(exc, "code"):
                raise
            return exc.code, json.loads(exc.read() or b"null"), exc.headers

    def answers(self, path: str) -> bool:
        """Whether the API server, or the webserver of 2.11, answers with success by now."""
        try:
            return self.request("GET", path)[0] == 200
        except OSError:
            return False

    def token(self, user: str) -> str:
        """Log in, and return the token of a user."""
        body = {"username": user, "password": "a password"}
        status, answer = self.request("POST", "/auth/token", body=body)
        assert status in {200, 201}, answer
        token: str = answer["access_token"]
        return token

    def logs(self) -> str:
        """Return the ends of all logs."""
        files = sorted(self.home.glob("*.log")) + sorted((self.home / "logs").rglob("*.log"))
        return "\n".join(f"== {file}\n{file.read_text(errors='replace')[-3000:]}" for file in files)


@contextmanager
def services(
    airflow: Airflow,
    home: Path,
    dags: Path,
    *,
    database: str | None = None,
    components: tuple[str, ...] = (),
    apart: Mapping[str, Mapping[str, str]] | None = None,
    prefix: str = "",
    apps: str = "all",
    prepare: tuple[list[str], ...] = (),
    **more: str,
) -> Iterator[Services]:
    """Start an Airflow that runs what is in ``dags``, and end it.

    ``database`` is the URL of a PostgreSQL one for its metadata; ``components`` are further ones, such as ``triggerer``;
    ``apart`` adds to the environment of some. All is served below the path ``prefix``; ``apps``
    are those of the API server's; ``prepare`` has commands of Airflow's to run first.
    """
    if database is not None:
        more["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = database.replace("postgresql:", "postgresql+psycopg2:")
    port = _free_port()
    url = f"http://127.0.0.1:{port}{prefix}"
    given = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "12",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{role}:{role}" for role in ROLES),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of the tests, long enough to sign with",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "25",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
        # their names in 2.11
        "AIRFLOW__SCHEDULER__SCHEDULER_ZOMBIE_TASK_THRESHOLD": "25",
        "AIRFLOW__SCHEDULER__ZOMBIE_DETECTION_INTERVAL": "2",
        "AIRFLOW__SCHEDULER__LOCAL_TASK_JOB_HEARTBEAT_SEC": "2",
        "AIRFLOW__WEBSERVER__WEB_SERVER_HOST": "127.0.0.1",
        "AIRFLOW__WEBSERVER__WEB_SERVER_PORT": str(port),
        "AIRFLOW__WEBSERVER__BASE_URL": url,
        "AIRFLOW__WEBSERVER__WORKERS": "1",
        "NOTES": str(home / "notes.jsonl"),
    }
    environ = airflow.environ(home, **{**given, **more})
    (home / "passwords.json").write_text(json.dumps(dict.fromkeys(ROLES, "a password")))
    airflow.migrate(environ)
    if prepare:
        airflow.in_turn(environ, *prepare)
    running = Services(airflow, home, environ, url, database)
    processes: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> None:
        with (home / f"{command[0]}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    ["airflow", *command],
                    env={**environ, **(apart or {}).get(command[0], {})},
                    cwd=home,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    try:
        if not airflow.version.startswith("2."):
            start("api-server", "--apps", apps)
            # 3.0 fails tasks that begin before it answers
            health = "/execution/health" if apps == "execution" else "/api/v2/version"
            running.wait_for("an answer of the API server", lambda: running.answers(health))
            start("dag-processor")
        start("scheduler", "--skip-serve-logs")
        for component in components:
            start(*component.split())
        yield running
    finally:
        _end(processes)


def _free_port() -> int:
    """Return a port that nobody listens on, below those that systems give to whoever asks for any: it takes long to be used."""
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            try:
                # each leads a group of its own, which has what it started
                os.killpg(process.pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + 15
        for process in processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue
