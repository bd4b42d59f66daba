"""What psycopg2 does otherwise than psycopg. `test_sqlalchemy_14.py` runs this, in the environment that has it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy.engine import make_url

from keepstate.errors import BackendUnavailableError, ConfigurationError, StoreReadOnlyError
from keepstate.testing.contract.concurrency import together
from tests.backends.proxy import Proxy
from tests.backends.stores import open_url, task
from tests.support.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    """A URL that names the driver."""
    return postgres_url.replace("postgresql://", "postgresql+psycopg2://")


def test_a_lost_answer_applies_once(url: str) -> None:
    """By each way of writing."""
    with Proxy(int(url.rpartition(":")[2].partition("/")[0])) as proxy, open_url(proxy.url(url)) as store:
        task(store).set("n", 0)
        for statement, write in (
            (b"WITH s AS", lambda: task(store).set("n", 1)),
            (b"COMMIT", lambda: task(store).increment("n")),
        ):
            cut: list[int] = []

            def lose(number: int, said: bytes, statement: bytes = statement, cut: list[int] = cut) -> bool:
                if cut or statement not in said:
                    return False
                cut.append(number)
                return True

            proxy.on_answer = lose
            write()
            assert cut
        entry = task(store).entry("n")
        assert entry is not None
        assert (entry.value, entry.version) == (2, 3)


def test_a_restart_loses_nothing() -> None:
    """Stopped, it is unavailable within the time; started, all is there."""
    with postgres_server() as server, server.database() as url, open_url(url, timeout=0.5) as store:
        task(store).set("n", 1)
        server.stop()
        began = time.monotonic()
        with pytest.raises(BackendUnavailableError):
            task(store).set("n", 2)
        assert time.monotonic() - began < 2
        server.start()
        assert task(store).increment("n") == 2


def test_configuration_errors_are_told_apart(url: str) -> None:
    """A wrong password, a missing database, and a server that is read-only."""
    parsed = make_url(url)
    for wrong in (parsed.set(password="wrong"), parsed.set(database="absent")):
        with pytest.raises(ConfigurationError, match="check user, password, database"):
            open_url(wrong.render_as_string(hide_password=False))
    with open_url(url) as store, psycopg.connect(url.replace("+psycopg2", ""), autocommit=True) as admin:
        task(store).set("n", 1)
        name = parsed.database
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")  # type: ignore[arg-type]
        try:
            with open_url(url) as read_only, pytest.raises(StoreReadOnlyError):
                task(read_only).set("n", 2)
        finally:
            admin.execute("SET default_transaction_read_only = off")
            admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")  # type: ignore[arg-type]


def test_threads_lose_nothing(url: str) -> None:
    """Eight on one key."""
    with open_url(url) as store:
        together(lambda _: [task(store, try_number=1).increment("n") for _ in range(10)])
        assert task(store).get("n") == 80
