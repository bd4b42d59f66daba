"""PostgreSQL as it is set up by others: users, rights, isolation levels, encodings, locales, and engines handed in."""

from __future__ import annotations

import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import create_engine, create_mock_engine, event
from sqlalchemy.engine import make_url

from keepstate.backends.sql.migrations import LATEST
from keepstate.errors import ConfigurationError, StoreReadOnlyError, StoreVersionError
from keepstate.testing.contract.keys import LOOKALIKES
from tests.backends.children import python
from tests.backends.promises import goes_by_bytes, lent, loses_nothing, refuses_every_write, undoes_what_fails
from tests.backends.stores import open_url, task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine import Engine

    from tests.support.postgres import PostgresServer

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


@contextmanager
def set_for_database(url: str, setting: str, value: str) -> Iterator[None]:
    """Give a database's new connections a default."""
    name = sql.Identifier(url.rpartition("/")[2])
    with psycopg.connect(url, autocommit=True) as connection:
        change = sql.SQL("ALTER DATABASE {} SET {} = {}")
        connection.execute(change.format(name, sql.Identifier(setting), sql.Literal(value)))
        try:
            yield
        finally:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(sql.SQL("ALTER DATABASE {} RESET {}").format(name, sql.Identifier(setting)))


@contextmanager
def engine_for(url: str, **options: Any) -> Iterator[Engine]:
    """Make an engine as a caller would, and close it as a caller has to."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), **options)
    with lent(engine):
        yield engine


# ------------------------------------------------------------------------------------------- users and rights


def test_a_wrong_password_is_a_configuration_error(postgres_url: str) -> None:
    """At once, without trying for half a minute; it is not repeated in the message."""
    wrong = make_url(postgres_url).set(password="not-the-password").render_as_string(hide_password=False)
    began = time.monotonic()
    with pytest.raises(ConfigurationError, match="password authentication failed") as caught:
        open_url(wrong)
    assert time.monotonic() - began < 5
    assert "not-the-password" not in str(caught.value)


def test_an_unknown_user_or_database_is_a_configuration_error(postgres_url: str) -> None:
    """The message says which."""
    url = make_url(postgres_url)
    with pytest.raises(ConfigurationError, match='database "absent" does not exist'):
        open_url(url.set(database="absent").render_as_string(hide_password=False))
    with pytest.raises(ConfigurationError, match="can't be opened with this URL"):
        open_url(url.set(username="absent").render_as_string(hide_password=False))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("sslmode=nonsense", "check user, password, database and options"),
        ("no_such_option=1", "with this URL: its driver knows no option 'no_such_option'$"),
        ("sslmode=require", "check user, password, database and options"),
    ],
)
def test_a_connection_option_that_does_not_work_is_a_configuration_error(
    postgres_url: str, query: str, words: str
) -> None:
    """One that is misspelt, and one that the server can't meet."""
    with pytest.raises(ConfigurationError, match=words):
        open_url(f"{postgres_url}?{query}")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:p@ss:word@host:port/db",
        "postgresql://u:secret@[::1/db",
        "postgresql://u:secret@h:54x32/d",
    ],
)
def test_a_url_that_can_t_be_read_is_not_repeated(url: str) -> None:
    """It may hold a password; nor do the errors behind repeat it."""
    with pytest.raises(ConfigurationError) as caught:
        open_url(url, timeout=0)
    error: BaseException | None = caught.value
    while error is not None:
        for secret in ("ss:word", "secret"):
            assert secret not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_rights_that_are_missing_are_a_configuration_error(
    postgres: PostgresServer, postgres_url: str
) -> None:
    """To connect, to make tables, and to use them: each says to grant them."""
    user = "keepstate_limited"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE USER {} PASSWORD 'limited'").format(sql.Identifier(user)))
        limited = make_url(postgres_url).set(username=user, password="limited")
        try:
            admin.execute("REVOKE ALL ON SCHEMA public FROM public; GRANT USAGE ON SCHEMA public TO public")
            with pytest.raises(
                ConfigurationError, match=r"does not let this user in; grant it .*permission denied"
            ):
                open_url(limited.render_as_string(hide_password=False))
            with open_url(postgres_url) as store:
                task(store).set("n", 1)
            with pytest.raises(ConfigurationError, match="permission denied for table"):
                open_url(limited.render_as_string(hide_password=False))
            admin.execute(
                sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA public TO {}").format(sql.Identifier(user))
            )
            with open_url(limited.render_as_string(hide_password=False)) as store:
                assert task(store).get("n") == 1
                with pytest.raises(ConfigurationError, match="permission denied for table"):
                    task(store).set("n", 2)
        finally:
            admin.execute(sql.SQL("DROP OWNED BY {0}; DROP USER {0}").format(sql.Identifier(user)))


def test_a_read_only_server_can_be_read(postgres_url: str) -> None:
    """Every write is a ``StoreReadOnlyError``, by either way of writing; making the tables is one too."""
    with (
        set_for_database(postgres_url, "default_transaction_read_only", "on"),
        pytest.raises(StoreReadOnlyError, match="is read-only now"),
    ):
        open_url(postgres_url)
    with open_url(postgres_url) as store:
        task(store, try_number=1).set("n", 1)
    with (
        set_for_database(postgres_url, "default_transaction_read_only", "on"),
        open_url(postgres_url) as store,
    ):
        refuses_every_write(store)
        assert task(store).get("n") == 1


# --------------------------------------------------------------------------------------------- isolation levels


@pytest.mark.parametrize("level", LEVELS)
def test_every_isolation_level_of_an_engine_loses_nothing(postgres_url: str, level: str) -> None:
    """Eight threads on one key, over an engine that was made with it."""
    with engine_for(postgres_url, isolation_level=level, pool_size=8) as engine:
        loses_nothing(engine, rounds=10)


@pytest.mark.parametrize("level", LEVELS)
def test_every_isolation_level_of_a_database_loses_nothing(postgres_url: str, level: str) -> None:
    """Where the server's default is stricter, what it then refuses is tried again."""
    with set_for_database(postgres_url, "default_transaction_isolation", level.lower()):
        loses_nothing(postgres_url, rounds=10)


def test_an_engine_without_transactions_is_given_some(postgres_url: str) -> None:
    """``AUTOCOMMIT`` would make every statement of a write stand alone: a write that fails leaves nothing."""
    with engine_for(postgres_url, isolation_level="AUTOCOMMIT") as engine:
        undoes_what_fails(engine)


# ------------------------------------------------------------------------------------------ engines handed in


def test_an_engine_that_was_handed_in_stays_the_caller_s(postgres_url: str) -> None:
    """It is not disposed of, and its connections come back as they were."""
    with engine_for(postgres_url, pool_size=1, max_overflow=0) as engine:
        disposed: list[object] = []
        event.listen(engine, "engine_disposed", disposed.append)
        with open_url(engine) as store:
            task(store).set("n", 1)
            task(store).set_many({"n": 2, "m": 2})
            assert task(store).get("n") == 2
            pid = _backend_pid(engine)
        assert disposed == []
        assert _backend_pid(engine) == pid
        with engine.connect() as connection:
            assert connection.connection.dbapi_connection.autocommit is False  # type: ignore[union-attr]
            connection.exec_driver_sql("CREATE TABLE of_the_caller (n INTEGER)")
            connection.rollback()
            found = connection.exec_driver_sql("SELECT to_regclass('of_the_caller')").scalar()
            assert found is None


def _backend_pid(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())


def test_what_a_caller_s_event_handler_sets_counts(postgres_url: str) -> None:
    """A search path, for example: the tables are made and found in that schema, by every statement."""
    with engine_for(postgres_url) as engine:

        @event.listens_for(engine, "checkout")
        def to_schema(connection: Any, *_: object) -> None:
            connection.execute("SET search_path = state")

        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("CREATE SCHEMA state")
        with open_url(engine) as store:
            task(store).set("n", 1)
            task(store).set_many({"n": 2, "m": 2})
            assert task(store).get("n") == 2
        with psycopg.connect(postgres_url) as admin:
            assert admin.execute("SELECT COUNT(*) FROM state.keepstate_entry").fetchone() == (2,)


def test_an_engine_of_another_kind_is_refused() -> None:
    """With what to use instead; nothing is connected to."""
    mssql = create_mock_engine("mssql+pymssql://host/db", executor=None)
    with pytest.raises(ConfigurationError, match="no dialect for 'mssql' databases"):
        open_url(mssql)
    pg8000 = create_engine("postgresql+pg8000://host/db", module=_pg8000())
    with pytest.raises(
        ConfigurationError, match=r"the driver 'pg8000'; make the engine with postgresql\+psycopg"
    ):
        open_url(pg8000)
    memory = create_engine("sqlite://")
    with pytest.raises(ConfigurationError, match="in memory can't be shared"):
        open_url(memory)


def _pg8000() -> SimpleNamespace:
    return SimpleNamespace(paramstyle="format", Error=Exception, __version__="1.31.0")


# ------------------------------------------------------------------------------------- encodings and locales


@contextmanager
def database_made_with(server: PostgresServer, options: str) -> Iterator[str]:
    """Make a database with an encoding or locale of its own."""
    name = "keepstate_special"
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 {options}")
    try:
        yield server.url_of(name)
    finally:
        server.drop_database(server.url_of(name))


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_can_t_hold_every_key_is_refused(postgres: PostgresServer, encoding: str) -> None:
    """When it is opened, not when the first emoji comes."""
    with (
        database_made_with(postgres, f"ENCODING '{encoding}' LOCALE 'C'") as url,
        pytest.raises(ConfigurationError, match=f"server_encoding {encoding}, .* WITH ENCODING 'UTF8'"),
    ):
        open_url(url)


def test_a_client_encoding_of_the_caller_s_is_refused(postgres_url: str) -> None:
    """Where it can't carry every key and value."""
    with (
        engine_for(postgres_url, connect_args={"client_encoding": "latin1"}) as engine,
        pytest.raises(ConfigurationError, match="client_encoding LATIN1"),
    ):
        open_url(engine)


# ICU is missing in the wheel's build, so what would go wrong elsewhere is asked of the catalogue
COLLATIONS = """
SELECT c.relname || '.' || a.attname, l.collname
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_collation l ON l.oid = a.attcollation
WHERE c.relkind = 'r' AND c.relname LIKE 'keepstate%'
"""


def test_only_what_is_never_compared_has_the_database_s_collation(postgres_url: str) -> None:
    """Every key, id and name is compared by its bytes, whatever the database's locale."""
    with open_url(postgres_url), psycopg.connect(postgres_url) as admin:
        collations = dict(admin.execute(COLLATIONS).fetchall())
    assert set(collations.values()) == {"C", "default"}
    assert {name.partition(".")[2] for name, one in collations.items() if one == "default"} == {
        "value",
        "writer",
        "reason",
        "result",
    }


@pytest.mark.parametrize(
    "options", ["LOCALE 'C'", "LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8' LOCALE 'C.utf8'"]
)
def test_keys_are_ordered_and_told_apart_by_their_bytes(postgres: PostgresServer, options: str) -> None:
    """Keys, task ids and asset names; so every backend lists them alike."""
    keys = sorted({*LOOKALIKES, "a", "B", "ä", "z", "Z", "_", "10", "9", "é", "ö", "🚀", "\uffff"})
    with database_made_with(postgres, f"ENCODING 'UTF8' {options}") as url, open_url(url) as store:
        names = ["b", "A", "ä", "a", "Z", "_x"]
        goes_by_bytes(store, keys, names)


# -------------------------------------------------------------------------------------------- making the tables


@pytest.mark.parametrize("level", ["read committed", "serializable"])
def test_many_processes_may_make_the_tables_at_once(postgres_url: str, level: str) -> None:
    """There is one set of tables, and every write is in it."""
    code = """
import sys
from tests.backends.stores import open_url, task
import keepstate.backends.sql.postgresql
print("ready", flush=True)
sys.stdin.readline()
with open_url(sys.argv[1]) as store:
    task(store).set(sys.argv[2], 1)
"""
    with set_for_database(postgres_url, "default_transaction_isolation", level):
        programs = [python(code, postgres_url, f"k{number}") for number in range(6)]
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        for program in programs:
            program.communicate(timeout=60)
        assert [program.returncode for program in programs] == [0] * 6
    with open_url(postgres_url) as store:
        assert len(task(store).items()) == 6
    with psycopg.connect(postgres_url) as admin:
        assert admin.execute("SELECT COUNT(*) FROM keepstate_migration").fetchone() == (LATEST,)


def test_a_database_of_a_newer_keepstate_is_left_untouched(postgres_url: str) -> None:
    """It is not even read further than its revision."""
    with open_url(postgres_url) as store:
        task(store).set("n", 1)
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("INSERT INTO keepstate_migration VALUES (9999, 'from the future', 0)")
        admin.execute("ALTER TABLE keepstate_entry RENAME TO keepstate_entry_of_the_future")
        with pytest.raises(StoreVersionError, match="at revision 9999") as caught:
            open_url(postgres_url)
        assert "***" in caught.value.address
        assert admin.execute("SELECT COUNT(*) FROM keepstate_entry_of_the_future").fetchone() == (1,)


def test_tables_live_beside_those_of_others(postgres_url: str) -> None:
    """All of keepstate's begin with its name, and nothing of the others is touched."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("CREATE TABLE alembic_version (version_num TEXT)")
        admin.execute("INSERT INTO alembic_version VALUES ('airflow')")
        with open_url(postgres_url) as store:
            task(store).set("n", 1)
        tables = {
            row[0] for row in admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        }
        assert all(name.startswith("keepstate_") for name in tables - {"alembic_version"})
        assert admin.execute("SELECT * FROM alembic_version").fetchall() == [("airflow",)]
