"""The guide's four verbs, and what a backend that has no more than these refuses."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from keepstate.backends.requests import Batch, Clear, Delete
from keepstate.errors import UnsupportedError
from keepstate.retention import NEVER_EXPIRE
from keepstate.scope import TaskScope, Writer
from keepstate.testing.contract.ground import DAG, RUN, TASK, Ground, attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.store import StateStore
    from keepstate.values import JsonInput


class FourVerbs(Ground):
    """``set``, ``get``, ``delete`` and ``clear``, of task instances and of assets."""

    def test_a_later_attempt_finds_what_an_earlier_one_stored(self, store: StateStore) -> None:
        """Entries outlive the attempt that wrote them: what all of this is for."""
        attempt(store, 1).set("remote_pid", 239, retention=timedelta(days=28))
        assert attempt(store, 2).get("remote_pid", default=None) == 239
        assert attempt(store).get("remote_pid") == 239

    def test_get_answers_the_default_where_there_is_nothing(self, store: StateStore) -> None:
        """``None`` by default, whatever is given otherwise; a stored false value is no absence."""
        tss = attempt(store, 1)
        assert tss.get("k") is None
        assert tss.get("k", 7) == 7
        assert tss.get("k", default="x") == "x"
        falsy: list[JsonInput] = [0, "", False, [], {}]
        for value in falsy:
            tss.set("k", value)
            assert tss.get("k", "default") == value

    def test_set_overwrites(self, store: StateStore) -> None:
        """The last value counts, of whatever type, with whatever retention."""
        tss = attempt(store, 1)
        tss.set("k", 1)
        tss.set("k", {"two": [2]}, retention=NEVER_EXPIRE)
        tss.set("k", "three", retention=timedelta(days=1))
        assert tss.get("k") == "three"

    def test_delete_removes_one_key_and_needs_none(self, store: StateStore) -> None:
        """Deleting an absent key does nothing, in a task instance that never wrote too."""
        tss = attempt(store, 1)
        tss.delete("k")
        tss.set("k", 1)
        tss.set("other", 2)
        tss.delete("k")
        tss.delete("k")
        assert tss.get("k") is None
        assert tss.get("other") == 2

    def test_clear_removes_all_of_one_task_instance(self, store: StateStore) -> None:
        """And nothing of any other: dag, run, task and map index each keep theirs. Clearing nothing does nothing."""
        others = [
            store.task("other", RUN, TASK),
            store.task(DAG, "other", TASK),
            store.task(DAG, RUN, "other"),
            store.task(DAG, RUN, TASK, map_index=0),
            store.task(DAG, RUN, TASK, map_index=1),
        ]
        for number, other in enumerate(others):
            other.set("k", number)
        tss = attempt(store, 1)
        tss.clear()
        tss.set("k", 1)
        tss.set("l", 2)
        tss.clear()
        tss.clear()
        assert tss.get("k") is None
        assert tss.get("l") is None
        assert [other.get("k") for other in others] == list(range(len(others)))
        tss.set("k", 3)
        assert tss.get("k") == 3

    def test_an_asset_has_entries_of_its_own(self, store: StateStore) -> None:
        """The same verbs, apart from task instances and from other assets."""
        one, other = store.asset("orders"), store.asset("customers")
        one.set("watermark", "2026-11-28")
        other.set("watermark", "2026-11-29")
        attempt(store, 1).set("watermark", 1)
        assert store.asset("orders").get("watermark") == "2026-11-28"
        one.delete("watermark")
        assert one.get("watermark", "none") == "none"
        one.set("a", 1)
        one.clear()
        assert one.get("a") is None
        assert other.get("watermark") == "2026-11-29"
        assert attempt(store).get("watermark") == 1


REFUSED: dict[str, Callable[[StateStore], object]] = {
    "entries": lambda store: attempt(store, 1).entries(),
    "items": lambda store: attempt(store, 1).items(),
    "get_many": lambda store: attempt(store, 1).get_many(["k", "l"]),
    "set_many": lambda store: attempt(store, 1).set_many({"k": 2, "l": 2}),
    "if_version": lambda store: attempt(store, 1).set("k", 2, if_version=0),
    "update": lambda store: attempt(store, 1).update("k", lambda _: 2),
    "increment": lambda store: attempt(store, 1).increment("k"),
    "history": lambda store: attempt(store, 1).history("k"),
    "restore": lambda store: attempt(store, 1).restore("k", 1),
    "forget": lambda store: attempt(store, 1).clear(forget=True),
    "assets": lambda store: store.assets(),
    "count_assets": lambda store: store.backend.count_assets(),
    "asset": lambda store: store.backend.asset(1, now=store.clock()),
    "delete_run": lambda store: store.delete_run(DAG, RUN),
    "delete_asset": lambda store: store.delete_asset("orders"),
    "known": lambda store: store.backend.apply(
        Batch(TaskScope(DAG, RUN, TASK), (Delete("k"),), store.clock(), Writer("api"), known=True)
    ),
    "clear known": lambda store: store.backend.clear(
        Clear(TaskScope(DAG, RUN, TASK), store.clock(), Writer("api"), known=True)
    ),
    "dry run": lambda store: store.cleanup(dry_run=True),
}


class Refusals(Ground):
    """What a custom class can't do is refused, and never half done."""

    @pytest.mark.parametrize("verb", REFUSED)
    def test_what_needs_more_than_the_four_verbs_is_refused(self, store: StateStore, verb: str) -> None:
        """With an ``UnsupportedError`` that names the class and what it serves; nothing changes."""
        attempt(store, 1).set("k", 1)
        with pytest.raises(UnsupportedError, match=r"custom backend .* serves get, set, delete, clear"):
            REFUSED[verb](store)
        assert attempt(store, 1).get("k") == 1

    def test_attempts_are_not_fenced(self, store: StateStore) -> None:
        """An earlier attempt still writes there, as in Airflow: the class is told no attempt."""
        attempt(store, 2).set("k", 2)
        attempt(store, 1).set("k", 1)
        assert attempt(store, 2).get("k") == 1

    def test_it_is_cleaned_up_by_its_own_rule(self, store: StateStore) -> None:
        """``cleanup`` asks the class, which tells no counts; what has not expired stays."""
        attempt(store, 1).set("k", 1)
        assert store.cleanup().total == 0
        assert attempt(store, 1).get("k") == 1
