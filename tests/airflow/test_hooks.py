"""How Airflow's modules are extended, without Airflow: modules of a made-up package stand in for them."""

from __future__ import annotations

import importlib
import logging
import pickle
import subprocess
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from keepstate import StaleAttemptError, UnsupportedError
from keepstate.integrations.airflow import hooks
from keepstate.integrations.airflow.lazy import Lazy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package on the path, whose modules are forgotten afterwards."""
    name = "keepstate_made_up"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / name / "context.py").write_text("KNOWN_CONTEXT_KEYS = {'ti'}\nDONE = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    yield name
    sys.meta_path[:] = before
    for loaded in [one for one in sys.modules if one.startswith(name)]:
        del sys.modules[loaded]


def test_a_module_is_extended_once_its_body_has_run(package: str) -> None:
    """The extension sees what the module's own body made, and the module keeps its own loader."""
    sys.meta_path.insert(0, hooks.Finder({f"{package}.context": "context:admit_names"}, {}))
    module = importlib.import_module(f"{package}.context")
    assert sorted(module.KNOWN_CONTEXT_KEYS) == ["asset_state_store", "task_state_store", "ti"]
    assert type(module.__loader__).__module__ != hooks.__name__
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__


def test_a_failing_extension_leaves_the_module_alone(package: str, caplog: pytest.LogCaptureFixture) -> None:
    """An extension that meets something unexpected is logged, and the import goes on."""
    sys.meta_path.insert(0, hooks.Finder({f"{package}.context": "context:extend_task_runner"}, {}))
    with caplog.at_level(logging.ERROR, "keepstate"):
        module = importlib.import_module(f"{package}.context")
    assert module.DONE
    assert f"keepstate could not extend {package}.context" in caplog.text


def test_an_older_provider_s_operator_stays_as_it_is(
    package: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One of before it could be durable gets nothing, and nothing is said."""
    (tmp_path / package / "glue.py").write_text("class GlueJobOperator:\n    pass\n")
    sys.meta_path.insert(0, hooks.Finder({f"{package}.glue": "providers:extend_glue"}, {}))
    module = importlib.import_module(f"{package}.glue")
    assert not hasattr(module.GlueJobOperator, "durable")
    assert caplog.records == []


def test_missing_modules_are_supplied_and_present_ones_are_not(package: str) -> None:
    """A module that the package lacks comes from keepstate, with its public names; one that it has stays its own."""
    ours = "keepstate.integrations.airflow.supplied.state"
    sys.meta_path.insert(0, hooks.Finder({}, {f"{package}.state": ours, f"{package}.context": ours}))
    supplied = importlib.import_module(f"{package}.state")
    assert supplied.TaskScope("d", "r", "t").map_index == -1
    assert sorted(supplied.__all__) == ["AssetScope", "BaseStoreBackend", "StoreScope", "TaskScope"]
    with pytest.raises(AttributeError, match="unheard_of"):
        _ = supplied.unheard_of
    assert importlib.import_module(f"{package}.context").DONE
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{package}.nothing")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Makes an Airflow of that version the one of this process, or none that tells its version."""

    def load(version: str | None) -> None:
        module = ModuleType("airflow")
        if version is not None:
            module.__dict__["__version__"] = version
        monkeypatch.setitem(sys.modules, "airflow", module)

    return load


@pytest.mark.parametrize(
    "version", ["3.4.0", "4.0.0", "2.10.5", "3.0.0", "3.0.1", "3.0.2", "3.0.2.post1", "3.0.0rc1", None]
)
def test_an_unknown_airflow_is_left_alone(
    version: str | None, loaded: Callable[[str | None], None], caplog: pytest.LogCaptureFixture
) -> None:
    """An Airflow that this keepstate does not know gets no extension, and one warning, and nothing else either."""
    loaded(version)
    before = list(sys.meta_path)
    hooks.install()
    assert sys.meta_path == before
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "it changes nothing here" in record.getMessage()
    assert [hooks.is_known(), hooks.is_below_3_3(), hooks.has_tabs()] == [False, False, False]


@pytest.mark.parametrize("version", ["2.11.0", "3.0.3", "3.0.10", "3.0.20", "3.1.0", "3.2.2"])
def test_a_known_airflow_below_3_3_is_known_as_such(
    version: str, loaded: Callable[[str | None], None]
) -> None:
    """Every release of a line counts, but those of 3.0 in which tasks talk otherwise to their supervisors."""
    loaded(version)
    assert hooks.is_known()
    assert hooks.is_below_3_3()


def test_loading_the_policy_imports_nothing_heavy() -> None:
    """What every Airflow process loads is a handful of small modules, whatever Airflow it is."""
    code = (
        "import sys; before = set(sys.modules); import keepstate.integrations.airflow.policy; "
        "print(' '.join(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not [one for one in loaded if one.startswith("airflow")]
    assert {one for one in loaded if one.startswith("keepstate")} == {
        "keepstate",
        "keepstate.integrations",
        "keepstate.integrations.airflow",
        "keepstate.integrations.airflow.hooks",
        "keepstate.integrations.airflow.policy",
    }


def test_an_accessor_is_made_at_its_first_use() -> None:
    """Looking at a context makes no store; using one makes it once."""
    made: list[dict[str, int]] = []

    def make() -> dict[str, int]:
        made.append({"page": 1})
        return made[-1]

    lazy = Lazy("task_state_store", make)
    assert repr(lazy) == "<task_state_store, not used yet>"
    assert not hasattr(lazy, "__html__")
    assert not hasattr(lazy, "_private")
    assert made == []
    assert [lazy.get("page"), lazy["page"]] == [1, 1]
    assert len(made) == 1


def test_a_pickled_accessor_says_that_it_is_elsewhere() -> None:
    """A task instance may be pickled with what it keeps; the copy refuses clearly."""
    copy = pickle.loads(pickle.dumps(Lazy("task_state_store", dict)))
    with pytest.raises(UnsupportedError, match="works only in the process of its task"):
        copy.get("page")


class Broken:
    """A backend that refuses."""

    address = "nowhere"

    def apply(self) -> Any:
        raise StaleAttemptError("too late", try_number=1, current_try_number=2)


def test_a_process_that_runs_more_than_one_attempt_does_not_leave() -> None:
    """Under `dag.test()` a refused attempt raises like any error, and the process, pytest's say, goes on."""
    code = (
        "from types import ModuleType, SimpleNamespace\n"
        "from tests.airflow.test_hooks import Broken\n"
        "from keepstate.integrations.airflow import context, stale\n"
        "module = ModuleType('airflow.models.taskinstance')\n"
        "module._get_template_context = dict\n"
        "module._execute_task = lambda ti, context, task: stale.Watched(Broken()).apply()\n"
        "context.extend_models(module)\n"
        "for job_id in (None, 7):\n"
        "    try:\n        module._execute_task(SimpleNamespace(job_id=job_id), {}, None)\n"
        "    except Exception as exc:\n        print(type(exc).__name__, flush=True)\n"
        "raise SystemExit(1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "StaleAttemptError\n"), done.stderr


def test_a_refused_process_leaves_with_success() -> None:
    """On 2.11, a process that was refused as a superseded attempt ends at once, and with success, whatever its task says."""
    code = (
        "from tests.airflow.test_hooks import Broken\n"
        "from keepstate.integrations.airflow import stale\n"
        "watched = stale.Watched(Broken())\n"
        "assert watched.address == 'nowhere'\n"
        "stale.leave_if_noticed()\n"
        "print('not yet', flush=True)\n"
        "try:\n    watched.apply()\nexcept Exception:\n    pass\n"
        "stale.leave_if_noticed()\n"
        "print('still here')\n"
        "raise SystemExit(1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "not yet\n"), done.stderr
    assert "leaves its task to the later one" in done.stderr
