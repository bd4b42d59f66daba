"""What the tables hold of a key that is written again and again."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import psycopg
import pytest

from keepstate.connect import connect
from keepstate.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

COUNT = "SELECT COUNT(*) FROM keepstate_log"


@pytest.mark.parametrize(
    "times", [300, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_log_of_a_key_is_bounded(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, times: int
) -> None:
    """However often it is written, updated, deleted or cleared: at most twice ``KEEPSTATE_HISTORY_LIMIT`` rows."""
    file = tmp_path / "keepstate.db"
    url = f"sqlite:///{file}" if database == "sqlite" else request.getfixturevalue("postgres_url")
    beside: sqlite3.Connection | psycopg.Connection
    with connect(url, settings=Settings()) as store:
        beside = sqlite3.connect(file) if database == "sqlite" else psycopg.connect(url, autocommit=True)
        tss = store.task("etl", "2026-11-29", "load", try_number=1)
        most = 0
        for number in range(times):
            if number % 50 == 10:
                tss.delete("k")
            elif number % 50 == 11:
                tss.clear()
            elif number % 50 == 12:
                tss.increment("k")
            else:
                tss.set("k", number)
            if number < 1_000 or number % 1_000 == 0:
                most = max(most, beside.execute(COUNT).fetchall()[0][0])
        assert 20 <= most <= 40
        assert len(tss.history("k")) == 20
        beside.close()
