"""Changes to what has to be there already: a mistyped id changes nothing, and makes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from keepstate.backends.requests import Batch, Change, Clear, Delete, Put, Session
from keepstate.errors import ScopeNotFoundError, VersionConflictError
from keepstate.scope import AssetScope, TaskScope, Writer
from keepstate.testing.contract.ground import DAG, RUN, SCOPE, TASK, Ground, attempt, contents

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.backends.answers import Applied
    from keepstate.backends.requests import EntryScope
    from keepstate.store import StateStore

ASSET = AssetScope("orders")
API = Writer("api")


def _apply(store: StateStore, scope: EntryScope, *changes: Change, session: Session | None = None) -> Applied:
    return store.backend.apply(
        Batch(
            scope=scope,
            changes=changes or (Put("k", "2", None),),
            now=store.clock(),
            writer=API,
            session=session,
            known=True,
        )
    )


def _clear(
    store: StateStore,
    scope: EntryScope,
    *,
    forget: bool = False,
    all_map_indices: bool = False,
    session: Session | None = None,
) -> Applied:
    return store.backend.clear(
        Clear(
            scope,
            store.clock(),
            API,
            forget=forget,
            all_map_indices=all_map_indices,
            session=session,
            known=True,
        )
    )


class Known(Ground):
    """``Batch.known`` and ``Clear.known``."""

    @pytest.mark.parametrize("scope", [SCOPE, ASSET, AssetScope(uri="orders")], ids=["task", "name", "uri"])
    def test_what_is_not_known_is_not_made(self, store: StateStore, scope: EntryScope) -> None:
        """By no change, and it is in no list afterwards."""
        with pytest.raises(ScopeNotFoundError):
            _apply(store, scope)
        with pytest.raises(ScopeNotFoundError):
            _apply(store, scope, Put("k", "2", None, 0))
        with pytest.raises(ScopeNotFoundError):
            _apply(store, scope, Delete("k"))
        for forget in (False, True):
            with pytest.raises(ScopeNotFoundError):
                _clear(store, scope, forget=forget)
        assert store.runs() == []
        assert store.assets() == []

    def test_a_neighbour_does_not_make_it_known(self, store: StateStore) -> None:
        """Another map index, task, run, dag or case is another task instance."""
        attempt(store, 1).set("k", 1)
        for scope in (
            TaskScope(DAG, RUN, TASK, 0),
            TaskScope(DAG, RUN, "other"),
            TaskScope(DAG, "other", TASK),
            TaskScope("other", RUN, TASK),
            TaskScope(DAG.upper(), RUN, TASK),
        ):
            with pytest.raises(ScopeNotFoundError, match=str(scope).replace("[", r"\[")):
                _apply(store, scope)
        assert [info.scope for info in store.task_instances(DAG, RUN)] == [SCOPE]
        assert [info.run_id for info in store.runs()] == [RUN]

    def test_what_is_known_is_changed(self, store: StateStore) -> None:
        """A task instance from the first use on, a mere read included; empty or not."""
        attempt(store, 1).get("k")
        assert _apply(store, SCOPE).version == 1
        assert contents(store) == {"k": 2}
        assert _apply(store, SCOPE, Put("k", "3", None, 1), Put("l", "4", None, 0)).version == 2
        with pytest.raises(VersionConflictError):
            _apply(store, SCOPE, Put("k", "5", None, 1))
        _apply(store, SCOPE, Delete("absent"))
        _apply(store, SCOPE, Delete("l"))
        assert contents(store) == {"k": 3}
        _clear(store, SCOPE)
        _clear(store, SCOPE)
        assert contents(store) == {}
        _clear(store, SCOPE, forget=True)
        assert attempt(store).history("k") == []

    def test_a_known_asset_is_not_renamed(self, store: StateStore) -> None:
        """Whatever a change to it says beside the half by which it is known."""
        store.asset("orders", uri="s3://orders").set("k", 1)
        for scope in (AssetScope("orders", "s3://other"), AssetScope("other", "s3://orders")):
            _apply(store, scope)
            _clear(store, scope)
        assert [(info.name, info.uri) for info in store.assets()] == [("orders", "s3://orders")]

    def test_a_known_asset_is_changed_by_either_half_of_its_name(self, store: StateStore) -> None:
        """And keeps the other half."""
        asset = store.asset("orders", uri="s3://orders")
        asset.set("k", 1)
        _apply(store, AssetScope("orders"))
        _apply(store, AssetScope(uri="s3://orders"), Put("l", "3", None))
        assert dict(asset.items()) == {"k": 2, "l": 3}
        _clear(store, AssetScope("orders"))
        assert dict(asset.items()) == {}
        assert [(info.name, info.uri) for info in store.assets()] == [("orders", "s3://orders")]

    def test_a_deleted_run_is_not_known(self, store: StateStore) -> None:
        """It stays deleted, until somebody makes it again."""
        attempt(store, 1).set("k", 1)
        store.delete_run(DAG, RUN)
        changes: list[Callable[[], Applied]] = [
            lambda: _apply(store, SCOPE),
            lambda: _apply(store, SCOPE, Delete("k")),
            lambda: _clear(store, SCOPE),
            lambda: _clear(store, SCOPE, all_map_indices=True),
        ]
        for change in changes:
            with pytest.raises(ScopeNotFoundError):
                change()
        assert store.runs() == []
        attempt(store).set("k", 2)
        _apply(store, SCOPE, Put("l", "3", None))
        assert contents(store) == {"k": 2, "l": 3}

    def test_a_deleted_asset_is_not_known(self, store: StateStore) -> None:
        """Nor is it made again."""
        store.asset("orders").set("k", 1)
        store.delete_asset("orders")
        with pytest.raises(ScopeNotFoundError):
            _apply(store, ASSET)
        with pytest.raises(ScopeNotFoundError):
            _clear(store, ASSET)
        assert store.assets() == []

    @pytest.mark.parametrize("forget", [False, True])
    def test_one_known_map_index_is_enough_to_clear_all(self, store: StateStore, forget: bool) -> None:  # noqa: FBT001
        """The unmapped one need not be there, and is not made."""
        for index in (0, 1, 2):
            attempt(store, 1, map_index=index).set("k", index)
        store.task(DAG, RUN, "other").set("k", 1)
        _clear(store, SCOPE, all_map_indices=True, forget=forget)
        assert [attempt(store, map_index=index).get("k") for index in (0, 1, 2)] == [None] * 3
        past = [len(attempt(store, map_index=index).history("k")) for index in (0, 1, 2)]
        assert past == [0 if forget else 2] * 3
        left = [(info.scope.task_id, info.scope.map_index) for info in store.task_instances(DAG, RUN)]
        assert left == [(TASK, 0), (TASK, 1), (TASK, 2), ("other", -1)]
        with pytest.raises(ScopeNotFoundError):
            _clear(store, TaskScope(DAG, RUN, "absent"), all_map_indices=True)
        assert store.task(DAG, RUN, "other").get("k") == 1

    def test_a_known_one_is_cleared_with_its_siblings(self, store: StateStore) -> None:
        """Its version is the answer."""
        for index in (-1, 0):
            attempt(store, 1, map_index=index).set("k", index)
        attempt(store).set("l", 1)
        assert _clear(store, SCOPE, all_map_indices=True).version == 3
        assert [dict(attempt(store, map_index=index).items()) for index in (-1, 0)] == [{}, {}]

    def test_a_repeated_request_is_answered_as_before(self, store: StateStore) -> None:
        """Also when its scope has been deleted in between; what was refused is tried anew."""
        attempt(store, 1).set("k", 1)
        first = _apply(store, SCOPE, session=Session("s", 1))
        store.delete_run(DAG, RUN)
        again = _apply(store, SCOPE, session=Session("s", 1))
        assert (again.version, again.repeated) == (first.version, True)
        assert store.runs() == []
        with pytest.raises(ScopeNotFoundError):
            _apply(store, SCOPE, session=Session("s", 2))
        attempt(store, map_index=0).set("k", 1)
        cleared = _clear(store, SCOPE, all_map_indices=True, session=Session("s", 2))
        assert not cleared.repeated
        attempt(store, map_index=0).set("k", 2)
        assert _clear(store, SCOPE, all_map_indices=True, session=Session("s", 2)).repeated
        assert attempt(store, map_index=0).get("k") == 2
