"""Numbered migrations of keepstate's own tables, applied in order and noted in ``keepstate_migration``.

Our own dozen lines rather than Alembic: the embedded store must open without importing SQLAlchemy, and the tables must be
able to live in a database whose Alembic history belongs to Airflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

_NAMES = ("0001_initial", "0002_tokens", "0003_copies")


@dataclass(frozen=True)
class Migration:
    """One step. Statements have ``{placeholders}`` for the column types that differ between databases.

    MySQL commits each statement that changes tables by itself, and a step that was cut short is run again from its
    beginning: what is made or dropped already is passed over, so a statement that changes rows has to be one that may be
    run twice.
    """

    number: int
    name: str
    up: tuple[str, ...]
    down: tuple[str, ...]


LATEST = len(_NAMES)


def pending(after: int) -> list[Migration]:
    """Return the migrations after number ``after``, in order."""
    return [_load(name) for name in _NAMES[after:]]


def applied(up_to: int, down_to: int) -> list[Migration]:
    """Return the migrations to take back to get from ``up_to`` to ``down_to``, latest first."""
    return [_load(name) for name in reversed(_NAMES[down_to:up_to])]


def _load(name: str) -> Migration:
    module = import_module(f"{__name__}.m{name}")
    return Migration(int(name.partition("_")[0]), name, module.UP, module.DOWN)
