"""The guide's own examples, with nothing changed but import lines, under `keepstate run`, killed in the middle.

The guide is not part of this repository, and nothing of it is written down here: its code is read from the file beside the
repository, and its indentation, which that file has lost, is put back from the depths below.
"""

from __future__ import annotations

import ast
import random
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from keepstate.testing.spool import SpoolJobSystem
from tests.examples.supervised import Supervised, killed_once, supervised

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate import StateStore
    from tests.support.programs import Programs
    from tests.support.ssh_server import SSHServer

GUIDE = Path(__file__).parents[3] / "shared" / "guide" / "task-state-store.md"
BLOCKS = re.compile(r"^```python[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)

# How deep each line of an example stands, in the order of the guide.
DEPTHS = {
    "taskflow": "00001122210011221121112012211222110",
    "python_operator": "0000112221011221121112011123322333221110",
    "custom_operator": "000011222101122221222332232223011221122211110",
    "extended_operator": "00000000112222122233322201112211222111110",
    "mixin_operator": "000112121212121212",
}

# Import lines by what they import, and what stands there instead.
IMPORTS = {
    "duration": "from datetime import timedelta as duration",
    "SSHHook": "from examples.ssh_hook import SSHHook",
    "SSHOperator": "from examples.ssh_operator import SSHOperator",
    "task": "from keepstate import task",
    "PythonOperator": "from keepstate import PythonOperator",
    "BaseOperator": "from keepstate import BaseOperator",
    "BaseOperator, ResumableJobMixin": "from keepstate import BaseOperator, ResumableJobMixin",
}

# The guide's job works for a minute; here it is a few seconds.
WORK = re.compile(r"\bsleep 60\b")
SECONDS = 2

# The guide shows the mixin's class, and leaves out its system and its use.
USE_OF_THE_MIXIN = """

import sys
from keepstate.testing.spool import SpoolJobSystem


class Hook:
    cluster = SpoolJobSystem(sys.argv[1])

    def submit(self, what):
        assert what is ...
        return self.cluster.submit(float(sys.argv[2]))

    def get_status(self, job):
        return self.cluster.status(job)

    def wait(self, job):
        assert self.cluster.wait(job) == "SUCCEEDED"


MyCustomResumableJobOperator.hook = Hook()
MyCustomResumableJobOperator(task_id="job")
print("done")
"""


def examples() -> dict[str, list[str]]:
    """Return the lines of the guide's examples, as they are in its file."""
    if not GUIDE.exists():
        pytest.skip(f"the guide is not here: {GUIDE}")
    blocks = [block.splitlines() for block in BLOCKS.findall(GUIDE.read_text(encoding="utf-8"))]
    return dict(zip(DEPTHS, (block for block in blocks if len(block) > 10), strict=True))


def restored(name: str, seconds: float = SECONDS) -> str:
    """Return an example with its indentation, keepstate's imports, and less work to do."""
    given = examples()[name]
    assert len(given) == len(DEPTHS[name]), "the guide has changed: its depths are to be counted again"
    changed = [replaced(line) if is_import(line) else WORK.sub(f"sleep {seconds}", line) for line in given]
    indented = [" " * 4 * int(depth) + line for depth, line in zip(DEPTHS[name], changed, strict=True)]
    ast.parse("\n".join(indented))
    return "\n".join(indented) + "\n"


def is_import(line: str) -> bool:
    """Say whether a line imports something."""
    return line.startswith(("from ", "import "))


def replaced(line: str) -> str:
    """Return what stands for an import line: another one, or the same where it is the standard library's."""
    return IMPORTS.get(line.partition(" import ")[2], line)


@pytest.mark.parametrize("name", DEPTHS)
def test_only_import_lines_are_changed(name: str) -> None:
    """And the number of seconds that the job works."""
    lines = restored(name, 60).splitlines()
    differing = [
        (old, new.strip()) for old, new in zip(examples()[name], lines, strict=True) if old != new.strip()
    ]
    assert all(is_import(old) and is_import(new) for old, new in differing)
    assert not any("airflow" in new or "pendulum" in new for _, new in differing)
    assert 1 <= len(differing) <= 3


def launches(server: SSHServer) -> int:
    """Return how many jobs the server was asked to launch."""
    return sum("nohup" in command for command in server.commands())


@pytest.mark.parametrize("name", [name for name in DEPTHS if name != "mixin_operator"])
def test_killed_in_the_middle_the_job_is_launched_once(
    programs: Programs, store: StateStore, ssh_server: SSHServer, name: str
) -> None:
    """The second attempt finds the pid, and waits for the job of the first."""
    path = programs.write(restored(name), f"{name}.py")
    before = launches(ssh_server)
    with supervised(programs, store, "run_ssh_command", path) as example:
        killed_once(example, "remote_pid")
        log = Path(f"/tmp/log_{example.run_id}.out")
        assert log.read_text() == "finished\n"
        for file in (log, log.with_name(f"{log.name}.rc")):
            file.unlink()
    assert launches(ssh_server) == before + 1


def test_killed_in_the_middle_the_mixins_job_is_submitted_once(programs: Programs, store: StateStore) -> None:
    """The second attempt reconnects."""
    path = programs.write(restored("mixin_operator") + USE_OF_THE_MIXIN)
    with SpoolJobSystem(programs.folder / "cluster") as cluster:
        with supervised(programs, store, "job", path, cluster.directory, SECONDS) as example:
            assert killed_once(example, "my_job_id") == "done\n"
            assert example.stored("my_job_id") == cluster.submissions()[0].id
        assert len(cluster.submissions()) == 1


KILLS = 10


def killed_often(example: Supervised, submissions: Callable[[], int], stored: Callable[[], object]) -> int:
    """Kill an example at random moments, and return how often that was between a submission and storing its id.

    The guide admits to that moment. Its code can't tell an earlier submission then, so there may be one more for each.
    """
    done, in_between = 0, 0
    while done < KILLS and example.process.poll() is None:
        before = submissions()
        time.sleep(random.uniform(0.0, 1.2))
        if example.kill():
            done += 1
            in_between += submissions() > before and stored() is None
    return in_between


@pytest.mark.slow
@pytest.mark.parametrize("name", DEPTHS)
def test_killed_often_at_random_moments(
    programs: Programs, store: StateStore, ssh_server: SSHServer, name: str
) -> None:
    """Fifty kills over the five examples: no second submission while the first one's id is stored."""
    seconds = KILLS
    with SpoolJobSystem(programs.folder / "cluster") as cluster:
        text, task_id, key = restored(name, seconds), "run_ssh_command", "remote_pid"
        before = launches(ssh_server)

        def submissions() -> int:
            return launches(ssh_server) - before + len(cluster.submissions())

        if name == "mixin_operator":
            text, task_id, key = text + USE_OF_THE_MIXIN, "job", "my_job_id"
        path = programs.write(text, f"{name}.py")
        command = (path, cluster.directory, seconds)
        with supervised(programs, store, task_id, *command, retries=2 * KILLS) as example:
            in_between = killed_often(example, submissions, lambda: example.stored(key))
            example.finish()
            states = [attempt.state for attempt in example.attempts]
            for file in Path("/tmp").glob(f"log_{example.run_id}.out*"):
                file.unlink()
        assert states[0] == "success"
        assert set(states[1:]) <= {"lost"}
        assert submissions() <= 1 + in_between
