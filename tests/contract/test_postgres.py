"""The contract over a real PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from keepstate.connect import connect
from keepstate.settings import Settings
from keepstate.testing.contract import Copies, FullContract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.backends.base import Backend
    from tests.support.postgres import PostgresServer

# one statement for however many tables; a dozen times faster than another database
EMPTY = """
DO $$
DECLARE name text;
BEGIN
  FOR name IN SELECT tablename FROM pg_tables
    WHERE tablename LIKE 'keepstate\\_%' AND tablename NOT IN ('keepstate_migration', 'keepstate_store')
  LOOP
    EXECUTE format('DELETE FROM %I', name);
  END LOOP;
END $$
"""


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Iterator[tuple[Backend, psycopg.Connection]]:
    """A database with keepstate's tables, and a connection beside keepstate's."""
    with (
        postgres.database() as url,
        connect(url, settings=Settings()) as store,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        yield store.backend, connection


class TestPostgres(FullContract, Copies):
    @pytest.fixture
    def backend(self, database: tuple[Backend, psycopg.Connection]) -> Iterator[Backend]:
        """One that is empty, and left so."""
        backend, connection = database
        yield backend
        connection.execute(EMPTY)
