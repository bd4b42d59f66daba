"""Stands in for the package ``airflow.sdk.bases`` on Airflow 2.11, of which only some modules are supplied."""

from __future__ import annotations

__all__: list[str] = []
