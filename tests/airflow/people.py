"""Runs inside an environment with Airflow 3 and its FAB provider: makes users who may do different things with one dag."""

from __future__ import annotations

from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder

# a task instance is a part of its run to this auth manager
OF_RUNS = ("DAG Runs", "Task Instances")
SEE = [("can_read", what) for what in OF_RUNS]
CHANGE = [(action, what) for action in ("can_edit", "can_delete") for what in OF_RUNS]
ROLES = {
    "looker": [("can_read", "DAG:tab"), *SEE],
    "keeper": [("can_read", "DAG:tab"), ("can_edit", "DAG:tab"), *SEE, *CHANGE],
    # may do the same with another dag
    "stranger": [("can_read", "DAG:other"), ("can_edit", "DAG:other"), *SEE, *CHANGE],
}

with get_application_builder() as builder:
    manager = builder.sm
    for name, granted in ROLES.items():
        role = manager.add_role(name)
        for action, resource in granted:
            manager.add_permission_to_role(role, manager.create_permission(action, resource))
        manager.add_user(name, name, name, f"{name}@example.com", role, "a password")
