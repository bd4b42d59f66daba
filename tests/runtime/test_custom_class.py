"""The local runtime over a custom class: entries go to the class, runs and attempts to the embedded store."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.programs import Programs

_CLASS = """
    import json
    from pathlib import Path

    from keepstate import BaseStoreBackend


    class Folder(BaseStoreBackend):
        def _file(self, scope, key):
            return Path(__file__).parent / "entries" / f"{scope.task_id}.{key}"

        def get(self, scope, key, *, session=None):
            file = self._file(scope, key)
            return file.read_text() if file.exists() else None

        def set(self, scope, key, value, *, expires_at=None, session=None):
            self._file(scope, key).parent.mkdir(exist_ok=True)
            self._file(scope, key).write_text(value)

        def delete(self, scope, key, *, session=None):
            self._file(scope, key).unlink(missing_ok=True)

        def clear(self, scope, *, all_map_indices=False, session=None):
            for file in (Path(__file__).parent / "entries").glob(f"{scope.task_id}.*"):
                file.unlink()

        async def aget(self, scope, key, *, session=None): ...
        async def aset(self, scope, key, value, *, expires_at=None, session=None): ...
        async def adelete(self, scope, key, *, session=None): ...
        async def aclear(self, scope, *, all_map_indices=False, session=None): ...
"""

_JOB = """
    import os, signal
    from pathlib import Path
    from keepstate import dag_run, task

    @task
    def load(task_state_store=None):
        for item in task_state_store.checkpoint(range(10)):
            with open("items", "a") as ledger:
                ledger.write(f"{item}\\n")
            if item == 4 and not Path("struck").exists():
                Path("struck").touch()
                os.kill(os.getpid(), signal.SIGKILL)

    with dag_run("etl", run_id="r1"):
        load()
"""


def _settings(programs: Programs) -> dict[str, str]:
    programs.write(_CLASS, "folder_class.py")
    path = os.pathsep.join([str(programs.folder), programs.environment["PYTHONPATH"]])
    return {"PYTHONPATH": path, "AIRFLOW__STATE_STORE__BACKEND": "folder_class.Folder"}


def test_a_killed_task_carries_on_from_what_the_class_holds(programs: Programs) -> None:
    """The checkpoint is read back from the class; nothing is repeated beyond the item in flight."""
    settings = _settings(programs)
    command = programs.python(_JOB)
    assert programs.run(command, **settings).returncode < 0
    second = programs.run(command, **settings)
    assert second.returncode == 0, second.stderr
    assert (programs.folder / "items").read_text().split() == [
        *map(str, range(5)),
        "4",
        *map(str, range(5, 10)),
    ]
    assert '"done":true' in (programs.folder / "entries" / "load.position").read_text()
    assert "attempt 1 was lost" in second.stderr


def test_a_finished_task_is_not_run_again_and_its_entries_go_when_asked(programs: Programs) -> None:
    """Success is noted beside the class, and ``clear_on_success`` clears the class."""
    settings = {**_settings(programs), "AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS": "True"}
    (programs.folder / "struck").touch()
    command = programs.python(_JOB)
    for _ in range(2):
        ended = programs.run(command, **settings)
        assert ended.returncode == 0, ended.stderr
    assert len((programs.folder / "items").read_text().split()) == 10
    assert not list((programs.folder / "entries").iterdir())


def test_a_task_with_other_arguments_starts_without_what_the_class_holds(programs: Programs) -> None:
    """It is not theirs; the same arguments find it again."""
    settings = _settings(programs)
    command = programs.python(
        """
        import sys
        from keepstate import dag_run, task

        @task
        def load(name, task_state_store=None):
            print(name, task_state_store.get("page", 0))
            task_state_store.set("page", 40)
            raise SystemExit(3)

        with dag_run("etl", run_id="r1"):
            load(sys.argv[1])
        """
    )
    first, same, other = (programs.run([*command, name], **settings) for name in ("a", "a", "b"))
    assert [ended.stdout.strip() for ended in (first, same, other)] == ["a 0", "a 40", "b 0"]
    assert "starts without state" not in same.stderr
    assert "starts without state" in other.stderr
    assert "What was stored was cleared." in other.stderr


def test_a_supervised_command_finds_its_entries_in_the_class(programs: Programs) -> None:
    """`keepstate run` supervises, and the shell's `keepstate get` and `set` reach the class."""
    settings = _settings(programs)
    shell = f"{sys.executable} -m keepstate set page 3 && {sys.executable} -m keepstate get page"
    command = [sys.executable, "-m", "keepstate", "run", "--task-id", "sh", "--", "sh", "-c", shell]
    ended = programs.run(command, **settings)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["3"]
    assert (programs.folder / "entries" / "sh.page").read_text() == "3"
