"""The contract over a real MariaDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from keepstate.connect import connect
from keepstate.settings import Settings
from keepstate.testing.contract import Copies, FullContract
from tests.support.mysql import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pymysql

    from keepstate.backends.base import Backend
    from tests.support.mysql import MysqlServer


@pytest.fixture(scope="module")
def database(mysql: MysqlServer) -> Iterator[tuple[Backend, pymysql.Connection[Any], list[str]]]:
    """A database with keepstate's tables, a connection beside keepstate's, and the names of the tables."""
    with (
        mysql.database() as url,
        connect(url, settings=Settings()) as store,
        connected(url) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SHOW TABLES")
        tables = {name for (name,) in cursor.fetchall()} - {"keepstate_migration", "keepstate_store"}
        yield store.backend, connection, sorted(tables)


class TestMysql(FullContract, Copies):
    @pytest.fixture
    def backend(self, database: tuple[Backend, pymysql.Connection[Any], list[str]]) -> Iterator[Backend]:
        """One that is empty, and left so."""
        backend, connection, tables = database
        yield backend
        with connection.cursor() as cursor:
            for table in tables:
                # a dozen times faster than TRUNCATE
                cursor.execute(f"DELETE FROM {table}")
