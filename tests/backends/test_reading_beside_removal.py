"""A page of entries takes several statements, and what it is of may be removed between any two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import keepstate
from keepstate.backends.sql.sqlite import SqliteDatabase
from keepstate.scope import AssetScope

if TYPE_CHECKING:
    from pathlib import Path

    from keepstate.backends.sql.database import Params, Row

STATEMENTS = 3
"""How many a page of an asset's entries takes."""


@pytest.mark.parametrize("moment", range(STATEMENTS + 1))
def test_an_asset_is_removed_while_a_page_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """It is there with its entry, or it is not there: whenever that is, it is no trouble."""
    url = f"sqlite:///{tmp_path / 'state.db'}"
    with keepstate.connect(url) as store, keepstate.connect(url) as other:
        store.asset("orders").set("k", 1)
        count = 0
        query = SqliteDatabase.query

        def counting(self: SqliteDatabase, statement: str, params: Params) -> list[Row]:
            nonlocal count
            if count == moment:
                monkeypatch.undo()
                assert other.delete_asset("orders")
            count += 1
            return query(self, statement, params)

        monkeypatch.setattr(SqliteDatabase, "query", counting)
        page = store.backend.read(AssetScope("orders"), None, now=store.clock(), limit=10)
        assert (len(page.entries), page.total) == ((1, 1) if moment == STATEMENTS else (0, 0))
        assert count == min(moment + 1, STATEMENTS)
