"""Loading Airflow, with keepstate in its environment and without: each of its processes does so once."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import places
from bench.contenders import Contender, ContenderError, Group, Manner, Opened, Operation
from tests.support.airflow import environment, keeping_out

if TYPE_CHECKING:
    from collections.abc import Iterator

# the one whose modules are extended in most places
VERSION = "3.1.8"
_LOAD = """
import time
begun = time.process_time_ns()
import airflow.settings
print(time.process_time_ns() - begun)
"""


@contextmanager
def loading(where: str, *, is_kept_out: bool) -> Iterator[Opened]:
    """Load Airflow in one process after the other."""
    airflow = environment(VERSION)
    home = Path(where, str(is_kept_out))
    (home / "empty").mkdir(parents=True)
    # a path to look at first costs both of them the same
    first = keeping_out(home) if is_kept_out else home / "empty"
    environ = airflow.environ(home, PYTHONPATH=str(first))
    command = [str(airflow.python), "-c", _LOAD]

    def once() -> int:
        done = subprocess.run(command, env=environ, cwd=home, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ContenderError(f"Airflow can't be loaded: {done.stderr.strip().splitlines()[-1]}")
        return int(done.stdout.split()[-1])

    yield Opened(
        {"load": lambda count: [once() for _ in range(count)]},
        Manner(VERSION, "", "`import airflow.settings`: processor time, taken inside the process"),
    )


GROUP = Group(
    name="airflow-import",
    title="Loading Airflow",
    contenders=(
        Contender("Airflow", partial(loading, is_kept_out=True), to_open=600.0),
        Contender("with keepstate", partial(loading, is_kept_out=False), to_open=600.0),
    ),
    operations=(Operation("load", rounds=31, samples=1, warm_up=3),),
    place=places.folder,
)
