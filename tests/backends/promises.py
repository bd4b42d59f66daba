"""What a store keeps to on every kind of server, however that is set up."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.errors import StoreReadOnlyError
from keepstate.testing.contract.concurrency import together
from tests.backends.stores import open_url, task

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlalchemy.engine import Engine

    from keepstate.store import StateStore


@contextmanager
def lent(engine: Engine) -> Iterator[Engine]:
    """Close a caller's engine as a caller has to."""
    try:
        yield engine
    finally:
        engine.dispose()


def loses_nothing(url: Any, *, rounds: int) -> None:
    """Eight threads count on one key, and each writes a key of its own."""
    with open_url(url) as store:
        task(store).set("n", 0)

        def work(number: int) -> list[int]:
            tss = task(store, try_number=1)
            tss.set(f"own {number}", number)
            return [tss.increment("n") for _ in range(rounds)]

        sums = sorted(one for ones in together(work) for one in ones)
        assert sums == list(range(1, 8 * rounds + 1))
        assert len(task(store).items()) == 9


def undoes_what_fails(url: Any) -> None:
    """A write that fails leaves nothing."""
    with open_url(url) as store:
        task(store).set("n", 1)

        def fail(tx: Any) -> None:
            tx.run("DELETE FROM keepstate_entry", {})
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.backend._write(fail)  # type: ignore[attr-defined]
        assert task(store).get("n") == 1


def refuses_every_write(store: StateStore) -> None:
    """By either way of writing, for what the trouble is: the server is read-only."""
    for tss in (task(store), task(store, try_number=1)):
        assert tss.get("n") == 1
        for verb in (
            lambda tss=tss: tss.set("n", 2),
            lambda tss=tss: tss.set_many({"n": 2, "m": 2}),
            tss.clear,
        ):
            with pytest.raises(StoreReadOnlyError, match="name the primary server"):
                verb()
    with pytest.raises(StoreReadOnlyError):
        store.backend.check_writable()


def goes_by_bytes(store: StateStore, keys: Collection[str], names: Sequence[str]) -> None:
    """Keys, task ids and asset names are ordered and told apart by their bytes, so every backend lists them alike."""
    tss = task(store, try_number=1)
    for number, key in enumerate(keys):
        tss.set(key, number)
    assert list(dict(tss.items())) == sorted(keys, key=str.encode)
    assert [tss.get(key) for key in keys] == list(range(len(keys)))
    for name in names:
        store.asset(name).set("k", 1)
        task(store, name).set("k", 1)
    assert [info.name for info in store.assets()] == sorted(names, key=str.encode)
    found = [info.scope.task_id for info in store.task_instances("etl", "2026-11-29")]
    assert found == sorted([*names, "load"], key=str.encode)
