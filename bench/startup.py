"""Starting: whole processes, from being asked for to their end."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING

from bench import places
from bench.contenders import Contender, ContenderError, Group, Manner, Opened, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SCRIPTS = Path(sys.executable).parent
_FIRST_SET = "import keepstate; keepstate.connect().task('bench', 'run', 'load').set('page', 40)"


@contextmanager
def process(command: Sequence[str], where: str) -> Iterator[Opened]:
    """Run a command to its end, over and over, with an embedded store of its own."""
    if not Path(command[0]).exists():
        raise ContenderError(f"{command[0]} is not installed")
    home = Path(where, str(os.getpid()))
    environment = {**os.environ, "KEEPSTATE_HOME": str(home)}

    def once() -> int:
        with Path(os.devnull).open("rb+") as nothing:
            streams = [(os.POSIX_SPAWN_DUP2, nothing.fileno(), stream) for stream in (0, 1, 2)]
            start = perf_counter_ns()
            pid = os.posix_spawn(command[0], tuple(command), environment, file_actions=streams)
            _, status = os.waitpid(pid, 0)
            taken = perf_counter_ns() - start
        if status:
            raise ContenderError(f"{_shown(command)} exits with {os.waitstatus_to_exitcode(status)}")
        return taken

    # said once with its words, where a failure among the samples is but a number
    tried = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if tried.returncode:
        said = tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"]
        raise ContenderError(f"{_shown(command)} fails: {said[-1]}")
    yield Opened(
        {"start": lambda count: [once() for _ in range(count)]},
        Manner(platform.python_version(), "", _shown(command)),
    )


def _shown(command: Sequence[str]) -> str:
    name = "python" if command[0] == sys.executable else Path(command[0]).name
    return " ".join(
        [name, *(part if part.isidentifier() or part[:1] == "-" else f'"{part}"' for part in command[1:])]
    )


def _python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


GROUP = Group(
    name="startup",
    title="Whole processes",
    contenders=(
        Contender("python", partial(process, _python("pass"))),
        Contender("import keepstate", partial(process, _python("import keepstate"))),
        Contender("first set", partial(process, _python(_FIRST_SET))),
        Contender("keepstate run", partial(process, (str(_SCRIPTS / "keepstate"), "run", "--", "true"))),
    ),
    # one sample a round: A B C D, A B C D
    operations=(Operation("start", rounds=41, samples=1, warm_up=3),),
    place=places.folder,
)
