"""A run is deleted, or gets a task instance, while a cleanup is under way: what the cleanup had seen is no longer so."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.connect import connect
from keepstate.errors import StaleAttemptError
from keepstate.settings import Settings
from keepstate.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from keepstate.store import StateStore

SCOPE = ("etl", "2026-11-29", "load")
FIRST = "01900000-0000-7000-8000-000000000001"
STEPS = 8
"""More than the statements and transactions that one of these cleanups takes."""


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state.db'}"
    return str(request.getfixturevalue(f"{request.param}_url"))


def during(store: StateStore, monkeypatch: pytest.MonkeyPatch, moment: int, act: Any) -> None:
    """Have something happen before the statement or transaction of that number."""
    database: Any = store.backend._db  # type: ignore[attr-defined]
    left = [moment]

    def counted(do_it: Any) -> Any:
        def then(*given: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                act()
            return do_it(*given)

        return then

    for name in ("query", "transaction"):
        monkeypatch.setattr(database, name, counted(getattr(database, name)))


@pytest.mark.parametrize("moment", range(1, STEPS + 1))
@pytest.mark.parametrize("holds", ["an entry", "nothing"])
def test_an_attempt_of_a_run_that_is_deleted_meanwhile_is_late(
    url: str, holds: str, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as long as any attempt of a deleted run is, also if the cleanup was about to look at its task instance."""
    clock = ManualClock()
    settings = Settings(default_retention_days=1)
    with connect(url, settings=settings, clock=clock) as store, connect(url, clock=clock) as other:
        tss = store.task(*SCOPE, try_number=1, attempt_id=FIRST)
        if holds == "an entry":
            tss.set("k", 1, retention=timedelta(hours=1))
            clock.advance(timedelta(hours=2))
        else:
            # looked at after a day, and used since
            tss.get("k")
            clock.advance(timedelta(hours=23))
            store.task(*SCOPE, try_number=2).get("k")
            clock.advance(timedelta(hours=2))
        during(store, monkeypatch, moment, lambda: other.delete_run(*SCOPE[:2]))
        store.cleanup()
        monkeypatch.undo()
        other.delete_run(*SCOPE[:2])
        clock.advance(timedelta(days=2))
        store.cleanup()
        with pytest.raises(StaleAttemptError):
            other.task(*SCOPE, try_number=1, attempt_id=FIRST).set("k", 2)
        assert other.runs() == []


@pytest.mark.parametrize("moment", range(1, STEPS + 1))
def test_a_run_that_gets_a_task_instance_meanwhile_stays(
    url: str, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it was about to go, as it had idled."""
    clock = ManualClock()
    settings = Settings(default_retention_days=1)
    with connect(url, settings=settings, clock=clock) as store, connect(url, clock=clock) as other:
        store.task(*SCOPE, try_number=1).get("k")
        clock.advance(timedelta(days=2))
        store.cleanup()
        assert store.task_instances(*SCOPE[:2]) == []
        assert len(store.runs()) == 1
        clock.advance(timedelta(days=2))
        during(store, monkeypatch, moment, lambda: other.task(*SCOPE[:2], "late").set("k", 1))
        store.cleanup()
        monkeypatch.undo()
        other.task(*SCOPE[:2], "late").set("k", 2)
        assert [run.run_id for run in store.runs()] == [SCOPE[1]]
        assert len(store.task_instances(*SCOPE[:2])) == 1
