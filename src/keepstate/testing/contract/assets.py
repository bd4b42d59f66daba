"""Assets: known by name, by uri, or by both; entries without retention, each with its writer."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.backends.requests import Behalf, Fence
from keepstate.errors import (
    InvalidIdError,
    InvalidTypeError,
    InvalidValueError,
    StaleAttemptError,
    VersionConflictError,
)
from keepstate.scope import Asset, TaskScope, Writer
from keepstate.testing.contract.ground import DAG, RUN, TASK, Ground, attempt, short
from keepstate.testing.contract.keys import LOOKALIKES

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.accessors import AssetStateStore
    from keepstate.store import StateStore
    from keepstate.testing import ManualClock

URI = "s3://bucket/orders/"
BOTH = ("orders", URI)
NAME_ALONE = ("orders", None)
URI_ALONE = (None, URI)


def _asset(store: StateStore, names: tuple[str | None, str | None]) -> AssetStateStore:
    return store.asset(names[0], uri=names[1])


class Assets(Ground):
    """The entries of an asset."""

    def test_an_asset_is_the_same_by_name_by_uri_and_by_both(self, store: StateStore) -> None:
        """Once both are known, each of them finds it, for every verb."""
        _asset(store, BOTH).set("k", 1)
        for names in (NAME_ALONE, URI_ALONE, BOTH):
            asset = _asset(store, names)
            assert asset.get("k") == 1
            assert dict(asset.items()) == {"k": 1}
            asset.set("k", 2)
            assert asset.increment("k", -1) == 1
            assert len(asset.history("k")) % 2 == 1
        assert store.asset(Asset("orders", URI)).get("k") == 1
        assert [(info.name, info.uri, info.entries) for info in store.assets()] == [("orders", URI, 1)]
        _asset(store, URI_ALONE).clear()
        assert _asset(store, NAME_ALONE).get("k") is None

    @pytest.mark.parametrize("half", [NAME_ALONE, URI_ALONE])
    def test_half_a_name_is_completed_later(
        self, store: StateStore, half: tuple[str | None, str | None]
    ) -> None:
        """What was known by one half alone keeps its entries when the other half becomes known."""
        _asset(store, half).set("k", 1)
        assert _asset(store, BOTH).get("k") == 1
        _asset(store, BOTH).set("l", 2)
        for names in (NAME_ALONE, URI_ALONE, BOTH):
            assert dict(_asset(store, names).items()) == {"k": 1, "l": 2}
        assert [(info.name, info.uri) for info in store.assets()] == [("orders", URI)]

    @pytest.mark.parametrize("half", [NAME_ALONE, URI_ALONE])
    def test_half_a_name_stands_for_the_other_half_too(
        self, store: StateStore, half: tuple[str | None, str | None]
    ) -> None:
        """As in Airflow, an asset of which only one half is given has it for both."""
        text = half[0] or half[1] or ""
        _asset(store, half).set("k", 1)
        assert store.asset(text).get("k") == 1
        assert store.asset(uri=text).get("k") == 1
        assert store.asset(Asset(text)).get("k") == 1
        assert [(info.name, info.uri) for info in store.assets()] == [(text, text)]

    @pytest.mark.parametrize(
        "give", [lambda store: store.asset(URI), lambda store: store.asset(uri="orders")]
    )
    def test_the_other_half_finds_an_asset_too(
        self, store: StateStore, give: Callable[[StateStore], AssetStateStore]
    ) -> None:
        """A uri given as a name, or a name as a uri, means the asset that has it, for reading and writing."""
        _asset(store, BOTH).set("k", 1)
        given = give(store)
        assert given.get("k") == 1
        given.set("k", 2)
        assert [version.value for version in given.history("k")] == [2, 1]
        assert _asset(store, BOTH).get("k") == 2
        assert [(info.name, info.uri) for info in store.assets()] == [("orders", URI)]

    def test_an_asset_may_be_renamed(self, store: StateStore) -> None:
        """The same uri under another name, or the same name at another uri, is the same asset."""
        _asset(store, BOTH).set("k", 1)
        store.asset("sales", uri=URI).set("l", 2)
        assert store.asset("sales").get("k") == 1
        store.asset("sales", uri="s3://elsewhere").set("m", 3)
        assert dict(store.asset(uri="s3://elsewhere").items()) == {"k": 1, "l": 2, "m": 3}
        assert [(info.name, info.uri) for info in store.assets()] == [("sales", "s3://elsewhere")]

    def test_two_assets_are_not_made_one(self, store: StateStore) -> None:
        """A name of one and a uri of another is refused, and both stay as they are."""
        store.asset("orders", uri="s3://orders").set("k", 1)
        store.asset("customers", uri="s3://customers").set("k", 2)
        mixed = store.asset("orders", uri="s3://customers")
        uses: list[Callable[[], object]] = [
            lambda: mixed.get("k"),
            lambda: mixed.set("k", 3),
            lambda: mixed.delete("k"),
            mixed.clear,
            lambda: mixed.history("k"),
        ]
        for use in uses:
            with pytest.raises(InvalidIdError, match="'customers'"):
                use()
        assert store.asset("orders").get("k") == 1
        assert store.asset("customers").get("k") == 2

    def test_names_that_look_alike_are_apart(self, store: StateStore) -> None:
        """Case, accents, normalization and spaces distinguish assets."""
        names = [name for name in LOOKALIKES if "\t" not in name]
        for number, name in enumerate(names):
            store.asset(name, uri=f"uri of {name}").set("k", number)
        assert [store.asset(name).get("k") for name in names] == list(range(len(names)))
        found = [store.asset(uri=f"uri of {name}").get("k") for name in names]
        assert found == list(range(len(names)))
        assert [info.name for info in store.assets()] == sorted(names)

    @pytest.mark.parametrize(
        "name", ["s3://bucket/a/../b?x=1#y", "/", "..", ".", "a\u00a0b", "🚀" * 1500, "n" * 1500], ids=short
    )
    def test_a_name_may_be_long_and_have_slashes(self, store: StateStore, name: str) -> None:
        """Up to 1,500 characters."""
        store.asset(name).set("k", 1)
        store.asset(uri=name).set("l", 2)
        assert dict(store.asset(name).items()) == {"k": 1, "l": 2}

    @pytest.mark.parametrize("name", ["", "n" * 1501, "a\nb", "a\0b", "\x7f", "\ud800", 7, b"n"], ids=short)
    def test_a_name_outside_the_rules_is_refused(self, store: StateStore, name: Any) -> None:
        """Of either half, with an ``InvalidIdError``; an asset without any is refused too."""
        with pytest.raises(InvalidIdError, match="an asset's name"):
            store.asset(name)
        with pytest.raises(InvalidIdError, match="an asset's uri"):
            store.asset("good", uri=name)
        with pytest.raises(InvalidIdError, match="a name or a uri"):
            store.asset()

    def test_entries_of_an_asset_do_not_expire(self, store: StateStore, clock: ManualClock) -> None:
        """They last until they are cleared or the asset is deleted; their older versions too."""
        asset = store.asset("orders")
        asset.set("k", 1)
        asset.set_many({"l": 1, "m": 1})
        asset.increment("n")
        asset.update("o", lambda _: 1)
        clock.advance(timedelta(days=3650))
        store.cleanup()
        assert dict(asset.items()) == {"k": 1, "l": 1, "m": 1, "n": 1, "o": 1}
        assert {entry.expires_at for entry in asset.entries()} == {None}
        asset.set("k", 2)
        assert [version.value for version in asset.history("k")] == [2, 1]
        with pytest.raises(TypeError):
            asset.set("k", 1, retention=timedelta(days=1))  # type: ignore[call-arg]

    def test_values_follow_the_same_rules(self, store: StateStore) -> None:
        """What a task may not store, an asset may not either."""
        asset = store.asset("orders")
        with pytest.raises(InvalidValueError):
            asset.set("k", None)  # type: ignore[arg-type]
        with pytest.raises(InvalidTypeError):
            asset.set_many({"k": (1,)})
        assert list(asset.items()) == []

    @pytest.mark.parametrize(
        "writer",
        [
            Writer("task", DAG, RUN, TASK, 3, try_number=2),
            Writer("watcher", name="orders-watcher"),
            Writer("api"),
            Writer("cli", name="né"),
        ],
        ids=lambda writer: writer.kind,
    )
    def test_each_write_records_its_writer(self, store: StateStore, writer: Writer) -> None:
        """A task with its four ids, a watcher, or a person; in the entry, and in the history of writes and removals."""
        asset = store.asset("orders", writer=writer)
        asset.set("k", 1)
        entry = store.asset("orders").entry("k")
        assert entry is not None
        assert entry.writer == writer
        store.asset("orders").increment("k")
        asset.delete("k")
        writers = [version.writer for version in store.asset("orders").history("k")]
        assert writers == [writer, Writer("api"), writer]

    def test_assets_are_listed_by_name(self, store: StateStore, clock: ManualClock) -> None:
        """Each with an integer id of its own, its entries, and when it last changed."""
        for name in ("b", "a", "c"):
            clock.advance(timedelta(hours=1))
            store.asset(name).set_many({"k": 1, "l": 2})
        store.asset("c").delete("k")
        found = store.assets()
        assert [(info.name, info.entries) for info in found] == [("a", 2), ("b", 2), ("c", 1)]
        assert len({info.id for info in found}) == 3
        assert all(type(info.id) is int for info in found)
        assert found[2].updated_at == clock.now
        assert store.assets(limit=1, offset=1) == found[1:2]
        assert store.assets(offset=2) == found[2:]
        store.asset("a", uri="s3://a").set("k", 3)
        assert [info.id for info in store.assets()] == [info.id for info in found]

    @pytest.mark.parametrize("names", [NAME_ALONE, URI_ALONE, BOTH])
    def test_a_deleted_asset_is_gone_with_its_history(
        self, store: StateStore, names: tuple[str | None, str | None]
    ) -> None:
        """However it is named; the answer says whether it was there. Made again, it is empty."""
        assert not store.delete_asset(names[0], uri=names[1])
        _asset(store, BOTH).set("k", 1)
        store.asset("other").set("k", 2)
        attempt(store, 1).set("k", 3)
        assert store.delete_asset(names[0], uri=names[1])
        assert not store.delete_asset(names[0], uri=names[1])
        assert [info.name for info in store.assets()] == ["other"]
        for known in (NAME_ALONE, URI_ALONE, BOTH):
            asset = _asset(store, known)
            assert (asset.get("k"), asset.history("k")) == (None, [])
        _asset(store, BOTH).set("l", 1)
        assert dict(_asset(store, NAME_ALONE).items()) == {"l": 1}
        assert store.asset("other").get("k") == 2
        assert attempt(store).get("k") == 3

    def test_an_asset_is_changed_in_the_name_of_a_current_attempt_alone(self, store: StateStore) -> None:
        """An attempt that a later one of its task superseded may read the asset, and change nothing of it."""
        scope = TaskScope(DAG, RUN, TASK)
        writer = Writer("task", DAG, RUN, TASK, -1, 1)
        first = store.asset("orders", writer=writer, behalf=Behalf(scope, Fence(1)))
        second = store.asset("orders", writer=writer, behalf=Behalf(scope, Fence(2)))
        first.set("k", 1)
        second.set("l", 2)
        verbs: list[Callable[[], object]] = [
            lambda: first.set("k", 3),
            lambda: first.set_many({"k": 3}),
            lambda: first.set("k", 3, if_version=1),
            lambda: first.update("k", lambda value: value + 1),
            lambda: first.increment("k"),
            lambda: first.delete("k"),
            lambda: first.restore("k", 1),
            first.clear,
            lambda: first.clear(forget=True),
        ]
        for verb in verbs:
            with pytest.raises(StaleAttemptError):
                verb()
        assert dict(first.items()) == {"k": 1, "l": 2}
        assert len(first.history("k")) == 1
        with pytest.raises(StaleAttemptError):
            attempt(store, 1).set("own", 1)

    @pytest.mark.parametrize("first", ["set", "clear"])
    @pytest.mark.parametrize("attempt_id", [None, "01900000-0000-7000-8000-000000000001"])
    def test_an_attempt_whose_run_was_deleted_changes_no_asset(
        self, store: StateStore, first: str, attempt_id: str | None
    ) -> None:
        """Nor does it bring its run back, once it has changed an asset before; with an id or without."""
        behalf = Behalf(TaskScope(DAG, RUN, TASK), Fence(1, attempt_id))
        late = store.asset("orders", behalf=behalf)
        late.set("k", 1) if first == "set" else late.clear()
        store.delete_run(DAG, RUN)
        store.asset("orders").set("k", 1)
        verbs: list[Callable[[], object]] = [
            lambda: late.set("k", 2),
            lambda: late.delete("k"),
            late.clear,
        ]
        for verb in verbs:
            with pytest.raises(StaleAttemptError, match="its run was deleted"):
                verb()
        assert store.asset("orders").get("k") == 1
        assert store.runs() == []

    def test_a_change_that_is_refused_begins_no_attempt(self, store: StateStore) -> None:
        """All or nothing, at the asset and at the task in whose name it comes."""
        store.asset("orders").set("k", 1)
        attempt(store, 1).set("own", 1)
        later = store.asset("orders", behalf=Behalf(TaskScope(DAG, RUN, TASK), Fence(2)))
        with pytest.raises(VersionConflictError):
            later.set("k", 2, if_version=7)
        assert [one.try_number for one in store.attempts(DAG, RUN, TASK)] == [1]
        attempt(store, 1).set("own", 2)
        later.set("k", 2, if_version=1)
        with pytest.raises(StaleAttemptError):
            attempt(store, 1).set("own", 3)
