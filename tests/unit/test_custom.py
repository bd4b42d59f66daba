"""Custom classes: found by their dotted path, handed what Airflow hands them, and refused what they can't do."""

from __future__ import annotations

import asyncio
import inspect
import sys
import types
from datetime import timedelta
from typing import Any

import pytest

from keepstate import AssetScope, BaseStoreBackend, TaskScope
from keepstate.backends.answers import Outcome
from keepstate.backends.custom import CustomBackend, load
from keepstate.backends.memory import MemoryBackend
from keepstate.backends.requests import Begin, Clear, End, Fence, Holder
from keepstate.errors import ConfigurationError
from keepstate.retention import NEVER_EXPIRE
from keepstate.scope import Writer
from keepstate.settings import Settings
from keepstate.store import StateStore
from keepstate.testing import ManualClock
from tests.support.custom_class import DictStore

SCOPE = TaskScope("d", "r", "t", 3)


def wrapped(inner: Any) -> CustomBackend:
    """Return an instance in use, whose runs and attempts are noted in memory."""
    return CustomBackend(inner, keeper=MemoryBackend)


@pytest.fixture
def inner() -> DictStore:
    """The user's instance."""
    return DictStore()


@pytest.fixture
def clock() -> ManualClock:
    """Time, which a test moves."""
    return ManualClock()


@pytest.fixture
def store(inner: DictStore, clock: ManualClock) -> StateStore:
    """A store over it."""
    return StateStore(wrapped(inner), settings=Settings(), clock=clock)


def test_the_class_gets_scope_text_and_expiry(
    inner: DictStore, store: StateStore, clock: ManualClock
) -> None:
    """JSON text under a scope and a key, with the moment that the worker computed, in UTC; ``None`` is never."""
    tss = store.task("d", "r", "t", map_index=3, try_number=1)
    tss.set("a", {"page": "é"})
    tss.set("b", 1, retention=timedelta(hours=1))
    tss.set("c", 1, retention=NEVER_EXPIRE)
    assert inner.entries == {
        (SCOPE, "a"): ('{"page":"é"}', clock.now + timedelta(days=30)),
        (SCOPE, "b"): ("1", clock.now + timedelta(hours=1)),
        (SCOPE, "c"): ("1", None),
    }
    moment = inner.entries[SCOPE, "b"][1]
    assert moment is not None
    assert moment.tzname() == "UTC"


def test_the_class_gets_assets_as_they_are_named(inner: DictStore, store: StateStore) -> None:
    """Without expiry."""
    store.asset("orders", uri="s3://orders").set("k", 1)
    assert inner.entries == {(AssetScope("orders", "s3://orders"), "k"): ("1", None)}


def test_what_the_class_stored_itself_is_read(inner: DictStore, store: StateStore) -> None:
    """Whoever wrote it: entries that Airflow wrote through the class are found."""
    inner.set(SCOPE, "k", '{"job": 7}')
    assert store.task("d", "r", "t", map_index=3).get("k") == {"job": 7}


def test_clearing_all_map_indices_is_the_classs(inner: DictStore) -> None:
    """It is told so."""
    told: list[bool] = []
    inner.clear = lambda scope, *, all_map_indices=False, session=None: told.append(all_map_indices)  # type: ignore[method-assign]
    wrapped(inner).clear(Clear(SCOPE, 0, Writer("api"), all_map_indices=True))
    assert told == [True]


def test_a_checkpoint_goes_through_the_class(inner: DictStore, store: StateStore) -> None:
    """Its position is an entry like any other."""
    assert list(store.task("d", "r", "t", map_index=3, try_number=1).checkpoint([1, 2])) == [1, 2]
    assert '"position":2' in inner.entries[SCOPE, "position"][0]


def test_the_classs_own_errors_come_through(inner: DictStore, store: StateStore) -> None:
    """As they are: keepstate knows nothing of its place."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise ConnectionResetError("gone")

    inner.set = fail  # type: ignore[method-assign]
    with pytest.raises(ConnectionResetError, match="gone"):
        store.task("d", "r", "t").set("k", 1)


def test_cleanup_and_close_are_the_classs_own(inner: DictStore, store: StateStore) -> None:
    """Cleanup calls it once; a class that has a ``close`` is closed, one that has none is not missed."""
    store.cleanup()
    assert inner.cleanups == 1
    store.close()
    closed: list[int] = []
    inner.close = lambda: closed.append(1)  # type: ignore[attr-defined]
    store.close()
    assert closed == [1]


def test_one_warning_says_what_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    """When the class is taken into use, and not with every call."""
    store = StateStore(wrapped(DictStore()), settings=Settings(), clock=ManualClock())
    tss = store.task("d", "r", "t", try_number=1)
    for number in range(3):
        tss.set("k", number)
        tss.get("k")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "DictStore" in record.getMessage()
    assert "no fencing" in record.getMessage()


def test_the_base_has_the_methods_of_airflows() -> None:
    """The same names and parameters, so that a class written for one works with the other."""
    expected = {
        "get": ["scope", "key", "session"],
        "set": ["scope", "key", "value", "expires_at", "session"],
        "delete": ["scope", "key", "session"],
        "clear": ["scope", "all_map_indices", "session"],
        "cleanup": [],
    }
    for name, parameters in expected.items():
        assert list(inspect.signature(getattr(BaseStoreBackend, name)).parameters)[1:] == parameters
        if name != "cleanup":
            twin = getattr(BaseStoreBackend, f"a{name}")
            assert inspect.iscoroutinefunction(twin)
            assert list(inspect.signature(twin).parameters)[1:] == parameters
    for name in ("get", "set", "delete", "clear", "aget", "aset", "adelete", "aclear"):
        assert name in BaseStoreBackend.__abstractmethods__


def test_the_base_cleans_up_nothing_unless_told() -> None:
    """``cleanup`` may be left out."""

    class Bare(DictStore):
        cleanup = BaseStoreBackend.cleanup

    assert StateStore(wrapped(Bare()), settings=Settings(), clock=ManualClock()).cleanup().total == 0


def test_the_example_class_has_working_twins() -> None:
    """As Airflow awaits them."""

    async def work() -> tuple[str | None, str | None]:
        inner = DictStore()
        await inner.aset(SCOPE, "k", "1")
        before = await inner.aget(SCOPE, "k")
        await inner.adelete(SCOPE, "k")
        await inner.aclear(SCOPE)
        return before, await inner.aget(SCOPE, "k")

    assert asyncio.run(work()) == ("1", None)


# ---------------------------------------------------------------------------------- a class written for Airflow


@pytest.fixture
def airflow_module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """What stands beside Airflow's base class: scope classes of its own."""
    code = """
from dataclasses import dataclass

@dataclass(frozen=True)
class TaskScope:
    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1

@dataclass(frozen=True)
class AssetScope:
    name: str | None = None
    uri: str | None = None

class BaseStoreBackend:
    pass
"""
    module = types.ModuleType("airflow_like_state")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code, "airflow_like_state", "exec"), module.__dict__)
    return module


def test_a_class_derived_from_airflows_base_gets_airflows_scopes(airflow_module: types.ModuleType) -> None:
    """It may match on them with ``isinstance``, as Airflow's documentation shows."""
    seen: list[Any] = []

    class Written(airflow_module.BaseStoreBackend):  # type: ignore[misc, name-defined]
        def get(self, scope: Any, key: str, *, session: Any = None) -> str | None:
            seen.append(scope)
            return None

        def set(
            self, scope: Any, key: str, value: str, *, expires_at: Any = None, session: Any = None
        ) -> None:
            seen.append(scope)

        def delete(self, scope: Any, key: str, *, session: Any = None) -> None:
            seen.append(scope)

        def clear(self, scope: Any, *, all_map_indices: bool = False, session: Any = None) -> None:
            seen.append(scope)

    store = StateStore(wrapped(Written()), settings=Settings(), clock=ManualClock())  # type: ignore[arg-type]
    tss, asset = store.task("d", "r", "t", map_index=3), store.asset("orders")
    for accessor in (tss, asset):
        accessor.get("k")
        accessor.set("k", 1)
        accessor.delete("k")
        accessor.clear()
    assert (
        seen == [airflow_module.TaskScope("d", "r", "t", 3)] * 4 + [airflow_module.AssetScope("orders")] * 4
    )
    assert {type(scope) for scope in seen} == {airflow_module.TaskScope, airflow_module.AssetScope}


# ---------------------------------------------------------------------------------------------- by dotted path


class NeedsArguments(DictStore):
    def __init__(self, bucket: str) -> None:
        super().__init__()


class Incomplete:
    def get(self) -> None: ...

    def set(self) -> None: ...


class Abstract(BaseStoreBackend):
    pass


class Failing(DictStore):
    def __init__(self) -> None:
        raise OSError("no bucket")


not_a_class = DictStore()


def test_a_class_is_loaded_by_its_path() -> None:
    """And made without arguments."""
    backend = load("tests.support.custom_class.DictStore", keeper=MemoryBackend)
    assert isinstance(backend.inner, DictStore)
    assert backend.address == "custom:tests.support.custom_class.DictStore"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("MyBackend", "must be a dotted path like 'my_package.my_module.MyBackend'"),
        ("", "must be a dotted path"),
        (".MyBackend", "must be a dotted path"),
        ("tests.", "must be a dotted path"),
        ("no_such_package.MyBackend", "can't be imported: No module named 'no_such_package'"),
        ("tests.support.custom_class.Nope", "can't be imported"),
        ("..relative.MyBackend", "must be a dotted path"),
        ("tests.unit.test_custom.Incomplete", "it lacks delete, clear"),
        ("tests.unit.test_custom.not_a_class", "is no class"),
        ("os.path.join", "is no class"),
        ("tests.unit.test_custom.NeedsArguments", "can't be made without arguments"),
        ("tests.unit.test_custom.Abstract", "can't be made without arguments"),
    ],
)
def test_a_path_that_cannot_be_used_names_the_setting(path: str, words: str) -> None:
    """The variable, its value, and what is wrong with it."""
    with pytest.raises(ConfigurationError) as caught:
        load(path, keeper=MemoryBackend)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"AIRFLOW__STATE_STORE__BACKEND is {path!r}")
    assert vars(caught.value) == {"variable": "AIRFLOW__STATE_STORE__BACKEND", "value": path}


def test_an_error_of_the_classs_own_comes_through() -> None:
    """What its constructor raises is its author's to read."""
    with pytest.raises(OSError, match="no bucket"):
        load("tests.unit.test_custom.Failing", keeper=MemoryBackend)


# -------------------------------------------------------------------------------------------- runs and attempts


def test_runs_and_attempts_are_noted_beside_the_class(inner: DictStore, clock: ManualClock) -> None:
    """In keepstate's own store, opened when the local runtime first asks; a success may clear what the class holds."""
    opened: list[MemoryBackend] = []

    def keeper() -> MemoryBackend:
        opened.append(MemoryBackend())
        return opened[0]

    store = StateStore(CustomBackend(inner, keeper=keeper), settings=Settings(), clock=clock)
    tss = store.task("d", "r", "t", map_index=3, try_number=1)
    tss.set("k", 1)
    assert opened == []
    begun = store.backend.begin(Begin(SCOPE, "one", Holder("host", 1, "then"), clock(), 0))
    fence = Fence(begun.try_number, "one")
    store.backend.beat(SCOPE, fence, now=clock())
    assert [one.state for one in store.attempts("d", "r", "t", map_index=3)] == ["running"]
    assert [info.run_id for info in store.runs()] == ["r"]
    assert [info.scope for info in store.task_instances("d", "r")] == [SCOPE]
    store.backend.end(End(SCOPE, fence, "failed", clock()))
    assert tss.get("k") == 1
    begun = store.backend.begin(Begin(SCOPE, "two", Holder("host", 2, "then"), clock(), 0))
    store.backend.end(End(SCOPE, Fence(begun.try_number, "two"), "success", clock(), result="7", clear=True))
    assert store.backend.outcome(SCOPE) == Outcome(2, "7", None)
    assert inner.entries == {}
    assert len(opened) == 1
    closed: list[int] = []

    def close() -> None:
        raise RuntimeError("mine")

    inner.close = close  # type: ignore[attr-defined]
    opened[0].close = lambda: closed.append(1)  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="mine"):
        store.close()
    assert closed == [1]
