"""Where the tests look."""

from __future__ import annotations

DAG, RUN, TASK = "etl", "scheduled__2026-11-29T00:00:00+00:00", "load"
RUN_PATH = f"/api/v2/dags/{DAG}/dagRuns/{RUN.replace('+', '%2B')}"
TASK_PATH = f"{RUN_PATH}/taskInstances/{TASK}"
BASE = f"{TASK_PATH}/state-store"
