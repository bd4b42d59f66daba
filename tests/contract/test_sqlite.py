"""The contract over a SQLite file."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from keepstate.connect import connect
from keepstate.settings import Settings
from keepstate.testing.contract import Copies, FullContract

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from keepstate.backends.base import Backend


@pytest.fixture(scope="module")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without entries: copying it takes a tenth of the time of making one."""
    file = tmp_path_factory.mktemp("contract") / "keepstate.db"
    connect(f"sqlite:///{file}", settings=Settings()).close()
    return file


class TestSqlite(FullContract, Copies):
    @pytest.fixture
    def backend(self, empty_file: Path, tmp_path: Path) -> Iterator[Backend]:
        """One over a file of its own."""
        file = shutil.copy(empty_file, tmp_path / "keepstate.db")
        with connect(f"sqlite:///{file}", settings=Settings()) as store:
            yield store.backend
