"""The shapes of dags, runs, task instances and assets in Airflow's REST, with what keepstate knows of them.

Airflow's clients insist on fields that only an orchestrator can fill: where keepstate does not know, it says what is true of a
store without a schedule (null where that is allowed, else empty or false).
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from keepstate.clock import to_text

if TYPE_CHECKING:
    from keepstate.scope import RunInfo, TaskInstanceInfo, TaskScope

RunState = Literal["queued", "running", "success", "failed"]
RunType = Literal[
    "backfill", "scheduled", "manual", "operator_triggered", "asset_triggered", "asset_materialization"
]
TaskState = Literal["running", "success", "failed", "up_for_retry"]

# how Airflow begins the ids of runs that it makes
_TYPES = ("backfill", "scheduled", "operator_triggered", "asset_triggered", "asset_materialization")
_ENDED = frozenset({"success", "failed"})
_STATES = frozenset({"running", "success", "failed", "up_for_retry"})


class Answer(BaseModel):
    """What an answer has: these fields and no other."""

    model_config = ConfigDict(extra="forbid")


class DagResponse(Answer):
    """A dag: it is there as long as it has runs."""

    dag_id: str
    dag_display_name: str
    is_paused: bool
    is_stale: bool
    last_parsed_time: datetime | None
    last_parse_duration: float | None
    last_expired: datetime | None
    bundle_name: str | None
    bundle_version: str | None
    relative_fileloc: str | None
    fileloc: str
    file_token: str
    description: str | None
    timetable_summary: str | None
    timetable_description: str | None
    timetable_partitioned: bool
    timetable_periodic: bool
    tags: list[dict[str, Any]]
    max_active_tasks: int
    max_active_runs: int | None
    max_consecutive_failed_dag_runs: int
    has_task_concurrency_limits: bool
    has_import_errors: bool
    is_backfillable: bool
    allowed_run_types: list[RunType] | None
    next_dagrun_logical_date: datetime | None
    next_dagrun_data_interval_start: datetime | None
    next_dagrun_data_interval_end: datetime | None
    next_dagrun_run_after: datetime | None
    owners: list[str]


class DagDetailsResponse(DagResponse):
    """A dag with what else Airflow tells of one."""

    active_runs_count: int
    asset_expression: None
    catchup: bool
    concurrency: int
    dag_run_timeout: None
    default_args: None
    doc_md: None
    start_date: datetime | None
    end_date: datetime | None
    is_favorite: bool
    is_paused_upon_creation: None
    last_parsed: datetime | None
    latest_dag_version: None
    owner_links: dict[str, str]
    params: None
    render_template_as_native_obj: bool
    rerun_with_latest_version: None
    template_search_path: None
    timezone: str | None


class DagCollectionResponse(Answer):
    """Dags, ordered by id; the total counts all of them."""

    dags: list[DagResponse]
    total_entries: int


class DagRunResponse(Answer):
    """A run. Its state is `running` too where nobody has told keepstate of its end."""

    dag_id: str
    dag_run_id: str
    dag_display_name: str
    dag_versions: list[dict[str, Any]]
    logical_date: datetime | None
    data_interval_start: datetime | None
    data_interval_end: datetime | None
    run_after: datetime
    queued_at: datetime | None
    start_date: datetime | None
    end_date: datetime | None
    duration: float | None
    last_scheduling_decision: datetime | None
    run_type: RunType
    state: RunState
    triggered_by: str | None
    triggering_user_name: str | None
    conf: dict[str, Any] | None
    note: str | None
    bundle_version: str | None
    partition_key: str | None
    partition_date: datetime | None


class DagRunCollectionResponse(Answer):
    """Runs, most recently begun first; the total counts all of them."""

    dag_runs: list[DagRunResponse]
    total_entries: int


class TaskFacts(Answer):
    """What Airflow tells of a task instance, and of each of its tries alike."""

    dag_id: str
    dag_run_id: str
    dag_display_name: str
    task_id: str
    task_display_name: str
    map_index: int
    try_number: int
    max_tries: int
    state: TaskState | None
    start_date: datetime | None
    end_date: datetime | None
    duration: float | None
    hostname: str | None
    unixname: str | None
    pid: int | None
    pool: str
    pool_slots: int
    queue: str | None
    priority_weight: int | None
    operator: str | None
    operator_name: str | None
    queued_when: datetime | None
    scheduled_when: datetime | None
    executor: str | None
    executor_config: str
    dag_version: None


class TaskInstanceResponse(TaskFacts):
    """A task instance. `try_number` is 0 and the state null where no attempt has registered."""

    id: uuid.UUID
    rendered_map_index: str | None
    logical_date: datetime | None
    run_after: datetime
    note: str | None
    rendered_fields: dict[str, Any]
    trigger: None
    triggerer_job: None


class TaskInstanceCollectionResponse(Answer):
    """Task instances, ordered by task and map index; the total counts all of them."""

    task_instances: list[TaskInstanceResponse]
    total_entries: int


class AssetResponse(Answer):
    """An asset."""

    id: int
    name: str
    uri: str
    group: str
    extra: dict[str, Any] | None
    created_at: datetime
    updated_at: datetime
    scheduled_dags: list[dict[str, Any]]
    producing_tasks: list[dict[str, Any]]
    consuming_tasks: list[dict[str, Any]]
    aliases: list[dict[str, Any]]
    watchers: list[dict[str, Any]]
    last_asset_event: None


class AssetCollectionResponse(Answer):
    """Assets, ordered by name; the total counts all of them."""

    assets: list[AssetResponse]
    total_entries: int


class VersionResponse(Answer):
    """Which keepstate this is."""

    version: str
    git_version: str | None


class PartHealth(Answer):
    """Whether a part is well."""

    status: Literal["healthy", "unhealthy"] | None


class SchedulerHealth(PartHealth):
    """keepstate has no scheduler."""

    latest_scheduler_heartbeat: str | None


class TriggererHealth(PartHealth):
    """keepstate has no triggerer."""

    latest_triggerer_heartbeat: str | None


class DagProcessorHealth(PartHealth):
    """keepstate has no dag processor."""

    latest_dag_processor_heartbeat: str | None


class HealthResponse(Answer):
    """Whether the server and its database are well."""

    metadatabase: PartHealth
    scheduler: SchedulerHealth
    triggerer: TriggererHealth
    dag_processor: DagProcessorHealth


# ---------------------------------------------------------------------------------------------- in its words


def dag(dag_id: str) -> dict[str, Any]:
    """Return a dag in Airflow's shape."""
    nothing = (
        "last_parsed_time",
        "last_parse_duration",
        "last_expired",
        "bundle_name",
        "bundle_version",
        "relative_fileloc",
        "description",
        "timetable_summary",
        "timetable_description",
        "max_active_runs",
        "allowed_run_types",
        "next_dagrun_logical_date",
        "next_dagrun_data_interval_start",
        "next_dagrun_data_interval_end",
        "next_dagrun_run_after",
    )
    no = (
        "is_paused",
        "is_stale",
        "timetable_partitioned",
        "timetable_periodic",
        "has_task_concurrency_limits",
        "has_import_errors",
        "is_backfillable",
    )
    return {
        **dict.fromkeys(nothing),
        **dict.fromkeys(no, False),
        "dag_id": dag_id,
        "dag_display_name": dag_id,
        "fileloc": "",
        "file_token": "",
        "tags": [],
        "owners": [],
        "max_active_tasks": 0,
        "max_consecutive_failed_dag_runs": 0,
    }


def dag_details(dag_id: str) -> dict[str, Any]:
    """Return a dag in Airflow's longer shape."""
    nothing = (
        "asset_expression",
        "dag_run_timeout",
        "default_args",
        "doc_md",
        "start_date",
        "end_date",
        "is_paused_upon_creation",
        "last_parsed",
        "latest_dag_version",
        "params",
        "rerun_with_latest_version",
        "template_search_path",
        "timezone",
    )
    return {
        **dag(dag_id),
        **dict.fromkeys(nothing),
        **dict.fromkeys(("catchup", "is_favorite", "render_template_as_native_obj"), False),
        "active_runs_count": 0,
        "concurrency": 0,
        "owner_links": {},
    }


def dag_run(info: RunInfo) -> dict[str, Any]:
    """Return a run in Airflow's shape."""
    nothing = (
        "logical_date",
        "data_interval_start",
        "data_interval_end",
        "last_scheduling_decision",
        "triggered_by",
        "triggering_user_name",
        "conf",
        "note",
        "bundle_version",
        "partition_key",
        "partition_date",
    )
    ended = info.state in _ENDED
    began = to_text(info.created_at)
    return {
        **dict.fromkeys(nothing),
        "dag_id": info.dag_id,
        "dag_run_id": info.run_id,
        "dag_display_name": info.dag_id,
        "dag_versions": [],
        "run_after": began,
        "queued_at": began,
        "start_date": began,
        "end_date": to_text(info.updated_at) if ended else None,
        "duration": (info.updated_at - info.created_at).total_seconds() if ended else None,
        "run_type": next((kind for kind in _TYPES if info.run_id.startswith(f"{kind}__")), "manual"),
        "state": info.state if ended else "running",
    }


def task_facts(scope: TaskScope, began: datetime, ended: datetime | None) -> dict[str, Any]:
    """Return what a task instance and each of its tries have in common, in Airflow's shape."""
    nothing = (
        "hostname",
        "unixname",
        "pid",
        "queue",
        "priority_weight",
        "operator",
        "operator_name",
        "queued_when",
        "scheduled_when",
        "executor",
        "dag_version",
    )
    return {
        **dict.fromkeys(nothing),
        "dag_id": scope.dag_id,
        "dag_run_id": scope.run_id,
        "dag_display_name": scope.dag_id,
        "task_id": scope.task_id,
        "task_display_name": scope.task_id,
        "map_index": scope.map_index,
        "max_tries": 0,
        "start_date": to_text(began),
        "end_date": to_text(ended) if ended else None,
        "duration": (ended - began).total_seconds() if ended else None,
        "pool": "",
        "pool_slots": 1,
        "executor_config": "{}",
    }


def task_instance(info: TaskInstanceInfo) -> dict[str, Any]:
    """Return a task instance in Airflow's shape."""
    nothing = ("rendered_map_index", "logical_date", "note", "trigger", "triggerer_job")
    scope, ended = info.scope, info.updated_at if info.state in _ENDED else None
    return {
        **dict.fromkeys(nothing),
        **task_facts(scope, info.created_at, ended),
        # the same for ever, as the ids are
        "id": str(uuid.UUID(bytes=scope.digest[:16], version=5)),
        "try_number": info.try_number or 0,
        "state": info.state if info.state in _STATES else None,
        "run_after": to_text(info.created_at),
        "rendered_fields": {},
    }
