"""keepstate as the state store of Airflow 3.3: ``[state_store] backend = keepstate.integrations.airflow.StoreBackend``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.state.metastore import MetastoreBackend

from keepstate.backends.requests import Batch, Clear, Delete, Fence, Put
from keepstate.clock import to_micros
from keepstate.errors import InvalidIdError, InvalidValueError, KeepstateError, UnsupportedError
from keepstate.integrations.airflow import committing, configuration, metadata
from keepstate.scope import AssetScope, TaskScope, Writer
from keepstate.values import check_key, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from types import ModuleType

    from keepstate.backends.requests import Change, EntryScope
    from keepstate.store import StateStore


class StoreBackend(MetastoreBackend):  # type: ignore[misc]
    """Keeps the state of tasks and assets in keepstate's tables: with history, and without what has expired.

    They are in Airflow's metadata database, or at ``KEEPSTATE_URL``. It is a subclass of Airflow's own backend, as Airflow
    tells no other one who writes to an asset. Changes are committed when a method returns, whatever becomes of ``session``;
    only what Airflow clears on success waits for the commit of that, where both are in one SQLite file.
    """

    # ------------------------------------------------------------------------------------------ Airflow's

    def get(self, scope: Any, key: str, *, session: Any = None) -> str | None:
        """Return the JSON text under ``key``, or ``None`` where there is none or it has expired."""
        store, (place, fence, writer) = metadata.store(), _who(scope, session)
        found = store.backend.read(
            place,
            [check_key(key)],
            now=store.clock(),
            fence=fence,
            writer=writer,
            history=store.history_policy,
        )
        return found.entries[0].text if found.entries else None

    def set(
        self, scope: Any, key: str, value: str, *, expires_at: datetime | None = None, session: Any = None
    ) -> None:
        """Write or overwrite the JSON text under ``key``; it is gone from ``expires_at`` on."""
        expiry = None if expires_at is None else to_micros(expires_at)
        _change(_who(scope, session), _put(key, value, expiry))

    def delete(self, scope: Any, key: str, *, session: Any = None) -> None:
        """Delete one key; an absent one is fine."""
        _change(_who(scope, session), Delete(check_key(key)))

    def clear(self, scope: Any, *, all_map_indices: bool = False, session: Any = None) -> None:
        """Delete every key of the scope, of all its map indices if asked; the history keeps what they held."""
        place, fence, writer = _who(scope, session)
        store = metadata.store()
        request = Clear(
            scope=place,
            now=store.clock(),
            writer=writer,
            # whoever clears all indices is no attempt of one of them
            fence=None if all_map_indices else fence,
            history=store.history_policy,
            all_map_indices=all_map_indices,
        )
        committing.now_or_after(session, lambda: store.backend.clear(request))

    def set_asset_state_store(
        self,
        scope: Any,
        key: str,
        value: str,
        *,
        kind: Any,
        dag_id: str | None = None,
        run_id: str | None = None,
        task_id: str | None = None,
        map_index: int | None = None,
        session: Any = None,
    ) -> None:
        """Write an entry of an asset, with who wrote it."""
        kind.validate_writer_fields(dag_id, run_id, task_id, map_index)
        place = _asset(scope, session)
        writer = Writer(str(getattr(kind, "value", kind)), dag_id, run_id, task_id, map_index)
        _change((place, None, writer), _put(key, value, None))

    async def aget(self, scope: Any, key: str, *, session: Any = None) -> str | None:
        """Awaitable twin of `get`."""
        found: str | None = await _beside(self.get, session, scope, key)
        return found

    async def aset(
        self, scope: Any, key: str, value: str, *, expires_at: datetime | None = None, session: Any = None
    ) -> None:
        """Awaitable twin of `set`."""
        await _beside(self.set, session, scope, key, value, expires_at=expires_at)

    async def adelete(self, scope: Any, key: str, *, session: Any = None) -> None:
        """Awaitable twin of `delete`."""
        await _beside(self.delete, session, scope, key)

    async def aclear(self, scope: Any, *, all_map_indices: bool = False, session: Any = None) -> None:
        """Awaitable twin of `clear`."""
        await _beside(self.clear, session, scope, all_map_indices=all_map_indices)

    async def aset_asset_state_store(
        self, scope: Any, key: str, value: str, *, session: Any = None, **writer: Any
    ) -> None:
        """Awaitable twin of `set_asset_state_store`."""
        await _beside(self.set_asset_state_store, session, scope, key, value, **writer)

    def cleanup(self) -> None:
        """Remove what has expired, from every table of keepstate's."""
        metadata.store().cleanup()

    def _summary_dry_run(self) -> dict[str, list[Any]]:
        """Return the entries that a cleanup would remove, as Airflow prints them; a keepstate server removes its own."""
        try:
            tables = metadata.tables()
        except UnsupportedError:
            return {"expired": []}
        try:
            return {"expired": tables.expired(now=metadata.store().clock())}
        finally:
            tables.close()


def clear_when_marked(module: ModuleType) -> None:
    """Have Airflow clear here, and not in its own table, when a person marks success under ``clear_on_success``."""
    from airflow.state import get_state_backend

    if configuration.load().backend == configuration.BACKEND and "_get_db_backend" in module.__dict__:
        module.__dict__["_get_db_backend"] = get_state_backend


def _put(key: str, value: str, expires_at: int | None) -> Put:
    """Return a change to what may be stored: Airflow checks little of it. Raises what keepstate's own accessors raise."""
    check_key(key)
    try:
        text = encode(decode(value))
    except KeepstateError:
        raise
    except ValueError as exc:
        raise InvalidValueError(
            f"the value of {key!r:.80} is no JSON to store: {exc}", path="value"
        ) from None
    return Put(key, text, expires_at)


Who = tuple["EntryScope", "Fence | None", Writer]


def _change(who: Who, change: Change) -> None:
    place, fence, writer = who
    store: StateStore = metadata.store()
    store.backend.apply(
        Batch(place, (change,), now=store.clock(), writer=writer, fence=fence, history=store.history_policy)
    )


def _who(scope: Any, session: Any) -> Who:
    """Return the scope in our words, and in whose name a call comes: Airflow asks for a task only on its behalf.

    Airflow's scopes come as two classes, so their attributes are what tells them.
    """
    if not hasattr(scope, "dag_id"):
        return _asset(scope, session), None, Writer("api")
    place = TaskScope(scope.dag_id, scope.run_id, scope.task_id, scope.map_index)
    fence = _attempt(place, session)
    return place, fence, Writer("task", try_number=fence.try_number if fence else None)


def _attempt(place: TaskScope, session: Any) -> Fence | None:
    """Return the task instance's current attempt: a run made again under the same id is told by it, and starts empty."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select

    query = select(TaskInstance.id, TaskInstance.try_number).where(
        TaskInstance.dag_id == place.dag_id,
        TaskInstance.run_id == place.run_id,
        TaskInstance.task_id == place.task_id,
        TaskInstance.map_index == place.map_index,
    )
    row = _first(query, session)
    return None if row is None or row.try_number < 1 else Fence(row.try_number, str(row.id))


def _asset(scope: Any, session: Any) -> AssetScope:
    if scope.asset_id is None:
        return AssetScope(scope.name, scope.uri)
    from airflow.models.asset import AssetModel
    from sqlalchemy import select

    row = _first(select(AssetModel.name, AssetModel.uri).where(AssetModel.id == scope.asset_id), session)
    if row is None:
        raise InvalidIdError(f"Airflow knows no asset {scope.asset_id}")
    return AssetScope(row.name, row.uri)


def _first(query: Any, session: Any) -> Any:
    if session is not None:
        return session.execute(query).first()
    from airflow.utils.session import create_session

    with create_session(scoped=False) as own:
        return own.execute(query).first()


async def _beside(method: Callable[..., Any], session: Any, *args: Any, **given: Any) -> Any:
    """Run a method on a thread. An asynchronous session is of no use there, so it gets one of its own."""
    del session
    return await asyncio.to_thread(method, *args, **given)
