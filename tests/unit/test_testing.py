"""What keepstate gives to other people's tests, used as they would."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from keepstate.testing import ManualClock, contract

ROOT = Path(__file__).parents[2]


def run_pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest on a folder as a project of its own, with warnings as errors."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *arguments]
    found = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, timeout=110)
    return found.returncode, found.stdout + found.stderr


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    """And counts in whole microseconds, as keepstate does."""
    clock = ManualClock()
    assert clock() == clock()
    assert clock.now == datetime(2026, 1, 1, tzinfo=timezone.utc)
    clock.advance(timedelta(days=1, microseconds=1))
    assert clock.now == datetime(2026, 1, 2, microsecond=1, tzinfo=timezone.utc)
    clock.advance(timedelta(days=-1))
    assert clock.now == datetime(2026, 1, 1, microsecond=1, tzinfo=timezone.utc)
    start = datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc)
    assert ManualClock(start).now == start


def test_the_package_needs_no_pytest_until_it_is_asked_for() -> None:
    """The job system and the SSH server serve the demo too, where there is none."""
    code = "import sys, keepstate.testing; assert not {'pytest', '_pytest'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_dag_tests_get_a_store_of_their_own(tmp_path: Path) -> None:
    """One line in conftest.py, whatever the environment says; attempts follow each other, and time moves."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["keepstate.testing.fixtures"]\n')
    (tmp_path / "test_dag.py").write_text(
        textwrap.dedent(
            """
            from datetime import timedelta
            import os
            import keepstate
            import pytest

            os.environ["KEEPSTATE_HISTORY_LIMIT"] = "nonsense"

            def job(task_state_store, die):
                page = task_state_store.get("page", 0)
                task_state_store.set("page", page + 1)
                if die:
                    raise RuntimeError
                return page

            def test_a_retry_carries_on(task_state_store, next_attempt):
                with pytest.raises(RuntimeError):
                    job(task_state_store, die=True)
                assert job(next_attempt(), die=False) == 1
                with pytest.raises(keepstate.StaleAttemptError):
                    job(task_state_store, die=False)

            def test_each_test_begins_empty(task_state_store):
                assert list(task_state_store.items()) == []

            def test_time_moves(task_state_store, keepstate_clock):
                task_state_store.set("k", 1, retention=timedelta(hours=1))
                keepstate_clock.advance(timedelta(hours=1))
                assert task_state_store.get("k") is None

            def test_assets_and_other_tasks_are_in_the_store(keepstate_store):
                keepstate_store.asset("orders").set("k", 1)
                assert keepstate_store.asset("orders").get("k") == 1
            """
        )
    )
    code, said = run_pytest(tmp_path)
    assert code == 0, said
    assert "4 passed" in said


def test_a_backend_is_bound_in_ten_lines(tmp_path: Path) -> None:
    """As the docstring shows; what breaks a promise fails, with what was compared."""
    (tmp_path / "my_package.py").write_text(
        textwrap.dedent(
            """
            from keepstate.backends.memory import MemoryBackend

            class MyBackend(MemoryBackend):
                def __init__(self, folder):
                    super().__init__()

                def history(self, scope, key, *, now, limit=None):
                    return super().history(scope, key, now=now, limit=limit)[:1]
            """
        )
    )
    example = inspect.getdoc(contract) or ""
    begin, end = example.index("# tests/test_my_backend.py"), example.index("A class written for")
    (tmp_path / "test_my_backend.py").write_text(textwrap.dedent("    " + example[begin:end]))
    code, said = run_pytest(tmp_path, "-k", "each_key_has_its_own_history or no_increment")
    assert code == 1, said
    assert "passed" in said
    assert "FAILED test_my_backend.py::TestMyBackend::test_each_key_has_its_own_history" in said
    assert "assert [(4, 5)] == [(4, 5), " in said


def test_a_custom_class_is_bound_in_a_few_lines(tmp_path: Path) -> None:
    """It is handed over as it is."""
    source = ROOT / "tests" / "support" / "custom_class.py"
    (tmp_path / "custom_class.py").write_text(source.read_text())
    (tmp_path / "test_my_class.py").write_text(
        textwrap.dedent(
            """
            import pytest
            from custom_class import DictStore
            from keepstate.testing.contract import GuideContract

            class TestMyClass(GuideContract):
                @pytest.fixture
                def backend(self):
                    return DictStore()
            """
        )
    )
    code, said = run_pytest(tmp_path, "-k", "later_attempt or refused")
    assert code == 0, said


def test_a_binding_without_a_backend_says_what_to_do(tmp_path: Path) -> None:
    """Instead of passing on nothing."""
    (tmp_path / "test_nothing.py").write_text(
        "from keepstate.testing.contract import FourVerbs\n\n\nclass TestNothing(FourVerbs):\n    pass\n"
    )
    code, said = run_pytest(tmp_path)
    assert code == 1
    assert "a binding of the contract overrides the fixture `backend`" in said


@pytest.mark.parametrize("profile", [contract.GuideContract, contract.FullContract])
def test_no_topic_hides_another_ones_test(profile: type) -> None:
    """All tests are methods of one class, so each needs a name of its own."""
    homes: dict[str, str] = {}
    for topic in profile.__mro__:
        for name in vars(topic):
            if name.startswith("test_"):
                assert homes.setdefault(name, topic.__name__) == topic.__name__, name
    assert len(homes) > 30


def test_every_topic_is_in_a_profile() -> None:
    """But for what only a custom class refuses, and for copies, which not every backend can make."""
    topics = {
        value
        for name, value in vars(contract).items()
        if isinstance(value, type) and not name.endswith("Contract")
    }
    assert topics - set(contract.FullContract.__mro__) == {contract.Refusals, contract.Copies}
    assert contract.Refusals in contract.GuideContract.__mro__


def test_every_test_of_the_contract_says_what_it_promises() -> None:
    """In a docstring, as whoever fails it has nothing else to read."""
    for name, test in inspect.getmembers(contract.FullContract, inspect.isfunction):
        if name.startswith("test_"):
            assert test.__doc__, name
