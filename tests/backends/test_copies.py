"""A store of any content that goes to another database and back is what it was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepstate import copies, exports
from keepstate.backends.images import Image, Selection
from keepstate.connect import connect
from keepstate.errors import InvalidIdError, StaleAttemptError
from keepstate.settings import Settings
from keepstate.testing import ManualClock
from tests.contract.test_postgres import EMPTY

if TYPE_CHECKING:
    from pathlib import Path

    from keepstate.store import StateStore

Step = Callable[["StateStore", ManualClock], object]

JSON: st.SearchStrategy[Any] = st.recursive(
    st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abé💾", max_size=3), inner, max_size=3)
    ),
    max_leaves=4,
)
KEYS = st.sampled_from(["a", "b", "é/💾", "B"])
TASKS = st.tuples(
    st.sampled_from(["d", "D"]), st.sampled_from(["r1", "r2"]), st.just("t"), st.sampled_from([-1, 0])
)
NAMES = st.sampled_from([("x", None), ("x", "x:1"), (None, "y"), ("y", "x:1")])
BRIEF = timedelta(hours=2)


@st.composite
def steps(draw: Any) -> Step:
    """One thing that somebody does to a store."""
    (dag, run, task, index), key, value = draw(TASKS), draw(KEYS), draw(JSON)
    number, name, brief = draw(st.sampled_from([None, 1, 2, 3])), draw(NAMES), draw(st.booleans())

    def accessor(store: StateStore) -> Any:
        return store.task(dag, run, task, map_index=index, try_number=number)

    return draw(
        st.sampled_from(
            [
                lambda store, _: accessor(store).set(key, value, retention=BRIEF if brief else None),
                lambda store, _: accessor(store).set(key, value),
                lambda store, _: accessor(store).delete(key),
                lambda store, _: accessor(store).clear(forget=brief),
                lambda store, _: store.delete_run(dag, run),
                lambda store, _: store.asset(name[0], uri=name[1]).set(key, value),
                lambda store, _: store.delete_asset(name[0], uri=name[1]),
                lambda store, _: store.cleanup(),
                lambda _, clock: clock.advance(timedelta(hours=1)),
            ]
        )
    )


def images(store: StateStore) -> list[Image]:
    """Return what a store holds, but for where it was copied from."""
    return [replace(one, origin=None) for batch in copies.images_of(store, Selection()) for one in batch]


def shown(store: StateStore) -> list[Any]:
    """Return what people see of a store."""
    now = store.clock()
    found: list[Any] = [store.runs(limit=100), [replace(one, id=0) for one in store.assets()]]
    for run in store.runs(limit=100):
        for one in store.task_instances(run.dag_id, run.run_id):
            keys = [entry.key for entry in store.backend.read(one.scope, None, now=now).entries]
            found += [one, store.backend.read(one.scope, None, now=now), store.backend.attempts(one.scope)]
            found += [store.backend.history(one.scope, key, now=now) for key in ("a", "b", "é/💾", "B")]
            assert len(keys) == one.entries
    return found


def move(source: StateStore, target: StateStore, way: str) -> copies.Progress:
    """Copy a store into another, or take it there as an export."""
    batches = copies.images_of(source, Selection())
    if way == "export":
        lines = exports.lines_of(batches, version="1", now=1)
        batches = copies.in_batches(exports.images_in(f"{line}\n".encode() for line in lines))
    return copies.take_in(target, batches)


def play(store: StateStore, todo: list[Step], clock: ManualClock) -> None:
    """Do what there is to do; what a store refuses, it refuses."""
    for step in todo:
        with suppress(StaleAttemptError, InvalidIdError):
            step(store, clock)


@pytest.mark.parametrize("way", ["copy", "export"])
def test_there_and_back(tmp_path: Path, postgres_url: str, way: str) -> None:
    """SQLite to PostgreSQL to SQLite: each holds and shows the same; and going on in the last is going on in the first."""
    urls = [f"sqlite:///{tmp_path / 'first.db'}", postgres_url, f"sqlite:///{tmp_path / 'last.db'}"]
    connect(postgres_url, settings=Settings()).close()

    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(todo=st.lists(steps(), max_size=25), more=st.lists(steps(), max_size=5))
    def check(todo: list[Step], more: list[Step]) -> None:
        for file in tmp_path.glob("*.db*"):
            file.unlink()
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(EMPTY)
        clock = ManualClock()
        with ExitStack() as stack:
            first, middle, last = (
                stack.enter_context(connect(url, settings=Settings(history_limit=4), clock=clock))
                for url in urls
            )
            play(first, todo, clock)
            for source, target in ((first, middle), (middle, last)):
                done = move(source, target, way)
                assert (done.copied, done.left_alone) == (done.scopes, 0)
                assert move(source, target, way).copied == 0
                assert images(target) == images(source)
                assert shown(target) == shown(source)
            for step in more:
                play(first, [step], clock)
                # time passes once for both
                play(last, [step], ManualClock())
            assert shown(last) == shown(first)

    check()
