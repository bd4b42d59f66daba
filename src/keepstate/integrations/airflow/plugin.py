"""keepstate as one of Airflow's plugins: what needs to hear of successes. It loads after DAG files may have been read."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from keepstate.integrations.airflow import hooks


def _listeners() -> list[Any]:
    # from 3.3 on, the API server clears by itself
    if not hooks.is_below_3_3():
        return []
    from keepstate.integrations.airflow import listener

    return [listener]


class KeepstatePlugin(AirflowPlugin):  # type: ignore[misc]
    """See the module."""

    name = "keepstate"
    listeners = _listeners()
