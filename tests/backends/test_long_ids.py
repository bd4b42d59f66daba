"""Ids and keys of the greatest length that is promised."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

import keepstate
from keepstate.backends.requests import Batch, Put, Session
from keepstate.errors import InvalidInputError
from keepstate.scope import TaskScope, Writer
from keepstate.testing import ManualClock
from keepstate.wire.bounds import LONGEST_SESSION
from tests.support.detour import detour

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("url", ["sqlite", "postgres", "mysql"])
def test_ids_of_full_length_work(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """250 characters of four bytes each, in every id at once, that no compression makes shorter."""
    place = (
        f"sqlite:///{tmp_path / 'keepstate.db'}" if url == "sqlite" else request.getfixturevalue(f"{url}_url")
    )
    letters = random.Random(1)
    dag, run, task = ("".join(chr(letters.randrange(0x20000, 0x2A6D0)) for _ in range(250)) for _ in range(3))
    key = "".join(chr(letters.randrange(0x20000, 0x2A6D0)) for _ in range(512))
    with keepstate.connect(place) as store:
        store.task(dag, run, task, try_number=1).set(key, 1)
        assert store.task(dag, run, task).get(key) == 1
        assert [info.scope.task_id for info in store.task_instances(dag, run)] == [task]
        assert store.delete_run(dag, run) == 1


@pytest.mark.parametrize("url", ["sqlite", "postgres", "mysql"])
def test_the_longest_name_of_a_session_works_at_a_server(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With what the server puts before it; a longer one is refused as what it is."""
    place = (
        f"sqlite:///{tmp_path / 'keepstate.db'}" if url == "sqlite" else request.getfixturevalue(f"{url}_url")
    )
    clock = ManualClock()
    scope = TaskScope("etl", "2026-11-29", "load")

    def numbered(name: str) -> Batch:
        return Batch(scope, (Put("k", "1", None),), clock(), Writer("api"), session=Session(name, 1))

    with (
        keepstate.connect(place) as behind,
        detour(tmp_path, one_writer=url == "sqlite") as way,
        way.store(behind.backend, clock) as store,
    ):
        longest = "\U00020000" * LONGEST_SESSION
        assert store.backend.apply(numbered(longest)).version == 1
        assert store.backend.apply(numbered(longest)).repeated
        with pytest.raises(InvalidInputError, match="session must have 1 to 200 characters"):
            store.backend.apply(numbered(longest + "x"))
