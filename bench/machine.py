"""What a run was made on: figures mean nothing without it."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import time
from pathlib import Path

_GIB = 1024**2
"""A gibibyte in the kibibytes that /proc/meminfo counts in."""


def describe(folder: Path) -> dict[str, str]:
    """Return processor, memory, file system of ``folder``, and versions."""
    return {
        "Processor": f"{_field('/proc/cpuinfo', 'model name')}, {os.cpu_count()} cores",
        "Memory": _memory(),
        "File system": f"{_file_system(folder)} ({folder})",
        "System": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "SQLite": sqlite3.sqlite_version,
        "keepstate": _revision(),
    }


class Neighbours:
    """What others did meanwhile: the part of all processors' time that neither this process nor its children took.

    Where processors are short, a write waits for its turn after every sync, milliseconds long, whoever makes it. Ratios
    then come out near 1, or anywhere: four busy loops beside it brought one of nearly 2 down to 1.1.
    """

    CALM = 0.1
    """The most at which a run still says something."""

    def __init__(self) -> None:
        """Begin to count."""
        self._start = time.monotonic()
        self._all, self._own = _busy(), _own()

    def share(self) -> float | None:
        """Return their part since the beginning, from 0 to 1, or ``None`` where the system doesn't tell.

        Children count from when they have ended, so all that were started must have.
        """
        now = _busy()
        if now is None or self._all is None:
            return None
        others = (now - self._all) - (_own() - self._own)
        return max(0.0, others / ((time.monotonic() - self._start) * (os.cpu_count() or 1)))


def _busy() -> float | None:
    """Return the seconds that all processors have worked since the machine started."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, first.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    return sum(os.times()[:4])


def _revision() -> str:
    """Return the commit that is measured, and whether the sources differ from it."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    try:
        head = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
        changed = subprocess.check_output([*git, "status", "--porcelain", "--", "src", "bench"], text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown commit"
    return f"commit {head}, with changes that are not committed" if changed.strip() else f"commit {head}"


def _field(file: str, name: str) -> str:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "unknown")


def _memory() -> str:
    number, _, unit = _field("/proc/meminfo", "MemTotal").partition(" ")
    return f"{int(number) / _GIB:.1f} GiB" if unit == "kB" else "unknown"


def _file_system(folder: Path) -> str:
    """Return the type of the file system that ``folder`` is on: that of the longest mount point above it."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return "unknown"
    above = [(Path(point), kind) for point, kind in mounts if folder.resolve().is_relative_to(point)]
    return max(above, key=lambda mount: len(mount[0].parts))[1] if above else "unknown"
