"""Real Airflow for the slow tests: an environment for each version, made by uv once and kept in `.cache/venvs`."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]

# What the tests use in every version.
_EVERYWHERE = ("apache-airflow-providers-ssh", "psycopg2-binary")
# Without Airflow's constraint files, these make the version run.
PINS: dict[str, tuple[str, ...]] = {
    "2.11.2": (*_EVERYWHERE, "apache-airflow-providers-standard"),
    "3.0.6": (*_EVERYWHERE, "asyncpg", "fastapi==0.116.1", "pyjwt<2.11"),
    "3.1.8": (*_EVERYWHERE, "asyncpg"),
    "3.2.2": (*_EVERYWHERE, "asyncpg", "fastapi<0.137", "svcs<26.2"),
    "3.3.2": (*_EVERYWHERE, "asyncpg"),
}

_IN_TURN = """
import json, sys
from airflow.cli.cli_parser import get_parser
for command in json.loads(sys.argv[1]):
    arguments = get_parser().parse_args(command)
    arguments.func(arguments)
"""


@dataclass(frozen=True)
class Airflow:
    """An environment with that version of Airflow; keepstate in it is as it stands in this tree."""

    version: str
    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def environ(self, home: Path, **more: str) -> Mapping[str, str]:
        """Return an environment for programs of that Airflow, which keeps everything it writes in ``home``."""
        ours = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"}
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ours and not name.startswith(("AIRFLOW", "KEEPSTATE"))
        }
        return {
            **kept,
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            **more,
        }

    def migrate(self, environ: Mapping[str, str]) -> None:
        """Make the metadata database; a plain one of SQLite is a copy of one which is made once for each version."""
        if not {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW__CORE__AUTH_MANAGER"}.isdisjoint(environ):
            self.run(["airflow", "db", "migrate"], environ)
            return
        made = self.folder / "migrated"
        with _locked(made.with_suffix(".lock")):
            if not made.exists():
                with tempfile.TemporaryDirectory() as folder:
                    self.run(["airflow", "db", "migrate"], self.environ(Path(folder)))
                    shutil.move(Path(folder) / "airflow.db", made)
        shutil.copy(made, Path(environ["AIRFLOW_HOME"]) / "airflow.db")

    def in_turn(self, environ: Mapping[str, str], *commands: list[str]) -> str:
        """Run Airflow's commands one after the other in one process, as most of their time is spent on starting."""
        return self.run([str(self.python), "-c", _IN_TURN, json.dumps(commands)], environ)

    def dags_test(self, environ: Mapping[str, str], path: Path, *dag_ids: str) -> str:
        """Run the DAGs of a file, each once, in one process."""
        where = "--subdir" if self.version.startswith("2.") else "--dagfile-path"
        commands = [["dags", "test", dag_id, where, str(path)] for dag_id in dag_ids]
        if self.version.startswith("3.0"):
            # it takes assets for inactive until they have been seen in a DAG file
            commands.insert(0, ["dags", "reserialize"])
        return self.in_turn(environ, *commands)

    def run(self, command: list[str], environ: Mapping[str, str]) -> str:
        """Run a program and return what it printed; fails the test, with all its output, when it failed."""
        done = subprocess.run(
            command,
            env=environ,
            cwd=environ["AIRFLOW_HOME"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, f"{command} on Airflow {self.version}:\n{done.stdout}\n{done.stderr}"
        return done.stdout


def environment(version: str, *providers: str) -> Airflow:
    """Return the environment of a version, with these providers besides its own, making it if it isn't there."""
    name = "-".join(["airflow", version, *(one.rpartition("-")[2] for one in providers)])
    with _environment(name, version, *providers) as airflow:
        _once(
            airflow.folder / "keepstate-made-by",
            # the tree is read as it stands, but where Airflow enters it is noted when it is installed
            _entry_points(),
            # what it depends on is there already, in the versions that Airflow wants
            ["pip", "install", "--python", str(airflow.python), "--no-deps", "--editable", str(ROOT)],
        )
    return airflow


def keeping_out(home: Path) -> Path:
    """Return a folder that, first on the path for imports, keeps keepstate out of an Airflow which has it installed."""
    folder = home / "without"
    room = folder / "keepstate" / "integrations" / "airflow"
    room.mkdir(parents=True)
    # empty modules where Airflow enters
    for module in ("policy.py", "plugin.py", "__init__.py", "../__init__.py", "../../__init__.py"):
        (room / module).write_text("")
    return folder


def native_environment(version: str) -> Airflow:
    """Return an environment of a version without keepstate, for SQLite and PostgreSQL, making it if it isn't there."""
    with _environment(f"native-airflow-{version}", version, "psycopg2-binary", "asyncpg") as airflow:
        return airflow


@contextmanager
def _environment(name: str, version: str, *more: str) -> Iterator[Airflow]:
    """Make an environment if it isn't there; who else wants it waits until the block is left."""
    venvs = ROOT / ".cache" / "venvs"
    airflow = Airflow(version, venvs / name)
    venvs.mkdir(parents=True, exist_ok=True)
    (ROOT / ".cache" / ".gitignore").write_text("*\n")
    with _locked(venvs / f"{name}.lock"):
        wanted = [f"apache-airflow=={version}", *PINS[version], *more]
        _once(
            airflow.folder / "made-by",
            "\n".join([sys.version, str(ROOT), *wanted]),
            ["venv", "--clear", "--python", sys.executable, str(airflow.folder)],
            ["pip", "install", "--python", str(airflow.python), *wanted],
        )
        yield airflow


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _once(note: Path, recipe: str, *commands: list[str]) -> None:
    """Run uv's commands, unless they have been run by the same recipe."""
    if note.exists() and note.read_text() == recipe:
        return
    uv = os.environ.get("UV") or str(ROOT / ".venv" / "bin" / "uv")
    for arguments in commands:
        subprocess.run([uv, "--quiet", *arguments], check=True, timeout=900)
    note.write_text(recipe)


def _entry_points() -> str:
    """Return what keepstate declares to Airflow and to the shell."""
    sections = re.split(r"^(?=\[)", (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    wanted = ("[project.entry-points", "[project.scripts]")
    return "".join(section for section in sections if section.startswith(wanted))
