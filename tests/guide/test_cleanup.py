from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from keepstate import StateStore
    from keepstate.testing import ManualClock


def _rows(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM keepstate_entry").fetchone()[0])
    finally:
        connection.close()


def test_opening_an_embedded_store_cleans_it_up(
    open_store: Callable[..., StateStore], clock: ManualClock, tmp_path: Path
) -> None:
    """What has expired is deleted when the store is next opened, and nobody has asked for it."""
    with open_store() as store:
        tss = store.task("etl", "2026-11-29", "load")
        tss.set("short", 1, retention=timedelta(days=1))
        tss.set("long", 1)
    clock.advance(timedelta(days=2))
    assert _rows(tmp_path / "state.db") == 2
    with open_store() as store:
        assert dict(store.task("etl", "2026-11-29", "load").items()) == {"long": 1}
    assert _rows(tmp_path / "state.db") == 1


def test_a_process_that_writes_on_and_on_cleans_up_meanwhile(
    open_store: Callable[..., StateStore], clock: ManualClock, tmp_path: Path
) -> None:
    """Every 250 rows written an open embedded store removes a batch of what has expired."""
    with open_store() as store:
        tss = store.task("etl", "2026-11-29", "load")
        tss.set_many({f"key {number}": 1 for number in range(100)}, retention=timedelta(days=1))
        clock.advance(timedelta(days=2))
        for number in range(149):
            tss.set("page", number)
        assert _rows(tmp_path / "state.db") == 101
        tss.set("page", 149)
        assert _rows(tmp_path / "state.db") == 1
