"""What `mypy --strict` sees of the store and its accessors. Read by mypy, never executed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, ItemsView, Iterator
from datetime import datetime, timedelta
from typing import Any

from typing_extensions import assert_type

import keepstate
from keepstate import (
    NEVER_EXPIRE,
    Asset,
    AssetScope,
    AssetStateStore,
    Attempt,
    BaseStoreBackend,
    CleanupReport,
    Entry,
    HistoryEntry,
    Settings,
    StateStore,
    TaskScope,
    TaskStateStore,
    Writer,
    connect,
)


def stores() -> None:
    """A store is opened by a URL or from the environment, and is a context manager."""
    with connect() as store:
        assert_type(store, StateStore)
    store = keepstate.connect("sqlite:///state.db", settings=Settings(default_retention_days=7))
    assert_type(store.task("d", "r", "t"), TaskStateStore)
    assert_type(
        store.task("d", "r", "t", map_index=1, try_number=1, attempt_id="x", item="y"), TaskStateStore
    )
    assert_type(store.asset("orders"), AssetStateStore)
    assert_type(store.asset(Asset("orders")), AssetStateStore)
    assert_type(store.asset(uri="s3://orders", writer=Writer("watcher")), AssetStateStore)
    assert_type(store.delete_run("d", "r"), int)
    assert_type(store.delete_asset("orders"), bool)
    assert_type(store.cleanup(dry_run=True), CleanupReport)
    assert_type(store.attempts("d", "r", "t"), list[Attempt])
    assert_type([run.run_id for run in store.runs()], list[str])
    assert_type([one.scope for one in store.task_instances("d", "r")], list[TaskScope])
    assert_type([asset.id for asset in store.assets()], list[int])
    store.task("d", "r")  # type: ignore[call-arg]
    store.task("d", "r", 7)  # type: ignore[arg-type]
    store.task("d", "r", "t", 7)  # type: ignore[call-arg]


def the_guides_four(tss: TaskStateStore) -> None:
    """With the guide's parameters."""
    assert_type(tss.get("k"), Any)
    assert_type(tss.get("k", default=0), Any)
    tss.set("k", 1)
    tss.set("k", {"pages": [1, 2, None], "name": "x"}, retention=timedelta(days=28))
    tss.set("k", "text", retention=NEVER_EXPIRE)
    tss.set("k", [1.5, True], retention=None)
    tss.delete("k")
    tss.clear()
    tss.set("k", None)  # type: ignore[arg-type]
    tss.set("k", {1, 2})  # type: ignore[arg-type]
    tss.set("k", datetime.now())  # type: ignore[arg-type]  # noqa: DTZ005 - refused for its type
    tss.set("k", 1, retention=30)  # type: ignore[arg-type]
    tss.set("k", 1, timedelta(days=1))  # type: ignore[call-arg]
    tss.set(1, 1)  # type: ignore[arg-type]


def beyond_the_guide(tss: TaskStateStore) -> None:
    """What its users ask for."""
    entry = tss.entry("k")
    assert_type(entry, Entry | None)
    if entry is not None:
        assert_type(entry.version, int)
        assert_type(entry.updated_at, datetime)
        assert_type(entry.expires_at, datetime | None)
        assert_type(entry.writer, Writer | None)
        tss.set("k", 2, if_version=entry.version)
    assert_type(tss.entries(), list[Entry])
    assert_type(tss.items(), ItemsView[str, Any])
    assert_type(tss.get_many(["a", "b"]), dict[str, Any])
    tss.set_many({"a": 1, "b": [2]}, retention=NEVER_EXPIRE)
    tss.update("pages", lambda pages: [*pages, 1], default=[], retention=timedelta(days=1))
    tss.increment("n", by=0.5)
    assert_type(tss.history("k", limit=3), list[HistoryEntry])
    tss.restore("k", 7)
    tss.clear(forget=True)
    tss.flush()
    tss.set_many([("a", 1)])  # type: ignore[arg-type]
    tss.set("k", 1, if_version="1")  # type: ignore[arg-type]


def checkpoints(tss: TaskStateStore) -> None:
    """The items keep their type, of an iterable and of a source that can seek."""
    for page in tss.checkpoint(range(300), every=10, min_interval=timedelta(seconds=5), total=300):
        assert_type(page, int)

    def rows(start: int) -> Iterator[dict[str, str]]:
        yield {"row": str(start)}

    for row in tss.checkpoint(rows, key="rows", min_interval=1.5):
        assert_type(row, dict[str, str])
    tss.checkpoint(7)  # type: ignore[arg-type]


async def twins(tss: TaskStateStore, asset: AssetStateStore) -> None:
    """Every verb may be awaited, with the same arguments and results."""
    assert_type(await tss.aget("k", default=0), Any)
    assert_type(await tss.aset("k", 1, retention=NEVER_EXPIRE, if_version=0), None)
    assert_type(await tss.adelete("k"), None)
    assert_type(await tss.aclear(forget=True), None)
    assert_type(await tss.aentry("k"), Entry | None)
    assert_type(await tss.aentries(), list[Entry])
    assert_type(await tss.aitems(), ItemsView[str, Any])
    assert_type(await tss.aget_many(["a"]), dict[str, Any])
    assert_type(await tss.aset_many({"a": 1}), None)
    assert_type(await tss.ahistory("k"), list[HistoryEntry])
    assert_type(await tss.arestore("k", 1), None)
    assert_type(await tss.aupdate("k", lambda value: value), Any)
    assert_type(await tss.aincrement("n"), Any)
    assert_type(await tss.aflush(), None)
    assert_type(await asset.aset("k", 1), None)
    await tss.aset("k", None)  # type: ignore[arg-type]
    await asset.aset("k", 1, retention=NEVER_EXPIRE)  # type: ignore[call-arg]

    async def pages() -> AsyncIterator[str]:
        yield "page"

    async for page in tss.acheckpoint(pages()):
        assert_type(page, str)
    async for number in tss.acheckpoint([1, 2]):
        assert_type(number, int)


def assets(asset: AssetStateStore) -> None:
    """The same verbs, without retention."""
    asset.set("k", {"watermark": "2026-11-29"}, if_version=0)
    asset.set_many({"a": 1})
    asset.increment("n")
    asset.update("k", lambda value: value, default={})
    assert_type(asset.get("k"), Any)
    asset.set("k", 1, retention=timedelta(days=1))  # type: ignore[call-arg]
    asset.set_many({"a": 1}, retention=timedelta(days=1))  # type: ignore[call-arg]
    asset.increment("n", retention=timedelta(days=1))  # type: ignore[call-arg]


def errors(tss: TaskStateStore) -> None:
    """Facts are typed attributes."""
    try:
        tss.set("k", 1, if_version=1)
    except keepstate.VersionConflictError as conflict:
        assert_type(conflict.actual, int)
        assert_type(conflict.key, str)
    except keepstate.StaleAttemptError as stale:
        assert_type(stale.try_number, int)
        assert_type(stale.current_try_number, int | None)
    except keepstate.ValueTooLargeError as large:
        assert_type((large.size, large.limit, large.path), tuple[int, int, str])
    except keepstate.AlreadyRunningError as running:
        assert_type((running.host, running.pid), tuple[str | None, int | None])
    except keepstate.BackendError as trouble:
        assert_type(trouble.address, str)


class OwnBackend(BaseStoreBackend):
    """A custom class is complete when it has these."""

    def get(self, scope: TaskScope | AssetScope, key: str, *, session: Any = None) -> str | None:
        """Return the text."""
        return None

    def set(
        self,
        scope: TaskScope | AssetScope,
        key: str,
        value: str,
        *,
        expires_at: datetime | None = None,
        session: Any = None,
    ) -> None:
        """Write it."""

    def delete(self, scope: TaskScope | AssetScope, key: str, *, session: Any = None) -> None:
        """Delete it."""

    def clear(
        self, scope: TaskScope | AssetScope, *, all_map_indices: bool = False, session: Any = None
    ) -> None:
        """Delete all."""

    async def aget(self, scope: TaskScope | AssetScope, key: str, *, session: Any = None) -> str | None:
        """Return the text."""
        return None

    async def aset(
        self,
        scope: TaskScope | AssetScope,
        key: str,
        value: str,
        *,
        expires_at: datetime | None = None,
        session: Any = None,
    ) -> None:
        """Write it."""

    async def adelete(self, scope: TaskScope | AssetScope, key: str, *, session: Any = None) -> None:
        """Delete it."""

    async def aclear(
        self, scope: TaskScope | AssetScope, *, all_map_indices: bool = False, session: Any = None
    ) -> None:
        """Delete all."""


OwnBackend()
BaseStoreBackend()  # type: ignore[abstract]


def coroutine(tss: TaskStateStore) -> Coroutine[Any, Any, None]:
    """A twin is a coroutine, so it may be given to whatever runs coroutines."""
    return tss.aset("k", 1)
