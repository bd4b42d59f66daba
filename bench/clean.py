"""Cleanup side by side: a million expired of ten million entries, removed by `airflow state-store clean` and by keepstate."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from bench import airflow, places
from bench.contenders import Contender, ContenderError, Group, Load, Manner, Opened, Operation
from bench.filled import Size, fill
from bench.postgres import server_durability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_SIZE = Size(1_000_000)
_LONGEST = 1_800.0

# the same entries as `bench.filled` makes, in Airflow's own table
_AIRFLOW_RUNS = """
INSERT INTO dag_run (id, dag_id, run_id, run_type, state, run_after, clear_number, bundle_version)
SELECT n, 'dag_' || (n / 1000), 'scheduled__' || n, 'scheduled', 'success', now(), 0, NULL FROM generate_series(1, {runs}) n
"""
_AIRFLOW_ENTRIES = """
INSERT INTO task_state_store (dag_run_id, task_id, map_index, key, dag_id, run_id, value, updated_at, expires_at)
SELECT r.id, 'task_' || t, -1, 'key-' || k, r.dag_id, r.run_id, '[' || (r.id % 9000) || ', "page"]', now(),
  now() + CASE WHEN k = 0 THEN INTERVAL '-1 day' ELSE INTERVAL '30 days' END
FROM dag_run r CROSS JOIN generate_series(0, 9) t CROSS JOIN generate_series(0, 9) k ORDER BY r.id, t, k
"""


@contextmanager
def airflow_clean(where: str) -> Iterator[Opened]:
    """Fill Airflow's own table, for ``airflow state-store clean`` to clean."""
    import psycopg

    with places.folder() as home:
        database = places.another_database(where, "airflow")
        installed = airflow.install(Path(home), database=database)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(_AIRFLOW_RUNS.format(runs=_SIZE.task_instances // 10))
            connection.execute(_AIRFLOW_ENTRIES)
            connection.execute("VACUUM (ANALYZE, FREEZE)")
            connection.execute("CHECKPOINT")
        command = [installed.airflow.folder / "bin" / "airflow", "state-store", "clean"]
        count = partial(_count, database, "SELECT COUNT(*) FROM task_state_store")
        yield Opened(
            {"clean": partial(_clean, command, installed.environ, count)},
            Manner(
                airflow.VERSION,
                server_durability(database),
                "`airflow state-store clean` as it comes: one batch",
            ),
        )


@contextmanager
def keepstate_clean(where: str) -> Iterator[Opened]:
    """Fill keepstate's tables, for ``keepstate cleanup`` to clean: each entry has a row of history too."""
    url = places.another_database(where, "keepstate")
    fill(url, _SIZE, expired=True)
    command = [Path(sys.executable).with_name("keepstate"), "cleanup", "--url", url]
    count = partial(_count, url, "SELECT COUNT(*) FROM keepstate_entry")
    yield Opened(
        {"clean": partial(_clean, command, None, count)},
        Manner(
            version("keepstate"),
            server_durability(url),
            "`keepstate cleanup`, in batches of a thousand; with the history",
        ),
    )


def _clean(
    command: Sequence[str | Path], environ: Mapping[str, str] | None, count: Callable[[], int], times: int
) -> Load | list[int]:
    if not times:
        return []
    before, start = count(), time.monotonic()
    done = subprocess.run(command, env=environ, check=False, capture_output=True, text=True, timeout=_LONGEST)
    seconds = time.monotonic() - start
    removed = before - count()
    if done.returncode or removed != _SIZE.task_instances:
        raise ContenderError(
            f"it removed {removed:,} entries, and said {done.stdout[-300:]} {done.stderr[-300:]}"
        )
    return Load(removed, seconds, p50=seconds * 1e9, p99=seconds * 1e9)


def _count(url: str, statement: str) -> int:
    import psycopg

    with psycopg.connect(url) as connection:
        row = connection.execute(statement).fetchone()  # type: ignore[arg-type]
    return int(row[0]) if row else 0


_FACTS: dict[str, str] = {}

GROUP = Group(
    name="clean",
    title="Cleanup of a million expired of ten million entries, on PostgreSQL",
    contenders=(
        Contender("Airflow", airflow_clean, to_open=1_800),
        Contender("keepstate", keepstate_clean, to_open=900),
    ),
    operations=(Operation("clean", rounds=1, samples=1, warm_up=0, is_load=True, patience=_LONGEST),),
    place=partial(places.postgres_server, _FACTS),
    facts=_FACTS,
    is_gain=True,
)
