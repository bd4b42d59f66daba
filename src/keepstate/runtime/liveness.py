"""Whether the process that carries out an attempt is still there.

A process is known by its pid and the time at which it started, as a later process may have the same pid. Both mean
something only within one boot of one machine, and one pid namespace of it: elsewhere nothing is known, and the lease
decides.
"""

from __future__ import annotations

import os
import sys
from enum import Enum

from keepstate.backends.requests import Holder

_LINUX = sys.platform == "linux"


class Presence(Enum):
    """What is known of the process that holds an attempt."""

    ALIVE = "alive"
    ENDING = "ending"
    """It is gone, and its guard is still ending what it left behind."""
    GONE = "gone"
    ELSEWHERE = "elsewhere"
    """It belongs to another machine or container, of whose processes nothing is known here."""


def this_process(guard: int | None = None) -> Holder:
    """Return this process as the holder of attempts; ``guard`` is the pid of a process that cleans up after it."""
    facts = [_place(), _born(os.getpid()) or "?"]
    if guard is not None:
        facts += [str(guard), _born(guard) or "?"]
    return Holder(host=os.uname().nodename, pid=os.getpid(), started=" ".join(facts))


def presence_of(host: str | None, pid: int | None, started: str | None) -> Presence:
    """Return what is known here of a holder, as it was stored."""
    facts = (started or "").split()
    if host != os.uname().nodename or pid is None or len(facts) not in {2, 4} or facts[0] != _place():
        return Presence.ELSEWHERE
    if _is(pid, facts[1]):
        return Presence.ALIVE
    if facts[2:] and _is(int(facts[2]), facts[3]):
        return Presence.ENDING
    return Presence.GONE


def _place() -> str:
    """Return what tells this boot of this machine and this pid namespace from others."""
    if not _LINUX:
        return "-"
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123 - see names.py
            boot = file.read().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - see names.py
    except OSError:
        return "-"


def _is(pid: int, born: str) -> bool:
    found = _born(pid)
    return found is not None and (found == born or "?" in {found, born})


def _born(pid: int) -> str | None:
    """Return when a process started, in whatever unit the system tells; ``None`` if it is no more, ``?`` if unknown."""
    if not _LINUX:
        return _born_by_ps(pid)
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - see names.py
            # the name in brackets may hold anything, brackets too
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return _exists(pid)
    # a zombie has ended, whoever has yet to take note of it
    return None if fields[0] in {"Z", "X"} else fields[19]


def _exists(pid: int) -> str | None:
    """Say whether there is a process, where ``/proc`` is missing or hides those of other users."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return "?"


def _born_by_ps(pid: int) -> str | None:
    import subprocess

    told = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],  # noqa: S607 - wherever this system keeps it
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout.split()
    return "_".join(told[1:]) if told and not told[0].startswith("Z") else None
