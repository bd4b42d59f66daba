"""Airflow as it comes, in an environment without keepstate: what keepstate is compared with."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bench.contenders import ContenderError
from tests.support.airflow import native_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.support.airflow import Airflow

VERSION = "3.3.2"
DAGS = Path(__file__).parent / "dags"

_PATIENCE = 180.0
_TO_END = 15.0
_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Installed:
    """An Airflow with an empty metadata database that knows the benchmark's DAGs, and nothing of it running."""

    airflow: Airflow
    home: Path
    environ: Mapping[str, str]
    url: str

    @contextmanager
    def running(self, *commands: Sequence[str]) -> Iterator[None]:
        """Run programs of it, each to its end or until the block is left."""
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for command in commands:
                with (self.home / f"{command[0]}.log").open("wb") as log:
                    processes.append(
                        subprocess.Popen(
                            ["airflow", *command],
                            env=self.environ,
                            cwd=self.home,
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=subprocess.STDOUT,
                            start_new_session=True,
                        )
                    )
            yield
        finally:
            _end(processes)

    def ask(self, method: str, path: str, body: Any = None, *, token: str = "") -> tuple[int, Any]:
        """Send a request to its API server; return the status and the JSON."""
        return ask(f"{self.url}{path}", method, body, token=token)

    def token(self) -> str:
        """Wait for its API server, and return a token of an administrator's."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            with suppress(OSError):
                status, answer = self.ask("GET", "/auth/token")
                if status < 300:
                    return str(answer["access_token"])
            time.sleep(0.2)
        raise ContenderError(f"Airflow's API server did not answer within {_PATIENCE:g} s: {self.said()}")

    def begin_run(self, dag_id: str, run_id: str, token: str) -> None:
        """Have it make a run of a DAG, with its task instances."""
        self.ask("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False}, token=token)
        asked = {"dag_run_id": run_id, "logical_date": None}
        status, answer = self.ask("POST", f"/api/v2/dags/{dag_id}/dagRuns", asked, token=token)
        if status >= 300:
            raise ContenderError(f"Airflow made no run of {dag_id}: {status} {answer}")

    def said(self) -> str:
        """Return the ends of its logs."""
        files = [*sorted(self.home.glob("*.log")), *sorted((self.home / "logs").rglob("*.log"))]
        return "\n".join(f"{file.name}: {file.read_text(errors='replace')[-1500:]}" for file in files)


def install(home: Path, *, database: str | None = None, **more: str) -> Installed:
    """Prepare an Airflow in an empty folder, on the PostgreSQL ``database`` or else on SQLite. ``more`` is environment."""
    try:
        airflow = native_environment(VERSION)
    except (OSError, subprocess.SubprocessError) as exc:
        raise ContenderError(f"Airflow {VERSION} can't be installed: {exc}") from exc
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    if database is not None:
        more["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = database.replace("postgresql:", "postgresql+psycopg2:")
    environ = airflow.environ(
        home,
        PYTHONPATH=str(_ROOT),
        AIRFLOW__CORE__DAGS_FOLDER=str(DAGS),
        AIRFLOW__CORE__EXECUTOR="LocalExecutor",
        AIRFLOW__CORE__PARALLELISM="2",
        AIRFLOW__CORE__EXECUTION_API_SERVER_URL=f"{url}/execution/",
        AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS="True",
        AIRFLOW__API__HOST="127.0.0.1",
        AIRFLOW__API__PORT=str(port),
        AIRFLOW__API__BASE_URL=url,
        AIRFLOW__API_AUTH__JWT_SECRET="a secret of the benchmark, long enough to sign with" * 2,
        # the access log among other things, which nobody else keeps here either
        AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING",
        **more,
    )
    for command in (["db", "migrate"], ["dags", "reserialize"]):
        done = subprocess.run(
            ["airflow", *command],
            env=environ,
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )
        if done.returncode:
            raise ContenderError(f"airflow {' '.join(command)} fails: {(done.stdout + done.stderr)[-1500:]}")
    return Installed(airflow, home, environ, url)


def ask(url: str, method: str, body: Any = None, *, token: str = "") -> tuple[int, Any]:
    """Send a request with JSON; return the status and the JSON of the answer."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data=data, headers=headers, method=method)
    try:
        with urlopen(request, timeout=_PATIENCE) as response:
            text = response.read()
            return response.status, json.loads(text) if text else None
    except HTTPError as exc:
        return exc.code, exc.read().decode(errors="replace")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End programs and all that they started, in good order if they end within seconds."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _TO_END
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, deadline - time.monotonic()))
        with suppress(ProcessLookupError):
            # each leads a group of its own
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
