"""Extending Airflow's modules as they are loaded, and supplying those that 3.3 has and an earlier one lacks.

One finder on ``sys.meta_path`` knows a module by name and does nothing for any other. An extension runs right after the
body of Airflow's module; should it fail, that is logged, and the module stays as Airflow made it.
"""

from __future__ import annotations

import re
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

_HERE = "keepstate.integrations.airflow"

# Airflow's module -> the function of ours that extends it, as module:function
_PROVIDERS = {
    "airflow.providers.amazon.aws.operators.glue": "providers:extend_glue",
    "airflow.providers.apache.spark.operators.spark_submit": "providers:extend_spark_submit",
}
_PYTHON = {"airflow.providers.standard.operators.python": "coroutines:extend_python_operator"}

_BEFORE_3_3 = {
    **_PROVIDERS,
    "airflow.dag_processing.processor": "comms:extend_dag_processor",
    "airflow.models.dagrun": "deletions:extend",
    "airflow.sdk": "names:extend_sdk",
    "airflow.sdk.execution_time.context": "names:extend_execution_context",
    "airflow.sdk.execution_time.task_runner": "context:extend_task_runner",
    "airflow.sdk.execution_time.comms": "comms:extend",
    "airflow.sdk.execution_time.supervisor": "supervisor:extend",
    "airflow.api_fastapi.execution_api.app": "execution:extend",
}
_EXTENSIONS = {
    "2.11": {
        **_PROVIDERS,
        **_PYTHON,
        "airflow.operators.python": "coroutines:extend_python_operator",
        "airflow.models.dagrun": "deletions:extend",
        "airflow.utils.context": "context:admit_names",
        "airflow.models.taskinstance": "context:extend_models",
        "airflow.models.variable": "names:extend_variable",
    },
    "3.0": {**_BEFORE_3_3, **_PYTHON, "airflow.utils.context": "context:admit_names"},
    "3.1": {**_BEFORE_3_3, **_PYTHON, "airflow.sdk.definitions.context": "context:admit_names"},
    "3.2": {**_BEFORE_3_3, "airflow.sdk.definitions.context": "context:admit_names"},
    "3.3": {
        "airflow.api_fastapi.core_api.services.public.task_instances": "storebackend:clear_when_marked",
        "airflow.api_fastapi.execution_api.app": "upkeep:extend_execution_app",
        "airflow.models.dagrun": "deletions:extend_3_3",
        "airflow.sdk.execution_time.task_runner": "context:extend_task_runner_of_3_3",
    },
}

# modules of 3.3 -> ours, whose public names they get
_SUPPLIED_BELOW_3_3 = {
    "airflow.sdk.bases.resumablejobmixin": f"{_HERE}.supplied.resumablejobmixin",
    "airflow.sdk.state": f"{_HERE}.supplied.state",
}
_SUPPLIED: dict[str, Mapping[str, str]] = {
    "2.11": {
        "airflow.sdk": f"{_HERE}.supplied.sdk",
        "airflow.sdk.bases": f"{_HERE}.supplied.bases",
        "airflow.sdk.bases.operator": f"{_HERE}.supplied.operator",
        **_SUPPLIED_BELOW_3_3,
    },
    "3.0": _SUPPLIED_BELOW_3_3,
    "3.1": _SUPPLIED_BELOW_3_3,
    "3.2": _SUPPLIED_BELOW_3_3,
    "3.3": {},
}


def series(version: str) -> str:
    """Return the ``3.1`` of ``3.1.8``."""
    return ".".join(version.split(".")[:2])


# there a task and its supervisor talk in another way than ever since
_TOO_EARLY = re.compile(r"3\.0\.[0-2](?!\d)")


def known_series(version: str | None) -> str | None:
    """Return the ``3.1`` of ``3.1.8``, and ``None`` for a version that this keepstate doesn't know."""
    line = series(version or "")
    return line if line in _EXTENSIONS and not _TOO_EARLY.match(version or "") else None


def _loaded_version() -> str | None:
    return getattr(sys.modules.get("airflow"), "__version__", None)


def is_airflow_2() -> bool:
    """Whether the Airflow of this process is 2.11."""
    return (_loaded_version() or "").startswith("2.")


def is_below_3_3() -> bool:
    """Whether the Airflow of this process is one that has no state store of its own, and that we know."""
    return known_series(_loaded_version()) in {"2.11", "3.0", "3.1", "3.2"}


def is_known() -> bool:
    """Whether this keepstate knows the Airflow of this process."""
    return known_series(_loaded_version()) is not None


def has_tabs() -> bool:
    """Whether the pages of this process's Airflow have room for a plugin's: from 3.1 on."""
    return known_series(_loaded_version()) not in {None, "2.11", "3.0"}


def install(version: str | None = None) -> None:
    """Extend the Airflow of this process; a second call does nothing. ``version`` defaults to that of the loaded one.

    An Airflow that this keepstate doesn't know is left alone, with a warning.
    """
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    if version is None:
        version = _loaded_version()
    line = known_series(version)
    if line is None:
        _log_unknown(version)
        return
    finder = Finder(_EXTENSIONS[line], _SUPPLIED[line])
    for name in _EXTENSIONS[line]:
        loaded = sys.modules.get(name)
        if loaded is not None:
            finder.extend(loaded)
    sys.meta_path.insert(0, finder)


def _log_unknown(version: str | None) -> None:
    import logging

    logging.getLogger("keepstate").warning(
        "This keepstate knows Airflow %s (3.0 from 3.0.3 on), and not %s: it changes nothing here, and tasks get no keepstate store",
        ", ".join(_EXTENSIONS),
        version or "this one, which does not tell its version",
    )


class Finder(MetaPathFinder):
    """Finds the modules to extend through the other finders, and supplies those that nobody else finds."""

    def __init__(self, extensions: Mapping[str, str], supplied: Mapping[str, str]) -> None:
        self._extensions = extensions
        self._supplied = supplied

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for the modules concerned, and ``None`` at once for all others."""
        if fullname not in self._extensions and fullname not in self._supplied:
            return None
        spec = self._from_others(fullname, path, target)
        if spec is None:
            source = self._supplied.get(fullname)
            if source is None:
                return None
            # one that has others below it is a package
            inside = any(name.startswith(f"{fullname}.") for name in self._supplied)
            return ModuleSpec(fullname, _Supplying(source), is_package=inside)
        if fullname in self._extensions and spec.loader is not None:
            spec.loader = _Extending(spec.loader, self.extend)
        return spec

    def extend(self, module: ModuleType) -> None:
        """Run the extension of a module whose body has run; lets nothing out."""
        try:
            room, function = self._extensions[module.__name__].split(":")
            __import__(f"{_HERE}.{room}")
            getattr(sys.modules[f"{_HERE}.{room}"], function)(module)
        except Exception:
            import logging

            logging.getLogger("keepstate").exception(
                "keepstate could not extend %s, which stays as Airflow made it", module.__name__
            )

    def _from_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find_spec is None else find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None


class _Extending(Loader):
    """Loads a module as its own loader does, then has it extended."""

    def __init__(self, inner: Loader, extend: Callable[[ModuleType], None]) -> None:
        self._inner = inner
        self._extend = extend

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # what asks the module for its loader, for its source say, means the real one
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        self._inner.exec_module(module)
        self._extend(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


class _Supplying(Loader):
    """Makes a module out of the public names of one of ours."""

    def __init__(self, source: str) -> None:
        self._source = source

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:  # noqa: ARG002 - the protocol's
        return None

    def exec_module(self, module: ModuleType) -> None:
        __import__(self._source)
        source = sys.modules[self._source]
        names = list(source.__all__)
        module.__doc__ = source.__doc__

        def load(name: str) -> object:
            if name not in names:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return getattr(source, name)

        # names load when they are asked for, as those of Airflow's own do
        module.__dict__.update(__all__=names, __getattr__=load)
