"""The contract over a keepstate server: through a socket to a database, and back."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from keepstate.connect import connect
from keepstate.settings import Settings
from keepstate.testing.contract import Concurrency, Fencing, FullContract, Sessions, Versions
from tests.contract.test_postgres import EMPTY, database
from tests.contract.test_sqlite import empty_file
from tests.support.detour import Detour, detour

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import psycopg

    from keepstate.backends.base import Backend
    from keepstate.testing import ManualClock

# those of the databases themselves
__all__ = ["database", "empty_file"]


@pytest.fixture(scope="module")
def before_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Detour]:
    """A server as it runs over SQLite."""
    with detour(tmp_path_factory.mktemp("server"), one_writer=True) as way:
        yield way


@pytest.fixture(scope="module")
def before_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Detour]:
    """A server as it runs over PostgreSQL."""
    with detour(tmp_path_factory.mktemp("server"), one_writer=False) as way:
        yield way


class TestHttp(FullContract):
    @pytest.fixture
    def backend(
        self, before_sqlite: Detour, empty_file: Path, tmp_path: Path, clock: ManualClock
    ) -> Iterator[Backend]:
        """A server over a file of its own."""
        file = shutil.copy(empty_file, tmp_path / "keepstate.db")
        with (
            connect(f"sqlite:///{file}", settings=Settings(), clock=clock) as behind,
            before_sqlite.store(behind.backend, clock) as store,
        ):
            yield store.backend


class TestHttpBeforePostgres(Concurrency, Fencing, Sessions, Versions):
    @pytest.fixture
    def backend(
        self, before_postgres: Detour, database: tuple[Backend, psycopg.Connection], clock: ManualClock
    ) -> Iterator[Backend]:
        """A server over a database that is empty, and left so."""
        behind, connection = database
        with before_postgres.store(behind, clock) as store:
            yield store.backend
        connection.execute(EMPTY)
