"""Load on a server, by wrk: 32 connections that each send the next request when the last one was answered."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from bench.contenders import ContenderError, Load

CONNECTIONS = 32
DAG_ID, RUN_ID = "many", "bench"
TASKS = tuple(f"load_{number}" for number in range(32))
"""As many as there are connections: they write side by side, as the tasks of a DAG do."""
PATHS = tuple(
    f"/api/v2/dags/{DAG_ID}/dagRuns/{RUN_ID}/taskInstances/{task_id}/state-store/{key}"
    for task_id in TASKS
    for key in ("page", "cursor", "job_id", "rows")
)
"""Where the entries are, in every server here."""

_SCRIPT = Path(__file__).with_name("load.lua")
_SLOWEST = 30
_PATIENCE = 60.0


def command() -> str:
    """Return where wrk is; raise ``ContenderError`` where it isn't."""
    found = shutil.which("wrk")
    if found is None:
        raise ContenderError("wrk is not installed: apt-get install wrk")
    return found


def version() -> str:
    """Return wrk's version."""
    # it exits with 1 after saying so
    said = subprocess.run([command(), "--version"], capture_output=True, text=True, check=False).stdout
    return said.split()[1] if len(said.split()) > 1 else "unknown"


def load(url: str, token: str, method: str, seconds: int) -> Load:
    """Load a server for so many seconds. Raises ``ContenderError`` unless every answer was a success."""
    done = subprocess.run(
        [
            command(),
            *("--threads", "1", "--connections", str(CONNECTIONS)),
            *("--duration", f"{seconds}s", "--timeout", f"{_SLOWEST}s"),
            *("--header", f"Authorization: Bearer {token}", "--header", "Content-Type: application/json"),
            *("--script", str(_SCRIPT), url, "--", method, *PATHS),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + _PATIENCE,
    )
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise ContenderError(f"wrk failed: {(done.stdout + done.stderr)[-500:]}") from None
    if found["refused"] or found["broken"] or not found["answers"]:
        raise ContenderError(
            f"of {found['answers']} answers to {method} {found['refused']} were no success, and {found['broken']} requests "
            "were not answered"
        )
    return Load(
        found["answers"], found["microseconds"] / 1e6, p50=found["p50"] * 1000, p99=found["p99"] * 1000
    )
