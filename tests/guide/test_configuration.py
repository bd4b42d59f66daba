from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import keepstate
from keepstate import BaseStoreBackend, ConfigurationError, Settings, dag_run, task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from keepstate import StateStore
    from keepstate.testing import ManualClock

PREFIX = "AIRFLOW__STATE_STORE__"


def test_defaults_are_the_guides() -> None:
    """Nothing configured: 30 days, entries stay on success, no batch bound of the user's, 65,535 bytes, no custom class."""
    settings = Settings.load({})
    assert settings.backend is None
    assert settings.default_retention_days == 30
    assert settings.clear_on_success is False
    assert settings.state_cleanup_batch_size == 0
    assert settings.max_value_storage_bytes == 65_535


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("DEFAULT_RETENTION_DAYS", "7", "default_retention_days", 7),
        ("CLEAR_ON_SUCCESS", "True", "clear_on_success", True),
        ("STATE_CLEANUP_BATCH_SIZE", "500", "state_cleanup_batch_size", 500),
        ("MAX_VALUE_STORAGE_BYTES", "100", "max_value_storage_bytes", 100),
        ("BACKEND", "my.Backend", "backend", "my.Backend"),
    ],
)
def test_each_option_is_read_from_its_variable(name: str, text: str, attribute: str, value: Any) -> None:
    """The five options have the guide's variables."""
    assert getattr(Settings.load({PREFIX + name: text}), attribute) == value


def test_a_bad_value_is_refused_by_name() -> None:
    """An option that makes no sense is an error that names the variable, the value and what is allowed."""
    with pytest.raises(
        ConfigurationError,
        match="AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS is 'maybe', but must be True or False",
    ):
        Settings.load({PREFIX + "CLEAR_ON_SUCCESS": "maybe"})


def test_without_a_batch_size_everything_due_goes(
    open_store: Callable[..., StateStore], clock: ManualClock
) -> None:
    """With 0, one call removes all matching rows, however many."""
    with open_store(state_cleanup_batch_size=0) as store:
        values = {f"key {number}": number for number in range(2_500)}
        store.task("etl", "2026-11-29", "load").set_many(values, retention=timedelta(days=1))
        clock.advance(timedelta(days=2))
        assert store.cleanup().entries == 2_500


def test_a_limit_of_zero_is_no_limit(
    open_store: Callable[..., StateStore], caplog: pytest.LogCaptureFixture
) -> None:
    """With 0 no size is warned about, and history keeps the value."""
    with open_store(max_value_storage_bytes=0) as store:
        tss = store.task("etl", "2026-11-29", "load", try_number=1)
        tss.set("large", "x" * 200_000)
        assert tss.history("large")[0].value == "x" * 200_000
    assert not caplog.records


def test_a_dotted_path_names_the_class_that_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class with Airflow's method names, named by the option, gets every read and write."""
    (tmp_path / "my_backend.py").write_text(
        "from keepstate import BaseStoreBackend\n"
        "KEPT = {}\n"
        "class Backend(BaseStoreBackend):\n"
        "    def get(self, scope, key, *, session=None): return KEPT.get((scope.task_id, key))\n"
        "    def set(self, scope, key, value, *, expires_at=None, session=None): KEPT[scope.task_id, key] = value\n"
        "    def delete(self, scope, key, *, session=None): KEPT.pop((scope.task_id, key), None)\n"
        "    def clear(self, scope, *, all_map_indices=False, session=None): KEPT.clear()\n"
        "    async def aget(self, *args, **kwargs): ...\n"
        "    async def aset(self, *args, **kwargs): ...\n"
        "    async def adelete(self, *args, **kwargs): ...\n"
        "    async def aclear(self, *args, **kwargs): ...\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(PREFIX + "BACKEND", "my_backend.Backend")
    with keepstate.connect() as store:
        tss = store.task("etl", "2026-11-29", "load", try_number=1)
        tss.set("one", {"a": 1})
        tss.set("two", 2)
        assert tss.get("one") == {"a": 1}
        import my_backend  # type: ignore[import-not-found]

        assert my_backend.KEPT == {("load", "one"): '{"a":1}', ("load", "two"): "2"}
        tss.delete("one")
        assert tss.get("one", "gone") == "gone"
        tss.clear()
        assert my_backend.KEPT == {}


def test_the_options_do_not_touch_assets(open_store: Callable[..., StateStore], clock: ManualClock) -> None:
    """A default retention of a day, and clearing on success, leave the entries of a task's asset alone."""

    @task(outlets=["orders"])
    def load(task_state_store: Any = None, asset_state_store: Any = None) -> None:
        task_state_store.set("page", 40)
        asset_state_store.set("loaded_to", 40)

    with open_store(default_retention_days=1, clear_on_success=True) as store:
        with dag_run("etl", "2026-11-29", store=store):
            load()
        assert dict(store.task("etl", "2026-11-29", "load").items()) == {}
        clock.advance(timedelta(days=100))
        store.cleanup()
        assert store.asset("orders").get("loaded_to") == 40


def test_the_base_class_has_the_methods_of_airflows() -> None:
    """A custom class is to have the four methods and their awaitable twins, and may have a cleanup."""
    four = {"get", "set", "delete", "clear"}
    assert BaseStoreBackend.__abstractmethods__ == four | {f"a{verb}" for verb in four}
