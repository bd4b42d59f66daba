"""Ids and keys of the greatest length that is promised."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

import keepstate

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
