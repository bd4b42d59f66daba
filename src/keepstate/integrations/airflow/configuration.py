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
    from airflow.configuration import conf

    settings = Settings.load()
    given: dict[str, str] = {}
    names: list[str] = []
    for item in fields(Settings):
        variable: str = item.metadata["variable"]
        if not variable.startswith(_SECTION):
            continue
        text = conf.get("state_store", variable.removeprefix(_SECTION).lower(), fallback=None)
        if text is not None:
            given[variable] = text
            names.append(item.name)
    configured = Settings.load(given)
    return replace(settings, **{name: getattr(configured, name) for name in names})


def is_direct() -> bool:
    """Whether keepstate is Airflow 3.3's backend, and tasks go to its store themselves."""
    settings = load()
    return settings.backend == BACKEND and settings.url is not None
