"""The settings in force inside Airflow: the environment, and the ``[state_store]`` section of ``airflow.cfg``."""

from __future__ import annotations

from dataclasses import fields, replace

from keepstate.settings import Settings

BACKEND = "keepstate.integrations.airflow.StoreBackend"
"""What ``[state_store] backend`` names on Airflow 3.3."""

_SECTION = "AIRFLOW__STATE_STORE__"


def load() -> Settings:
    """Return the settings; Airflow's own five are read as Airflow reads them, so its environment variables win.

    Raises ``ConfigurationError`` naming the setting, its value and what is allowed.
    """
    given = written()
    configured = Settings.load(given)
    names = [item.name for item in fields(Settings) if item.metadata["variable"] in given]
    return replace(Settings.load(), **{name: getattr(configured, name) for name in names})


def written() -> dict[str, str]:
    """Return what Airflow reads of its ``[state_store]`` section, by the names of its environment variables."""
    from airflow.configuration import conf

    variables = [str(item.metadata["variable"]) for item in fields(Settings)]
    found = {
        variable: conf.get("state_store", variable.removeprefix(_SECTION).lower(), fallback=None)
        for variable in variables
        if variable.startswith(_SECTION)
    }
    return {variable: text for variable, text in found.items() if text is not None}


def is_direct() -> bool:
    """Whether keepstate is Airflow 3.3's backend, and tasks go to its store themselves."""
    settings = load()
    return settings.backend == BACKEND and settings.url is not None
