"""The store that a command opens."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from keepstate.cli import output
from keepstate.cli.exit_codes import Stop
from keepstate.connect import connect, embedded_path, route, sqlite_path, tables_at
from keepstate.errors import ConfigurationError, InvalidInputError
from keepstate.settings import shown_url

if TYPE_CHECKING:
    from pathlib import Path

    from keepstate.settings import Settings
    from keepstate.store import StateStore

_log = logging.getLogger("keepstate")
# so many seconds a person waits without being told for what
_SILENCE = 2.0

AIRFLOW = "airflow:"
"""As a URL: the store that the tasks of the Airflow of this environment have."""


def opened(url: str | None, settings: Settings, *, purge: bool = False, there: bool = False) -> StateStore:
    """Open the store at ``url``, or the one in force. What the library warns of goes to stderr, a line each.

    Without ``purge`` nothing expired is removed on the way: a command in a shell's loop should not wait for that. With
    ``there``, a file that ``url`` names must be there already: reading from a mistyped one would make it.
    """
    _refuse_empty(url)
    if there and url is not None and (file := sqlite_file(url)) is not None and not file.exists():
        raise InvalidInputError(f"there is no store at {file}")
    if url == AIRFLOW:
        from keepstate.integrations.airflow import metadata

        demand_airflow()
        return metadata.store()
    if not _log.handlers:
        _log.addHandler(output.Lines())
        _log.propagate = False
    if not output.is_watched():
        return connect(url, settings=settings, purge_on_open=purge)
    import threading

    place = shown_url(url or settings.url or "") or "the embedded file"
    telling = threading.Timer(_SILENCE, output.note, [f"waiting for the store at {place}"])
    telling.daemon = True
    telling.start()
    try:
        return connect(url, settings=settings, purge_on_open=purge)
    finally:
        telling.cancel()
        # `run` forks, which no other thread should see
        telling.join()


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite URL; nothing for other URLs."""
    return sqlite_path(url) if url.lower().startswith("sqlite:") else None


def store_file(url: str | None, settings: Settings) -> Path | None:
    """Return the file of the store that `opened` opens, if that is in one; nothing is made."""
    _refuse_empty(url)
    if route(url, settings) == "embedded":
        return embedded_path(settings)
    return sqlite_file(url or settings.url or "")


def nothing(what: str, url: str | None, settings: Settings) -> Stop:
    """Return that there is no such thing; and in an environment with Airflow, where the state of its tasks is."""
    from keepstate.integrations.airflow import checkup

    if url or settings.url or checkup.installed() is None:
        return Stop(f"there is no {what}")
    return Stop(
        f"there is no {what} in the embedded file; for the state of Airflow's tasks, give --url {AIRFLOW}"
    )


def looked_after(url: str | None, settings: Settings) -> Any:
    """Return the tables of the store at ``url``; without any URL, in an environment with Airflow, those for its tasks."""
    from keepstate.integrations.airflow import checkup, metadata

    _refuse_empty(url)
    if url != AIRFLOW and (url or settings.url or checkup.installed() is None):
        return tables_at(url, settings)
    demand_airflow()
    return metadata.tables()


def _refuse_empty(url: str | None) -> None:
    if url is not None and not url.strip():
        # as of a variable that is not set: another store than the one in force was meant
        raise InvalidInputError("--url is empty: name the store, as sqlite:///keepstate.db, or leave it out")


def demand_airflow() -> None:
    """Load the Airflow of this environment, or raise ``ConfigurationError``."""
    try:
        import airflow  # noqa: F401 - loading it is what is wanted
    except ImportError as exc:
        raise ConfigurationError(
            "airflow: is the store of the tasks of an Airflow, and this environment has none; run this where Airflow's "
            "components run"
        ) from exc
