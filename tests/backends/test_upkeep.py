"""An embedded store is cleaned up by being used, and by nobody else."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from keepstate.connect import connect
from keepstate.settings import Settings
from keepstate.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from keepstate.store import StateStore


def rows(store: StateStore) -> dict[str, int]:
    """Count what lies in the tables."""
    query = store.backend._db.query  # type: ignore[attr-defined]
    tables = ("scope", "attempt", "entry", "log")
    return {name: query(f"SELECT COUNT(*) FROM keepstate_{name}", {})[0][0] for name in tables}


def test_it_does_not_grow_with_what_has_expired(tmp_path: Path) -> None:
    """However many runs come and go: every table is bounded by what is alive, and what a cleanup takes at a time."""
    clock = ManualClock()
    bounds = Settings(default_retention_days=1)
    with connect(f"sqlite:///{tmp_path / 'keepstate.db'}", settings=bounds, clock=clock) as store:
        most: dict[str, int] = {}
        for number in range(2700):
            tss = store.task("etl", f"run {number // 5}", f"task {number}", try_number=1)
            tss.set_many({"page": number, "cursor": number}, retention=timedelta(hours=1))
            clock.advance(timedelta(hours=1))
            if number % 100 == 0 and number > 2200:
                found = rows(store)
                most = {name: max(found[name], most.get(name, 0)) for name in found}
    # in the day or two for which anything is kept, 48 task instances come
    assert most["entry"] < 500
    assert most["log"] < 500
    assert most["attempt"] < 500
    assert most["scope"] < 500


def test_opening_cleans_up_too(tmp_path: Path) -> None:
    """For processes that do little: some batches each time."""
    clock = ManualClock()
    url = f"sqlite:///{tmp_path / 'keepstate.db'}"
    with connect(url, settings=Settings(), clock=clock) as store:
        store.task("etl", "run", "task").set_many(
            {f"k{number}": 1 for number in range(2500)}, retention=timedelta(hours=1)
        )
    clock.advance(timedelta(hours=1))
    with connect(url, settings=Settings(), clock=clock, purge_on_open=False) as store:
        assert rows(store)["entry"] == 2500
    with connect(url, settings=Settings(), clock=clock) as store:
        assert rows(store)["entry"] == rows(store)["log"] == 0
