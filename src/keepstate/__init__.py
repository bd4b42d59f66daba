"""keepstate gives a task a memory that outlives the attempt, so that the next attempt carries on.

This module is a list: what is public, and where it lives. Names load when they are first used, so that importing
keepstate costs next to nothing.
"""

from __future__ import annotations

# `typing` would take longer to import than all of this; type checkers know the name, wherever it comes from
TYPE_CHECKING = False

if TYPE_CHECKING:
    from keepstate.accessors import AssetStateStore, TaskStateStore
    from keepstate.backends.custom import BaseStoreBackend
    from keepstate.connect import connect
    from keepstate.errors import (
        AccessDeniedError,
        AlreadyRunningError,
        BackendError,
        BackendUnavailableError,
        CheckpointMismatchError,
        ConfigurationError,
        InvalidIdError,
        InvalidInputError,
        InvalidKeyError,
        InvalidRetentionError,
        InvalidTypeError,
        InvalidValueError,
        KeepstateError,
        ScopeNotFoundError,
        StaleAttemptError,
        StoreCorruptedError,
        StoreFullError,
        StoreReadOnlyError,
        StoreVersionError,
        TaskArgumentsChangedError,
        TaskFailedError,
        UnknownJobStatusError,
        UnsupportedError,
        ValueTooLargeError,
        VersionConflictError,
        VersionNotFoundError,
    )
    from keepstate.jobs import ResumableJobMixin, ResumeAction, ResumeDecision
    from keepstate.retention import NEVER_EXPIRE
    from keepstate.runtime import (
        BaseOperator,
        PythonOperator,
        dag_run,
        get_current_context,
        task,
        task_state_store,
    )
    from keepstate.scope import (
        Asset,
        AssetScope,
        Attempt,
        CleanupReport,
        Entry,
        HistoryEntry,
        TaskScope,
        Writer,
    )
    from keepstate.settings import Settings
    from keepstate.store import StateStore

_HOMES = {
    "keepstate.accessors": ("AssetStateStore", "TaskStateStore"),
    "keepstate.backends.custom": ("BaseStoreBackend",),
    "keepstate.connect": ("connect",),
    "keepstate.errors": (
        "AccessDeniedError",
        "AlreadyRunningError",
        "BackendError",
        "BackendUnavailableError",
        "CheckpointMismatchError",
        "ConfigurationError",
        "InvalidIdError",
        "InvalidInputError",
        "InvalidKeyError",
        "InvalidRetentionError",
        "InvalidTypeError",
        "InvalidValueError",
        "KeepstateError",
        "ScopeNotFoundError",
        "StaleAttemptError",
        "StoreCorruptedError",
        "StoreFullError",
        "StoreReadOnlyError",
        "StoreVersionError",
        "TaskArgumentsChangedError",
        "TaskFailedError",
        "UnknownJobStatusError",
        "UnsupportedError",
        "ValueTooLargeError",
        "VersionConflictError",
        "VersionNotFoundError",
    ),
    "keepstate.jobs": ("ResumableJobMixin", "ResumeAction", "ResumeDecision"),
    "keepstate.retention": ("NEVER_EXPIRE",),
    "keepstate.runtime": (
        "BaseOperator",
        "PythonOperator",
        "dag_run",
        "get_current_context",
        "task",
        "task_state_store",
    ),
    "keepstate.scope": (
        "Asset",
        "AssetScope",
        "Attempt",
        "CleanupReport",
        "Entry",
        "HistoryEntry",
        "TaskScope",
        "Writer",
    ),
    "keepstate.settings": ("Settings",),
    "keepstate.store": ("StateStore",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "NEVER_EXPIRE",
    "AccessDeniedError",
    "AlreadyRunningError",
    "Asset",
    "AssetScope",
    "AssetStateStore",
    "Attempt",
    "BackendError",
    "BackendUnavailableError",
    "BaseOperator",
    "BaseStoreBackend",
    "CheckpointMismatchError",
    "CleanupReport",
    "ConfigurationError",
    "Entry",
    "HistoryEntry",
    "InvalidIdError",
    "InvalidInputError",
    "InvalidKeyError",
    "InvalidRetentionError",
    "InvalidTypeError",
    "InvalidValueError",
    "KeepstateError",
    "PythonOperator",
    "ResumableJobMixin",
    "ResumeAction",
    "ResumeDecision",
    "ScopeNotFoundError",
    "Settings",
    "StaleAttemptError",
    "StateStore",
    "StoreCorruptedError",
    "StoreFullError",
    "StoreReadOnlyError",
    "StoreVersionError",
    "TaskArgumentsChangedError",
    "TaskFailedError",
    "TaskScope",
    "TaskStateStore",
    "UnknownJobStatusError",
    "UnsupportedError",
    "ValueTooLargeError",
    "VersionConflictError",
    "VersionNotFoundError",
    "Writer",
    "connect",
    "dag_run",
    "get_current_context",
    "task",
    "task_state_store",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'keepstate' has no attribute {name!r}")
    # through sys.modules: importlib would cost more than all the rest of this module
    __import__(home)
    import sys

    value = getattr(sys.modules[home], name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
