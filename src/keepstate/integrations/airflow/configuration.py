"""The settings in force inside Airflow: the environment, and the ``[state_store]`` section of ``airflow.cfg``."""

from __future__ import annotations

from dataclasses import fields, replace

from keepstate.settings import Settings

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
