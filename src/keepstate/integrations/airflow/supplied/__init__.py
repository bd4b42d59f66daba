"""Modules that Airflow 3.3 has, for earlier ones: each is named for the one it stands in for."""
