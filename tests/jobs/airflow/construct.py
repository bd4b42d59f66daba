"""Runs inside an environment with Airflow: makes operators in every way, and prints as JSON what `durable` came to be.

``construct.py keepstate|airflow first|last`` says whose mixin it is, and when it is imported: before Airflow or after.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

WHOSE, WHEN = sys.argv[1:]
HOMES = {"keepstate": "keepstate", "airflow": "airflow.sdk"}
if WHEN == "first":
    mixin = importlib.import_module(HOMES[WHOSE]).ResumableJobMixin

try:
    from airflow.sdk import DAG, BaseOperator, TaskGroup
except ImportError:  # 2.11
    from airflow.models.baseoperator import BaseOperator
    from airflow.models.dag import DAG
    from airflow.utils.task_group import TaskGroup

if WHEN == "last":
    mixin = importlib.import_module(HOMES[WHOSE]).ResumableJobMixin


class Left(mixin, BaseOperator):
    """Leaves __init__ to the mixin."""

    template_fields = ("external_id_key",)

    def execute(self, context):
        return self.execute_resumable(context)

    def submit_job(self, context):
        context["submitted"].append(getattr(self, "submission_token", "a token"))
        return f"job-{len(context['submitted'])}"

    def get_job_status(self, external_id, context):
        return context["status"]

    def is_job_active(self, status):
        return status == "RUNNING"

    def is_job_succeeded(self, status):
        return status == "SUCCEEDED"

    def poll_until_complete(self, external_id, context):
        context["status"] = "SUCCEEDED"

    def get_job_result(self, external_id, context):
        return external_id


class Named(Left):
    """Has an __init__ of its own, with a parameter that can be mapped."""

    def __init__(self, *, command: str = "true", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.command = command


class Derived(Named):
    """Leaves __init__ to its base."""


class Direct(mixin, BaseOperator):
    """Has an __init__ of its own above the mixin's."""

    submit_job = Left.submit_job
    get_job_status = Left.get_job_status
    is_job_active = Left.is_job_active
    is_job_succeeded = Left.is_job_succeeded
    poll_until_complete = Left.poll_until_complete
    get_job_result = Left.get_job_result

    def __init__(self, *, command: str = "true", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.command = command

    def execute(self, context):
        return self.execute_resumable(context)


OFF, ON = {"durable": False}, {"durable": True}


def ways_to_make(kind: Any) -> dict[str, Any]:
    """Return what durable is, by how an operator was made."""
    made: dict[str, Any] = {}

    def note(way: str, make: Any) -> None:
        try:
            operator = make()
            made[way] = (operator.durable, getattr(operator, "_BaseOperator__instantiated", None))
        except Exception:  # noqa: BLE001 - Airflow's versions differ in the kind
            made[way] = "refused"

    note("without a dag", lambda: kind(task_id="t"))
    note("without a dag, off", lambda: kind(task_id="t", durable=False))
    note("own defaults", lambda: kind(task_id="t", default_args=OFF))
    note("call over own defaults", lambda: kind(task_id="t", durable=True, default_args=OFF))
    note("positional", lambda: kind("t"))
    note("unknown argument", lambda: kind(task_id="t", unheard_of=1))
    for name, defaults in {"no": {}, "off": OFF, "on": ON}.items():
        with DAG(dag_id=f"{kind.__name__}-{name}", schedule=None, default_args=defaults) as dag:
            note(f"dag {name}", lambda: kind(task_id="a"))
            note(f"dag {name}, call off", lambda: kind(task_id="b", durable=False))
            note(f"dag {name}, call on", lambda: kind(task_id="c", durable=True))
            note(f"dag {name}, own defaults off", lambda: kind(task_id="d", default_args=OFF))
            with TaskGroup("group", default_args=OFF):
                note(f"dag {name}, group off", lambda: kind(task_id="e"))
                note(f"dag {name}, group off, call on", lambda: kind(task_id="f", durable=True))
            note(f"dag {name}, chained", lambda: kind(task_id="g") >> kind(task_id="h"))
            if kind is not Left:
                mapping(kind, f"dag {name}", note)
        made[f"dag {name}, tasks"] = sorted(dag.task_ids)
    return made


def mapping(kind: Any, where: str, note: Any) -> None:
    """Map operators, and unmap one of each."""

    def unmapped(resolved: dict[str, Any], task_id: str, **partial: Any) -> Any:
        expanded = {name: [value] for name, value in resolved.items()}
        return kind.partial(task_id=task_id, **partial).expand(**expanded).unmap(resolved)

    note(f"{where}, mapped", lambda: unmapped({"command": "x"}, "m"))
    note(f"{where}, mapped, off", lambda: unmapped({"command": "x"}, "n", durable=False))
    note(f"{where}, mapped, on", lambda: unmapped({"command": "x"}, "o", durable=True))
    note(f"{where}, mapped, own defaults", lambda: unmapped({"command": "x"}, "p", default_args=OFF))
    note(f"{where}, mapped over durable", lambda: unmapped({"durable": False}, "q", command="x"))
    note(f"{where}, mapped, unknown", lambda: unmapped({"command": "x"}, "r", unheard_of=1))


class FourVerbs(dict):
    """A store with the guide's four verbs."""

    set = dict.__setitem__

    def delete(self, key: str) -> None:
        self.pop(key, None)


def execute(kind: Any) -> dict[str, Any]:
    """Execute operators one after another: the job is submitted, has succeeded, runs, was killed."""
    context: dict[str, Any] = {"submitted": [], "status": "RUNNING", "task_state_store": FourVerbs()}
    results = [kind(task_id="t").execute(context) for _ in range(2)]
    context["status"] = "RUNNING"
    results.append(kind(task_id="t").execute(context))
    context["status"] = "KILLED"
    results.append(kind(task_id="t").execute(context))
    return {"results": results, "submissions": len(context["submitted"])}


def serialized() -> bool:
    """Return whether a DAG of such operators survives serialization."""
    from airflow.serialization.serialized_objects import SerializedDAG

    with DAG(dag_id="serialized", schedule=None, default_args=OFF) as dag:
        Left(task_id="left") >> Direct(task_id="direct")
        Direct.partial(task_id="mapped", durable=False).expand(command=["a", "b"])
    kind: Any = SerializedDAG
    try:
        from airflow.serialization.serialized_objects import DagSerialization  # 3.2 and later

        kind = DagSerialization
    except ImportError:
        pass
    text = json.dumps(kind.to_dict(dag))
    return set(kind.from_dict(json.loads(text)).task_ids) == {"left", "direct", "mapped"}


if __name__ == "__main__":
    found = {
        "made": {kind.__name__: ways_to_make(kind) for kind in (Left, Named, Derived, Direct)},
        "executed": {kind.__name__: execute(kind) for kind in (Left, Direct)},
        "serialized": serialized(),
    }
    sys.stdout.write(f"\n{json.dumps(found)}\n")
