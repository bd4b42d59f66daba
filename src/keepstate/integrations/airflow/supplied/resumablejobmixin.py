"""Stands in for ``airflow.sdk.bases.resumablejobmixin`` below Airflow 3.3."""

from keepstate import ResumableJobMixin

__all__ = ["ResumableJobMixin"]
