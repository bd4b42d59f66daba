"""Real Airflow for the slow tests: an environment for each version, made by uv once and kept in `.cache/venvs`."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]

# Without Airflow's constraint files, these make the version run.
PINS: dict[str, tuple[str, ...]] = {
    "2.11.2": ("apache-airflow-providers-standard", "psycopg2-binary"),
    "3.0.6": ("fastapi==0.116.1", "pyjwt<2.11"),
    "3.1.8": ("asyncpg", "psycopg2-binary"),
    "3.2.2": ("fastapi<0.137", "svcs<26.2"),
    "3.3.2": (),
}


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
    with (venvs / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = [f"apache-airflow=={version}", *PINS[version], *more]
        _once(
            airflow.folder / "made-by",
            "\n".join([sys.version, str(ROOT), *wanted]),
            ["venv", "--clear", "--python", sys.executable, str(airflow.folder)],
            ["pip", "install", "--python", str(airflow.python), *wanted],
        )
        yield airflow


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
