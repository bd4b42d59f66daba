"""MySQL and MariaDB as they are set up by others: users, rights, modes, limits, character sets, and engines handed in."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.engine import make_url

from keepstate.backends.sql.migrations import LATEST
from keepstate.backends.sql.mysql import MysqlDatabase, make_engine
from keepstate.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigurationError,
    StoreReadOnlyError,
    StoreVersionError,
    ValueTooLargeError,
)
from keepstate.testing.contract.keys import LOOKALIKES
from tests.backends.children import wait_until
from tests.backends.promises import goes_by_bytes, lent, loses_nothing, refuses_every_write, undoes_what_fails
from tests.backends.servers import MYSQL
from tests.backends.stores import open_url, task
from tests.support.mariadb import ask, connected, mariadb_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy.engine import Engine

    from tests.support.mariadb import MariadbServer

LEVELS = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


@contextmanager
def set_globally(server: MariadbServer, **settings: object) -> Iterator[None]:
    """Give new connections other defaults, or the server another limit."""
    names = list(settings)
    (before,) = server.execute("SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in names))
    try:
        for name, value in settings.items():
            server.execute(f"SET GLOBAL {name} = {value!r}")
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            server.execute(f"SET GLOBAL {name} = {value!r}")


@contextmanager
def engine_for(url: str, *, query: str = "charset=utf8mb4", **options: Any) -> Iterator[Engine]:
    """Make an engine as a caller would, and close it as a caller has to."""
    engine = create_engine(f"{url.replace('mysql://', 'mysql+pymysql://')}?{query}", **options)
    with lent(engine):
        yield engine


def changed(url: str, **parts: Any) -> str:
    """Return a URL with other parts."""
    return make_url(url).set(**parts).render_as_string(hide_password=False)


# ------------------------------------------------------------------------------------------- users and rights


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"password": "not-the-password"}, "Access denied for user"),
        ({"password": "nicht-das-pässwort-🚀"}, "Access denied for user"),
        ({"username": "absent"}, "Access denied for user"),
        ({"database": "keepstate_absent"}, "Unknown database 'keepstate_absent'"),
        ({"database": "forbidden"}, "Access denied for user"),
        ({"query": {"no_such_option": "1"}}, "with this URL: its driver knows no option 'no_such_option'$"),
        ({"query": {"ssl_ca": "/nowhere.pem"}}, "nowhere|No such file"),
        ({"query": {"charset": "latin1"}}, "character set latin1, .* charset=utf8mb4"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_url_that_does_not_work_is_a_configuration_error(
    mysql_url: str, parts: dict[str, Any], words: str
) -> None:
    """At once, saying why; the password is not repeated."""
    began = time.monotonic()
    with pytest.raises(ConfigurationError, match=words) as caught:
        open_url(changed(mysql_url, **parts))
    assert time.monotonic() - began < 5
    for secret in (str(make_url(mysql_url).password), "not-the-password", "pässwort"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"])
def test_both_names_will_do(mysql_url: str, scheme: str) -> None:
    """And a driver may be named."""
    with open_url(mysql_url.replace("mysql", scheme, 1)) as store:
        task(store).set("n", 1)
        assert store.backend.address.startswith("mysql://keepstate:***@127.0.0.1:")


def test_the_password_may_be_in_a_file_of_the_servers(mysql_url: str, tmp_path: Path) -> None:
    """An option file of the kind that MySQL's own programs read: the URL names it, and holds no secret."""
    parsed = make_url(mysql_url)
    options = tmp_path / "my.cnf"
    options.write_text(f"[client]\nuser = {parsed.username}\npassword = {parsed.password}\n")
    with open_url(
        f"mysql://{parsed.host}:{parsed.port}/{parsed.database}?read_default_file={options}"
    ) as store:
        task(store).set("n", 1)
    with open_url(mysql_url) as store:
        assert task(store).get("n") == 1


def test_a_url_without_a_database_is_a_configuration_error(mysql_url: str) -> None:
    """The server has many."""
    with pytest.raises(ConfigurationError, match="names no database; put its name behind the host"):
        open_url(mysql_url.rpartition("/")[0])


def test_a_driver_that_keepstate_does_not_know_is_refused() -> None:
    """With those that it does."""
    with pytest.raises(
        ConfigurationError, match=r"the driver 'mysqlconnector'; make the engine with mysql\+py"
    ):
        open_url(_Other)


class _Other:
    class dialect:  # noqa: N801
        name, driver = "mysql", "mysqlconnector"


@pytest.mark.parametrize(
    "version", ["5.7.44", "10.5.29-MariaDB", "5.5.5-10.3.39-MariaDB-log", "nonsense", "8.0.11-TiDB"]
)
def test_a_server_that_is_too_old_is_refused(mysql_url: str, version: str) -> None:
    """With its version, and what is needed; other things that speak like one are taken at their word."""
    database = MysqlDatabase(make_engine(mysql_url), owned=True)
    if version.startswith("8"):
        database._check(version, "db", "utf8mb4")
    else:
        with pytest.raises(ConfigurationError, match=f"version {version}; keepstate needs MySQL 8.0"):
            database._check(version, "db", "utf8mb4")
    database.close()


def test_rights_that_are_missing_are_a_configuration_error(mariadb: MariadbServer, mysql_url: str) -> None:
    """To make tables, and to write to them: each says to grant them. Who may only read, reads."""
    name = mysql_url.rpartition("/")[2]
    limited = changed(mysql_url, username="limited", password="limited")
    mariadb.execute(
        "CREATE USER limited@'127.0.0.1' IDENTIFIED BY 'limited'",
        f"GRANT SELECT ON {name}.* TO limited@'127.0.0.1'",
    )
    try:
        with pytest.raises(
            ConfigurationError, match=r"does not let this user in; grant it .*CREATE command denied"
        ):
            open_url(limited)
        with open_url(mysql_url) as store:
            task(store).set("n", 1)
        with open_url(limited) as store:
            assert task(store).get("n") == 1
            with pytest.raises(ConfigurationError, match="command denied"):
                task(store).set("n", 2)
    finally:
        mariadb.execute("DROP USER limited@'127.0.0.1'")


# ------------------------------------------------------------------------------------------- limits and trouble


def test_a_server_that_becomes_read_only_can_be_read(mariadb: MariadbServer, mysql_url: str) -> None:
    """As after a failover: every write is refused for what it is, until there is a primary again; nothing is lost."""
    with open_url(mysql_url) as store:
        task(store, try_number=1).set("n", 1)
        with set_globally(mariadb, read_only=1):
            refuses_every_write(store)
            with mariadb.database() as empty, pytest.raises(StoreReadOnlyError):
                open_url(empty)
        assert task(store).increment("n") == 2


def test_a_server_without_a_connection_left_is_waited_for() -> None:
    """Whose turn does not come in time hears that there are too many."""
    with mariadb_server(settings={"max-connections": "10"}) as server, server.database() as url:
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


def test_a_write_that_is_a_deadlock_s_victim_is_done_again(mariadb: MariadbServer, mysql_url: str) -> None:
    """Once: nobody hears of it."""
    deadlocks = "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'"
    with open_url(mysql_url) as store, connected(mysql_url, autocommit=False) as other:
        tss = task(store, try_number=1)
        tss.set("n", 1)
        with other.cursor() as cursor:
            # the server gives up who has changed less
            cursor.execute("CREATE TABLE of_another (n INTEGER) ENGINE=InnoDB")
            cursor.execute("INSERT INTO of_another SELECT seq FROM seq_1_to_1000")
            cursor.execute("SELECT 1 FROM keepstate_entry FOR UPDATE")
            before = int(mariadb.execute(deadlocks)[0][1])
            writer = threading.Thread(target=tss.set_many, args=({"n": 2, "m": 2},))
            writer.start()
            waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
            wait_until(lambda: mariadb.execute(waiting)[0][0])
            cursor.execute("SELECT 1 FROM keepstate_scope FOR UPDATE")
            assert int(mariadb.execute(deadlocks)[0][1]) == before + 1
        other.commit()
        writer.join()
        entry = tss.entry("n")
        assert entry is not None
        assert (entry.value, entry.version) == (2, 2)


def test_a_value_that_fits_no_statement_is_refused(mariadb: MariadbServer, mysql_url: str) -> None:
    """Before it is sent, naming the server's setting; what fits, with all that has to be escaped, is stored."""
    with set_globally(mariadb, max_allowed_packet=1 << 20), open_url(mysql_url) as store:
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
            f"INSERT INTO keepstate_scope (digest, dag_id, run_id, {columns}) SELECT UNHEX(SHA2(seq, 256)), "
            "CONCAT('dag', LPAD(seq, 5, '0')), 'r', 'run', 1, 0, seq = 7, 1, 1 FROM seq_1_to_1500",
        )
        found = store.backend.dags()
        assert [info.dag_id for info in found[:8]] == [f"dag0000{n}" for n in (1, 2, 3, 4, 5, 6, 8, 9)]
        assert len(found) == store.backend.count_dags() == 1500
        assert store.backend.count_runs(pattern="dag*") == 1499


# ------------------------------------------------------------------------------------- modes and isolation levels


@pytest.mark.parametrize("level", [*LEVELS, "AUTOCOMMIT"])
def test_every_isolation_level_of_an_engine_loses_nothing(mysql_url: str, level: str) -> None:
    """Eight threads on one key, over an engine that was made with it."""
    with engine_for(mysql_url, isolation_level=level, pool_size=8) as engine:
        loses_nothing(engine, rounds=5)


@pytest.mark.parametrize(
    "settings",
    [
        {"tx_isolation": "SERIALIZABLE"},
        {"sql_mode": "", "innodb_lock_wait_timeout": 1},
        {"sql_mode": "ANSI,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT"},
        {"sql_mode": "TRADITIONAL,ONLY_FULL_GROUP_BY"},
        {"sql_mode": "ORACLE"},
        {"sql_mode": "MSSQL,EMPTY_STRING_IS_NULL"},
        {"autocommit": 0},
        {"default_storage_engine": "MyISAM"},
        {"character_set_server": "latin1", "collation_server": "latin1_german1_ci"},
    ],
    ids=str,
)
def test_a_server_s_defaults_don_t_matter(
    mariadb: MariadbServer, mysql_url: str, settings: dict[str, Any]
) -> None:
    """Whatever modes, levels and sets there are, values come back as they were, and nothing is lost."""
    with set_globally(mariadb, **settings), mariadb.database() as url:
        loses_nothing(url, rounds=5)
        with open_url(url) as store:
            for number, text in enumerate(["\\", "'", '"', "\\'%_", "a\nb\x1a\x00", "🚀é", "", "{}:n %s"]):
                task(store).set(f"t{number}\\'%s:n\"", text)
                assert task(store).get(f"t{number}\\'%s:n\"") == text


# ------------------------------------------------------------------------------------------ engines handed in


def test_an_engine_that_was_handed_in_stays_the_caller_s(mysql_url: str) -> None:
    """It is not disposed of, and its connections come back as they were, session and all."""
    session = "SELECT CONNECTION_ID(), @@autocommit, @@sql_mode, @@innodb_lock_wait_timeout, @@lock_wait_timeout, @@tx_isolation"
    with engine_for(mysql_url, pool_size=1, max_overflow=0) as engine:

        @event.listens_for(engine, "connect")
        def of_the_caller(connection: Any, _: object) -> None:
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION innodb_lock_wait_timeout = 77, sql_mode = 'ANSI_QUOTES'")

        disposed: list[object] = []
        event.listen(engine, "engine_disposed", disposed.append)
        with engine.connect() as connection:
            before = connection.exec_driver_sql(session).fetchall()
        assert before[0][1:4] == (0, "ANSI_QUOTES", 77)
        with open_url(engine) as store:
            task(store).set("n", 1)
            with pytest.raises(ValueError, match="at most 512 characters"):
                task(store).set("k" * 513, 1)
            task(store).set_many({"n": 2, "m": 2})
            assert task(store).get("n") == 2
        assert disposed == []
        with engine.connect() as connection:
            assert connection.exec_driver_sql(session).fetchall() == before
        with engine.connect() as connection:
            transaction = connection.begin()
            connection.exec_driver_sql("DELETE FROM keepstate_entry")
            transaction.rollback()
        with open_url(engine) as store:
            assert task(store).get("n") == 2


@pytest.mark.parametrize("statement", [b"SET SESSION", b"SET AUTOCOMMIT = 0"])
def test_a_connection_that_goes_while_it_is_given_back_is_no_error(mysql_url: str, statement: bytes) -> None:
    """What was written is written, and the next call has another connection."""
    with MYSQL.through(mysql_url) as proxy, engine_for(proxy.url(mysql_url), pool_size=1) as engine:
        waited_for = [b"START TRANSACTION", b"COMMIT", statement]
        cuts: list[bytes] = []
        step = 0

        def cut(_: int, message: bytes) -> bool:
            nonlocal step
            step += waited_for[step] in message
            if step < 3:
                return False
            step = 0
            cuts.append(message)
            return True

        with open_url(engine) as store:
            task(store).set("n", 1)
            proxy.on_question = cut
            for number in range(2, 5):
                task(store).set("n", number)
                entry = task(store).entry("n")
                assert entry is not None
                assert (entry.value, entry.version) == (number, number)
        assert len(cuts) == 3


def test_what_fails_in_a_transaction_leaves_nothing(mysql_url: str) -> None:
    """Over an engine of the caller's too, also in ``AUTOCOMMIT``."""
    with engine_for(mysql_url, isolation_level="AUTOCOMMIT") as engine:
        for place in (mysql_url, engine):
            undoes_what_fails(place)


def test_an_engine_that_speaks_another_character_set_is_refused(mysql_url: str) -> None:
    """It could not carry every key and value."""
    with (
        engine_for(mysql_url, query="charset=latin1") as engine,
        pytest.raises(ConfigurationError, match="character set latin1"),
    ):
        open_url(engine)


# ------------------------------------------------------------------------------------------------ collations


@pytest.mark.parametrize(
    "options",
    [
        "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "CHARACTER SET latin1 COLLATE latin1_swedish_ci",
        "CHARACTER SET utf8mb3",
    ],
)
def test_keys_are_ordered_and_told_apart_by_their_bytes(mariadb: MariadbServer, options: str) -> None:
    """Keys, task ids and asset names, whatever the database's character set; so every backend lists them alike."""
    keys = sorted(
        {*LOOKALIKES, "a", "B", "ä", "z", "Z", "_", "10", "9", "é", "ö", "🚀", "\uffff", "a ", "a  "}
    )
    with mariadb.database(options) as url, open_url(url) as store:
        names = ["b", "A", "ä", "a", "Z", "_x", "a b", "🚀"]
        goes_by_bytes(store, keys, names)
        assert [info.name for info in store.backend.assets(now=0, pattern="?")] == sorted(
            "bAäaZ🚀", key=str.encode
        )


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


def test_every_table_is_transactional_and_its_texts_are_bytes(mariadb: MariadbServer, mysql_url: str) -> None:
    """Whatever identifies something; what is only read back is text."""
    with open_url(mysql_url):
        pass
    name = mysql_url.rpartition("/")[2]
    of_ours = f"FROM information_schema.%s WHERE table_schema = '{name}'"
    assert mariadb.execute("SELECT DISTINCT engine, row_format " + of_ours % "tables") == [
        ("InnoDB", "Dynamic")
    ]
    texts = mariadb.execute(
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
