"""Runs inside an environment with Airflow: prints what becomes of operators that may be durable, as JSON.

The providers' packages alone are there. What they import of other companies' packages are stand-ins, as nothing is run.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
import warnings
from importlib.machinery import ModuleSpec
from typing import Any


class _Anything(type):
    """A class of which everything can be had, and made, and inherited."""

    def __getattr__(cls, name: str) -> Any:
        return attribute(name)


def attribute(name: str) -> Any:
    """Return what stands for it, but for what Python itself asks for."""
    if name.startswith("__"):
        raise AttributeError(name)
    return stand_in(name)


def stand_in(name: str) -> Any:
    """Return a class that stands for whatever has that name; those of exceptions can be caught."""
    base = Exception if name.endswith(("Error", "Exception", "NotFound", "Conflict")) else object
    members = {
        "__init__": lambda self, *args, **given: None,
        "__class_getitem__": classmethod(lambda cls, _: cls),
    }
    return _Anything(name, (base,), {**members, "__getattr__": lambda self, name: attribute(name)})


class _Missing:
    """Finds the modules of other companies."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.startswith(FOREIGN) else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = attribute  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave it as it is."""


FOREIGN = (
    "boto3",
    "botocore",
    "databricks",
    "gcloud",
    "google",
    "jmespath",
    "kubernetes",
    "mergedeep",
    "pandas_gbq",
    "snowflake",
)
# last, so that it finds only what is not installed
sys.meta_path.append(_Missing())
warnings.simplefilter("ignore")

JOBS: dict[str, dict[str, Any]] = {
    "amazon.aws.operators.glue:GlueJobOperator": {},
    "amazon.aws.operators.redshift_data:RedshiftDataOperator": {"database": "d", "sql": "SELECT 1"},
    "apache.livy.operators.livy:LivyOperator": {"file": "f"},
    "apache.spark.operators.spark_submit:SparkSubmitOperator": {"application": "f"},
    "databricks.operators.databricks:DatabricksRunNowOperator": {"job_id": 1},
    "databricks.operators.databricks:DatabricksSubmitRunOperator": {"json": {}},
    "google.cloud.operators.bigquery:BigQueryInsertJobOperator": {"configuration": {}},
    "snowflake.operators.snowflake:SnowflakeSqlApiOperator": {"sql": "SELECT 1", "statement_count": 1},
}


def found(where: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return whose mixin an operator has, and whether it is durable by itself and when asked to be."""
    module, name = where.split(":")
    kind = getattr(importlib.import_module(f"airflow.providers.{module}"), name)
    mixins = [one.__module__ for one in kind.__mro__ if one.__name__ == "ResumableJobMixin"]
    asked = kind(task_id="asked", durable=True, **given).durable
    return {"mixin": mixins[0], "by_itself": kind(task_id="job", **given).durable, "asked": asked}


print(json.dumps({where.partition(":")[2]: found(where, given) for where, given in JOBS.items()}))  # noqa: T201
