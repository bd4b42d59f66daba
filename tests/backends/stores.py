"""Opening stores over a SQLite file or a PostgreSQL URL, with a bound on patience that tests can wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepstate.connect import connect
from keepstate.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    import keepstate
    from keepstate.store import StateStore


def open_file(path: Path | str, *, timeout: float = 30.0, **settings: Any) -> StateStore:
    """Open the store in a SQLite file."""
    return connect(f"sqlite:///{path}", settings=Settings(retry_timeout=timeout, **settings))


def open_url(url: Any, *, timeout: float = 30.0, **settings: Any) -> StateStore:
    """Open the store at a URL, or over an engine."""
    return connect(url, settings=Settings(retry_timeout=timeout, **settings))


def task(store: StateStore, name: str = "load", **more: Any) -> keepstate.TaskStateStore:
    """Return the accessor of a task instance, a person's unless told otherwise."""
    return store.task("etl", "2026-11-29", name, **more)
