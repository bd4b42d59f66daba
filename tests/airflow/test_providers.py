"""The newest providers' operators below Airflow 3.3: durable where they can be, and as before where they can't."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.airflow import ROOT, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

DAG_FILE = Path(__file__).parent / "dags" / "spark.py"
SPARK_SUBMIT = """#!/bin/sh
echo "$@" >> "$SUBMISSIONS"
echo "State of driver-20261129-0001 is SUBMITTED"
"""


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The newest Spark provider, alone: what it depends on comes with Airflow."""
    folder = tmp_path_factory.mktemp("provider")
    uv = os.environ.get("UV") or str(ROOT / ".venv" / "bin" / "uv")
    command = [uv, "--quiet", "pip", "install", "--no-deps", "--target", str(folder)]
    subprocess.run([*command, "apache-airflow-providers-apache-spark"], check=True, timeout=300)
    return folder


PACKAGES = [
    "airbyte",
    "alibaba",
    "amazon",
    "anthropic",
    "apache-beam",
    "apache-druid",
    "apache-flink",
    "apache-hive",
    "apache-kylin",
    "apache-livy",
    "apache-pig",
    "apache-spark",
    "cncf-kubernetes",
    "databricks",
    "dbt-cloud",
    "docker",
    "google",
    "http",
    "jenkins",
    "microsoft-azure",
    "openai",
    "snowflake",
    "tableau",
    "teradata",
    "trino",
    "yandex",
]
PAGE = ROOT / "docs" / "reference" / "operators.md"
VERSIONS = {"2.11": "2.11.2", "3.0": "3.0.6", "3.1": "3.1.8", "3.2": "3.2.2", "3.3": "3.3.2"}
TAKES_MIXIN = re.compile(r"^class (\w+)\(\s*ResumableJobMixin\b", re.MULTILINE)


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The newest providers of systems that run jobs, without what they depend on, but for what is small."""
    folder = tmp_path_factory.mktemp("newest")
    uv = os.environ.get("UV") or str(ROOT / ".venv" / "bin" / "uv")
    command = [uv, "--quiet", "pip", "install", "--target", str(folder)]
    names = [f"apache-airflow-providers-{name}" for name in PACKAGES]
    subprocess.run([*command, "--no-deps", *names], check=True, timeout=300)
    subprocess.run([*command, "aiohttp", "requests-toolbelt"], check=True, timeout=300)
    return folder


def test_the_page_knows_which_operators_are_durable_where(newest: Path, tmp_path: Path) -> None:
    """The table of operators and versions is what real Airflow finds; no provider's operator is missing there."""
    found: dict[str, dict[str, Any]] = {}
    for series, version in VERSIONS.items():
        airflow = environment(version)
        environ = airflow.environ(tmp_path, PYTHONPATH=str(newest))
        command = [str(airflow.python), str(Path(__file__).parent / "operators.py")]
        for name, facts in json.loads(airflow.run(command, environ).splitlines()[-1]).items():
            found.setdefault(name, {})[series] = cell(**facts)
    taking = {
        name
        for path in (newest / "airflow" / "providers").rglob("*.py")
        for name in TAKES_MIXIN.findall(path.read_text())
    }
    assert taking == found.keys()
    rows = ["| operator | " + " | ".join(VERSIONS) + " |", "|---" * (len(VERSIONS) + 1) + "|"]
    rows += [f"| `{name}` | " + " | ".join(cells.values()) + " |" for name, cells in sorted(found.items())]
    table = "\n".join(rows)
    assert table in PAGE.read_text(), f"the table of {PAGE} would be:\n{table}"


def cell(mixin: str, by_itself: bool, asked: bool) -> str:
    """Say what becomes of an operator."""
    if mixin.startswith("airflow.sdk"):
        return "Airflow's own"
    assert (mixin, asked) == ("keepstate.jobs", True)
    return "durable" if by_itself else "with `durable=True`"


class Master(BaseHTTPRequestHandler):
    """A Spark master's REST API: its recovery ends the first attempt, and the job runs on."""

    states: list[str]

    def do_GET(self) -> None:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        driver = self.path.rsplit("/", 1)[-1]
        answer = {"success": True, "driverState": state, "submissionId": driver}
        # spaced as Spark does, since the provider reads it line by line
        body = json.dumps(answer, indent=2, separators=(",", " : ")).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def master() -> Iterator[int]:
    """The port of a Spark master."""
    Master.states = ["UNKNOWN", "RUNNING", "FINISHED"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Master)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("version", ["2.11.2", "3.1.8"])
def test_spark_reconnects_and_breaks_nothing_on_yarn(
    version: str, provider: Path, master: int, tmp_path: Path
) -> None:
    """A retry reconnects to the driver that runs; on YARN, where the provider would refuse, the task runs as before."""
    airflow = environment(version)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").write_text(SPARK_SUBMIT)
    (tmp_path / "bin" / "spark-submit").chmod(0o755)
    cluster = {"deploy-mode": "cluster", "rest-port": master}
    standalone = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": 7077, "extra": cluster}
    yarn = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    environ = airflow.environ(
        tmp_path,
        AIRFLOW__CORE__DAGS_FOLDER=str(DAG_FILE.parent),
        AIRFLOW_CONN_SPARK_STANDALONE=json.dumps(standalone),
        AIRFLOW_CONN_SPARK_YARN=json.dumps(yarn),
        PYTHONPATH=str(provider),
        SUBMISSIONS=str(tmp_path / "submissions"),
    )
    environ = {**environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{environ['PATH']}"}
    airflow.migrate(environ)
    where = "--subdir" if version.startswith("2.") else "--dagfile-path"
    done = subprocess.run(
        ["airflow", "dags", "test", "spark", where, str(DAG_FILE)],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    submissions = (tmp_path / "submissions").read_text().splitlines()
    assert [line.split()[1].split(":")[0] for line in sorted(submissions)] == ["spark", "yarn"], submissions
    assert "Reconnecting to job driver-20261129-0001, which is RUNNING" in said
    assert "does not reconnect to its Spark application after a crash" in said
