"""Names that Airflow 3.3 has in modules which earlier ones have too."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

_NAMES = {
    "NEVER_EXPIRE": "keepstate.retention",
    "ResumableJobMixin": "keepstate.jobs",
}


def extend_sdk(module: ModuleType) -> None:
    """Let ``from airflow.sdk import ResumableJobMixin, NEVER_EXPIRE`` work; both load when they are asked for."""
    lazy = module.__dict__["__lazy_imports"]
    for name, home in _NAMES.items():
        if name not in lazy:
            lazy[name] = home
            module.__dict__["__all__"].append(name)


def extend_variable(module: ModuleType) -> None:
    """Let ``Variable.get(..., default=...)`` work on Airflow 2.11, where that parameter is called ``default_var``."""
    kind = module.__dict__["Variable"]
    get = kind.get.__func__

    @functools.wraps(get)
    def with_either(cls: Any, key: str, *args: Any, **given: Any) -> Any:
        if "default" in given:
            given["default_var"] = given.pop("default")
        return get(cls, key, *args, **given)

    kind.get = classmethod(with_either)


def extend_execution_context(module: ModuleType) -> None:
    """Put ``NEVER_EXPIRE`` where Airflow 3.3 defines it."""
    from keepstate.retention import NEVER_EXPIRE

    if not hasattr(module, "NEVER_EXPIRE"):
        module.__dict__["NEVER_EXPIRE"] = NEVER_EXPIRE
