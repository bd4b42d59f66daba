"""What a MySQL or MariaDB server puts in the way: limits, locks, connections that run out, and tables that are not as they were."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from keepstate.backends.sql.migrations import LATEST
from keepstate.errors import (
    BackendError,
    BackendUnavailableError,
    StoreReadOnlyError,
    StoreVersionError,
    ValueTooLargeError,
)
from tests.backends.children import wait_until
from tests.backends.promises import refuses_every_write
from tests.backends.servers import MYSQL
from tests.backends.stores import open_url, task
from tests.support.mysql import RELEASE, ask, connected, mysql_server

if TYPE_CHECKING:
    from tests.support.mysql import MysqlServer

# 1 to 1600
NUMBERS = """
WITH RECURSIVE digit (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM digit WHERE n < 39)
SELECT 1 + a.n + 40 * b.n AS n FROM digit a CROSS JOIN digit b
"""
# what a server is set to that is no primary any more
READ_ONLY = {"read_only": 1} if RELEASE.is_mariadb else {"read_only": 1, "super_read_only": 1}

# ------------------------------------------------------------------------------------------- limits and trouble


def test_a_server_that_becomes_read_only_can_be_read(mysql: MysqlServer, mysql_url: str) -> None:
    """As after a failover: every write is refused for what it is, until there is a primary again; nothing is lost."""
    with open_url(mysql_url) as store, mysql.database() as empty:
        task(store, try_number=1).set("n", 1)
        with mysql.set_globally(**READ_ONLY):
            refuses_every_write(store)
            with pytest.raises(StoreReadOnlyError):
                open_url(empty)
        assert task(store).increment("n") == 2


def test_a_server_without_a_connection_left_is_waited_for() -> None:
    """Whose turn does not come in time hears that there are too many."""
    with mysql_server(settings={"max-connections": "10"}) as server, server.database() as url:
        with open_url(url) as store:
            task(store).set("n", 1)
        crowd = [connected(url) for _ in range(10)]
        with pytest.raises(BackendUnavailableError, match="Too many connections"):
            open_url(url, timeout=0.3)
        found: list[object] = []

        def read(url: str) -> None:
            with open_url(url) as store:
                found.append(task(store).increment("n"))

        with MYSQL.through(url) as proxy:
            reader = threading.Thread(target=read, args=(proxy.url(url),))
            reader.start()
            wait_until(lambda: proxy.connections >= 2)
            for one in crowd:
                one.close()
            reader.join()
        assert found == [2]


def test_a_connection_that_was_idle_for_too_long_is_made_anew(mysql: MysqlServer, mysql_url: str) -> None:
    """The server has ended it; nobody hears of it, though a call may not be tried again."""
    connected_to_it = (
        f"SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{mysql_url.rpartition('/')[2]}'"
    )
    with mysql.set_globally(wait_timeout=1), open_url(mysql_url, timeout=0) as store:
        tss = task(store)
        tss.set("n", 1)
        for number in (2, 3):
            wait_until(lambda: mysql.execute(connected_to_it) == [(0,)])
            assert tss.increment("n") == number


def test_a_write_that_is_a_deadlock_s_victim_is_done_again(mysql: MysqlServer, mysql_url: str) -> None:
    """Once: nobody hears of it."""
    deadlocks = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"
    with open_url(mysql_url) as store, connected(mysql_url, autocommit=False) as other:
        tss = task(store, try_number=1)
        tss.set("n", 1)
        with other.cursor() as cursor:
            # the server gives up who has changed less
            cursor.execute("CREATE TABLE of_another (n INTEGER) ENGINE=InnoDB")
            cursor.execute(f"INSERT INTO of_another SELECT n FROM ({NUMBERS}) numbers")
            cursor.execute("SELECT 1 FROM keepstate_entry FOR UPDATE")
            before = int(mysql.execute(deadlocks)[0][0])
            writer = threading.Thread(target=tss.set_many, args=({"n": 2, "m": 2},))
            writer.start()
            waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
            wait_until(lambda: mysql.execute(waiting)[0][0])
            cursor.execute("SELECT 1 FROM keepstate_scope FOR UPDATE")
            assert int(mysql.execute(deadlocks)[0][0]) == before + 1
        other.commit()
        writer.join()
        entry = tss.entry("n")
        assert entry is not None
        assert (entry.value, entry.version) == (2, 2)


def test_a_value_that_fits_no_statement_is_refused(mysql: MysqlServer, mysql_url: str) -> None:
    """Before it is sent, naming the server's setting; what fits, with all that has to be escaped, is stored."""
    with mysql.set_globally(max_allowed_packet=1 << 20), open_url(mysql_url) as store:
        tss = task(store)
        tss.set("n", 1)
        for value in ("x" * (1 << 20), '"' * 500_000, "🚀" * 250_000, ["\\'" * 200_000]):
            with pytest.raises(
                ValueTooLargeError, match="max_allowed_packet is 1048576 bytes; raise it"
            ) as caught:
                tss.set("n", value)
            assert caught.value.limit == 1 << 20
            assert caught.value.size > 500_000
            with pytest.raises(ValueTooLargeError):
                tss.set_many({"m": 1, "n": value})
        for value in ("x" * 900_000, '"\\' * 110_000, "🚀" * 230_000):
            tss.set("n", value)
            assert tss.get("n") == value
        assert tss.get("m") is None
        assert tss.entry("n").version == 4


def test_more_dags_than_a_recursion_may_go_deep_are_listed(mysql_url: str) -> None:
    """Servers give up after a thousand rounds."""
    with open_url(mysql_url) as store:
        task(store).set("n", 1)
        columns = "kind, incarnation, version, deleted, created_at, updated_at"
        ask(
            mysql_url,
            f"INSERT INTO keepstate_scope (digest, dag_id, run_id, {columns}) SELECT UNHEX(SHA2(n, 256)), "
            f"CONCAT('dag', LPAD(n, 5, '0')), 'r', 'run', 1, 0, n = 7, 1, 1 FROM ({NUMBERS}) numbers",
        )
        found = store.backend.dags()
        assert [info.dag_id for info in found[:8]] == [f"dag0000{n}" for n in (1, 2, 3, 4, 5, 6, 8, 9)]
        assert len(found) == store.backend.count_dags() == 1600
        assert store.backend.count_runs(pattern="dag*") == 1599


# ------------------------------------------------------------------------------------------------- the tables


def test_a_database_of_a_newer_keepstate_is_left_untouched(mysql_url: str) -> None:
    """It is not even read further than its revision."""
    with open_url(mysql_url) as store:
        task(store).set("n", 1)
    ask(
        mysql_url,
        "INSERT INTO keepstate_migration VALUES (9999, 'from the future', 0)",
        "ALTER TABLE keepstate_entry RENAME TO keepstate_entry_of_the_future",
    )
    with pytest.raises(StoreVersionError, match="at revision 9999") as caught:
        open_url(mysql_url)
    assert "***" in caught.value.address
    assert ask(mysql_url, "SELECT COUNT(*) FROM keepstate_entry_of_the_future") == [(1,)]


def test_an_upgrade_that_another_process_is_at_is_waited_for(mysql_url: str) -> None:
    """By an advisory lock, which is let go of afterwards."""
    lock = "SELECT GET_LOCK(CONCAT('keepstate ', LEFT(SHA2(DATABASE(), 256), 32)), 5)"
    with connected(mysql_url) as other, other.cursor() as cursor:
        cursor.execute(lock)
        opened: list[object] = []

        def make() -> None:
            with open_url(mysql_url) as store:
                opened.append(task(store).increment("n"))

        maker = threading.Thread(target=make)
        maker.start()
        wait_until(
            lambda: ask(
                mysql_url,
                "SELECT 1 FROM information_schema.processlist WHERE state = 'User lock' AND db = DATABASE()",
            )
        )
        assert ask(mysql_url, "SHOW TABLES") == []
        cursor.execute("SELECT RELEASE_ALL_LOCKS()")
        maker.join()
        assert opened == [1]
        cursor.execute(lock)
        assert cursor.fetchall() == ((1,),)
    assert ask(mysql_url, "SELECT COUNT(*) FROM keepstate_migration") == [(LATEST,)]


def test_every_table_is_transactional_and_its_texts_are_bytes(mysql: MysqlServer, mysql_url: str) -> None:
    """Whatever identifies something; what is only read back is text."""
    with open_url(mysql_url):
        pass
    name = mysql_url.rpartition("/")[2]
    of_ours = f"FROM information_schema.%s WHERE table_schema = '{name}'"
    assert mysql.execute("SELECT DISTINCT engine, row_format " + of_ours % "tables") == [
        ("InnoDB", "Dynamic")
    ]
    texts = mysql.execute(
        "SELECT column_name, data_type, collation_name "
        + of_ours % "columns"
        + " AND data_type NOT IN ('int', 'bigint', 'varbinary')"
    )
    assert {row[0] for row in texts} == {"value", "writer", "reason", "result"}
    assert {row[1:] for row in texts} == {("longtext", "utf8mb4_bin")}


def test_a_table_that_is_gone_or_differs_is_damage(mysql_url: str) -> None:
    """The message says what to run."""
    with open_url(mysql_url) as store:
        task(store).set("n", 1)
        ask(mysql_url, "ALTER TABLE keepstate_log DROP COLUMN sha256")
        with pytest.raises(BackendError, match="run `keepstate db check`"):
            task(store).set("n", 2)
        ask(mysql_url, "DROP TABLE keepstate_log")
        with pytest.raises(BackendError, match="lacks a table of keepstate"):
            task(store).set("n", 2)
        assert task(store).get("n") == 1
