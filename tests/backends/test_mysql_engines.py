"""MySQL and MariaDB as they are set up by others: users, rights, modes, limits, character sets, and engines handed in."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.engine import make_url

from keepstate.backends.sql.mysql import MysqlDatabase, make_engine
from keepstate.errors import (
    ConfigurationError,
)
from keepstate.testing.contract.keys import LOOKALIKES
from tests.backends.promises import goes_by_bytes, lent, loses_nothing, undoes_what_fails
from tests.backends.servers import MYSQL
from tests.backends.stores import open_url, task
from tests.support.mysql import RELEASE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy.engine import Engine

    from tests.support.mysql import MysqlServer

ISOLATION = "tx_isolation" if RELEASE.is_mariadb else "transaction_isolation"
LEVELS = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


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


def test_rights_that_are_missing_are_a_configuration_error(mysql: MysqlServer, mysql_url: str) -> None:
    """To make tables, and to write to them: each says to grant them. Who may only read, reads."""
    name = mysql_url.rpartition("/")[2]
    limited = changed(mysql_url, username="limited", password="limited")
    mysql.execute(
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
        mysql.execute("DROP USER limited@'127.0.0.1'")


# ------------------------------------------------------------------------------------- modes and isolation levels


@pytest.mark.parametrize("level", [*LEVELS, "AUTOCOMMIT"])
def test_every_isolation_level_of_an_engine_loses_nothing(mysql_url: str, level: str) -> None:
    """Eight threads on one key, over an engine that was made with it."""
    with engine_for(mysql_url, isolation_level=level, pool_size=8) as engine:
        loses_nothing(engine, rounds=5)


# what one of them knows, and the other does not
SETTINGS_OF_ITS_OWN: list[dict[str, object]] = (
    [{"sql_mode": "ORACLE"}, {"sql_mode": "MSSQL,EMPTY_STRING_IS_NULL"}]
    if RELEASE.is_mariadb
    else [{"sql_require_primary_key": 1}, {"sql_generate_invisible_primary_key": 1}]
)


@pytest.mark.parametrize(
    "settings",
    [
        *SETTINGS_OF_ITS_OWN,
        {ISOLATION: "SERIALIZABLE"},
        {"sql_mode": "", "innodb_lock_wait_timeout": 1},
        {"sql_mode": "ANSI,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT"},
        {"sql_mode": "TRADITIONAL,ONLY_FULL_GROUP_BY"},
        {"autocommit": 0},
        {"default_storage_engine": "MyISAM"},
        {"character_set_server": "latin1", "collation_server": "latin1_german1_ci"},
    ],
    ids=str,
)
def test_a_server_s_defaults_don_t_matter(
    mysql: MysqlServer, mysql_url: str, settings: dict[str, Any]
) -> None:
    """Whatever modes, levels and sets there are, values come back as they were, and nothing is lost."""
    with mysql.set_globally(**settings), mysql.database() as url:
        loses_nothing(url, rounds=5)
        with open_url(url) as store:
            for number, text in enumerate(["\\", "'", '"', "\\'%_", "a\nb\x1a\x00", "🚀é", "", "{}:n %s"]):
                task(store).set(f"t{number}\\'%s:n\"", text)
                assert task(store).get(f"t{number}\\'%s:n\"") == text


# ------------------------------------------------------------------------------------------ engines handed in


def test_an_engine_that_was_handed_in_stays_the_caller_s(mysql_url: str) -> None:
    """It is not disposed of, and its connections come back as they were, session and all."""
    session = (
        "SELECT CONNECTION_ID(), @@autocommit, @@sql_mode, @@innodb_lock_wait_timeout, @@lock_wait_timeout, "
        f"@@{ISOLATION}"
    )
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
def test_keys_are_ordered_and_told_apart_by_their_bytes(mysql: MysqlServer, options: str) -> None:
    """Keys, task ids and asset names, whatever the database's character set; so every backend lists them alike."""
    keys = sorted(
        {*LOOKALIKES, "a", "B", "ä", "z", "Z", "_", "10", "9", "é", "ö", "🚀", "\uffff", "a ", "a  "}
    )
    with mysql.database(options) as url, open_url(url) as store:
        names = ["b", "A", "ä", "a", "Z", "_x", "a b", "🚀"]
        goes_by_bytes(store, keys, names)
        assert [info.name for info in store.backend.assets(now=0, pattern="?")] == sorted(
            "bAäaZ🚀", key=str.encode
        )
