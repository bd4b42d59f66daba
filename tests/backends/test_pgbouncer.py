"""PostgreSQL by way of a PgBouncer in transaction mode, which hands each transaction to whichever connection is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

from keepstate.testing.contract.concurrency import together
from tests.backends.stores import open_url, task
from tests.support.pgbouncer import pgbouncer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepstate.store import StateStore

pytestmark = pytest.mark.slow

ROUNDS = 60


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    """A database behind one."""
    with pgbouncer(postgres_url) as url:
        yield url


def crowd(stores: list[StateStore]) -> None:
    """Have eight threads do the same statements in other orders, oftener than it takes until a driver prepares them."""

    def work(number: int) -> None:
        store = stores[number % len(stores)]
        own = task(store, f"task {number}", try_number=1)
        for turn in range(ROUNDS):
            for step in range(4):
                match (step + number) % 4:
                    case 0:
                        own.set("n", [number, turn])
                    case 1:
                        own.set_many({"a": turn, "b": -turn})
                    case 2:
                        assert (own.get("n") or [number])[0] == number
                    case _:
                        values = own.get_many(["a", "b"])
                        assert values.get("a", 0) == -values.get("b", 0)
            task(store, try_number=1).increment("of all")

    together(work)
    assert task(stores[0]).get("of all") == 8 * ROUNDS
    for number in range(8):
        own = task(stores[-1], f"task {number}")
        assert dict(own.items()) == {"n": [number, ROUNDS - 1], "a": ROUNDS - 1, "b": 1 - ROUNDS}


def test_clients_that_share_connections_don_t_get_each_other_s_statements(url: str) -> None:
    """Nothing is prepared there, as another client's statement of the same name might be what is then run."""
    with open_url(url) as one, open_url(url) as other:
        crowd([one, other])


def test_an_engine_handed_in_goes_through_one_too(url: str) -> None:
    """And prepares statements again for its owner afterwards."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), pool_size=8)
    try:
        with open_url(engine) as store:
            crowd([store])
        with engine.connect() as connection:
            assert connection.connection.dbapi_connection.prepare_threshold == 5  # type: ignore[union-attr]
    finally:
        engine.dispose()


def test_without_one_statements_are_prepared(postgres_url: str) -> None:
    """It is what makes a `set` as fast as it is."""
    with open_url(postgres_url) as store:
        for number in range(20):
            task(store, try_number=1).set("n", number)
        (lent,) = store.backend._db._warm  # type: ignore[attr-defined]
        assert lent.dbapi_connection.prepare_threshold == 5
        prepared = store.backend._db.query("SELECT COUNT(*) FROM pg_prepared_statements", {})  # type: ignore[attr-defined]
        assert prepared[0][0] > 0
