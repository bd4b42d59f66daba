"""The face of the package: one list, in three places that have to agree."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import keepstate

SOURCE = Path(keepstate.__file__)


def _type_checking_imports() -> dict[str, tuple[str, ...]]:
    """Return what type checkers are told: module by module, the names imported."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    (block,) = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    return {
        str(node.module): tuple(alias.name for alias in node.names)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }


def test_type_checkers_and_the_interpreter_are_told_the_same() -> None:
    """The imports under TYPE_CHECKING are those that names load from."""
    assert _type_checking_imports() == keepstate._HOMES


def test_all_is_what_loads() -> None:
    """Every public name has one home, and nothing else is public."""
    names = [name for home in keepstate._HOMES.values() for name in home]
    assert len(names) == len(set(names))
    assert sorted(names) == sorted(keepstate.__all__)
    assert keepstate.__all__ == sorted(keepstate.__all__, key=lambda name: (not name.isupper(), name))
    assert dir(keepstate) == sorted(keepstate.__all__)


@pytest.mark.parametrize("name", keepstate.__all__)
def test_every_name_loads_from_its_home(name: str) -> None:
    """It is the very object that its module has; or the module, which can be called, where both have one name."""
    home = importlib.import_module(keepstate._HOME_OF[name])
    assert getattr(keepstate, name) in (getattr(home, name), home)
    assert callable(getattr(keepstate, name)) or name.isupper()


def test_the_names_of_the_design_are_there() -> None:
    """What section 3 of the design promises, and every error of the tree that has a name of its own."""
    promised = {
        *("connect", "StateStore", "TaskStateStore", "AssetStateStore", "TaskScope", "AssetScope", "Asset"),
        *("Entry", "NEVER_EXPIRE", "task", "dag_run", "BaseOperator", "PythonOperator"),
        *("get_current_context", "task_state_store", "ResumableJobMixin", "ResumeAction", "ResumeDecision"),
        *("BaseStoreBackend", "KeepstateError"),
    }
    errors = importlib.import_module("keepstate.errors")
    tree = {
        name for name, value in vars(errors).items() if isinstance(value, type) and name.endswith("Error")
    }
    assert promised | tree <= set(keepstate.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        keepstate.nonsense  # noqa: B018
    with pytest.raises(ImportError):
        from keepstate import nonsense  # noqa: F401


def _loaded(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after running ``code``."""
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    return set(json.loads(result.stdout))


def test_importing_keepstate_loads_next_to_nothing() -> None:
    """Nothing but the package itself, and a few small modules of the standard library."""
    added = _loaded("import keepstate") - _loaded("import typing")
    assert added == {"keepstate", "__future__"}


@pytest.mark.parametrize(
    "code",
    [
        "import keepstate; keepstate.connect('memory:').task('d', 'r', 't', try_number=1).set('k', 1)",
        "import keepstate, tempfile; keepstate.connect(f'sqlite:///{tempfile.mkdtemp()}/k.db').close()",
    ],
    ids=["memory", "sqlite"],
)
def test_the_embedded_store_needs_the_standard_library_alone(code: str) -> None:
    """No third-party module is loaded on the way to a stored value."""
    added = {name.partition(".")[0] for name in _loaded(code) - _loaded("pass")}
    foreign = {name for name in added if name not in sys.stdlib_module_names and not name.startswith("_")}
    assert foreign == {"keepstate"}


def test_the_package_is_typed() -> None:
    """Type checkers read it (PEP 561)."""
    assert SOURCE.with_name("py.typed").exists()
