"""Stands in for ``airflow.sdk.bases.operator`` on Airflow 2.11."""

from __future__ import annotations

import importlib

__all__ = ["BaseOperator", "chain", "chain_linear", "cross_downstream"]  # noqa: F822 - they load when asked for


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'airflow.sdk.bases.operator' has no attribute {name!r} on Airflow 2.11")
    return getattr(importlib.import_module("airflow.models.baseoperator"), name)
