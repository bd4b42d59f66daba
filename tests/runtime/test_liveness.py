"""Which processes count as there: by pid and start, on this boot of this machine, in this pid namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from keepstate.runtime import liveness
from keepstate.runtime.liveness import Presence, presence_of, this_process

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives as long as the test."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_this_process_is_alive() -> None:
    """And so it is for a forked child, that asks for its parent."""
    me = this_process()
    assert (me.host, me.pid) == (os.uname().nodename, os.getpid())
    assert presence_of(me.host, me.pid, me.started) is Presence.ALIVE
    child = os.fork()
    if child == 0:
        os._exit(presence_of(me.host, me.pid, me.started) is not Presence.ALIVE)
    assert os.waitpid(child, 0)[1] == 0


def test_a_process_that_ended_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    """Also before its parent has collected it."""
    place = this_process().started.split()[0]
    started = f"{place} {liveness._born(sleeper.pid)}"
    assert presence_of(os.uname().nodename, sleeper.pid, started) is Presence.ALIVE
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert presence_of(os.uname().nodename, sleeper.pid, started) is Presence.GONE
    sleeper.wait()
    assert presence_of(os.uname().nodename, sleeper.pid, started) is Presence.GONE


def test_another_process_with_the_same_pid_is_another(sleeper: subprocess.Popen[bytes]) -> None:
    """A pid that was given again does not keep an attempt alive."""
    me = this_process()
    place = me.started.split()[0]
    assert presence_of(me.host, sleeper.pid, f"{place} 12345") is Presence.GONE
    assert presence_of(me.host, sleeper.pid, f"{place} ?") is Presence.ALIVE


def test_a_guard_is_still_ending_what_was_left(sleeper: subprocess.Popen[bytes]) -> None:
    """While the guard of a dead process lives, the attempt is neither alive nor gone."""
    holder = this_process(guard=sleeper.pid)
    place, _, guard, born = holder.started.split()
    assert presence_of(holder.host, holder.pid, holder.started) is Presence.ALIVE
    dead = f"{place} 12345 {guard} {born}"
    assert presence_of(holder.host, holder.pid, dead) is Presence.ENDING
    sleeper.kill()
    sleeper.wait()
    assert presence_of(holder.host, holder.pid, dead) is Presence.GONE


@pytest.mark.parametrize("change", ["host", "boot", "namespace", "no start", "no pid", "nonsense"])
def test_of_other_places_nothing_is_known(change: str) -> None:
    """Another host or boot, another container, or a store written by something else: the lease decides."""
    me = this_process()
    place, born = me.started.split()
    boot, _, namespace = place.partition("/")
    host: str | None = me.host
    pid: int | None = me.pid
    started: str | None = me.started
    if change == "host":
        host = "elsewhere"
    elif change == "boot":
        started = f"{boot[::-1]}/{namespace} {born}"
    elif change == "namespace":
        started = f"{boot}/pid:[1] {born}"
    elif change == "no start":
        started = None
    elif change == "no pid":
        pid = None
    else:
        started = "a b c"
    assert presence_of(host, pid, started) is Presence.ELSEWHERE


def test_without_proc(monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]) -> None:
    """Where /proc hides a process, its pid alone tells; nothing that exists is taken for gone."""
    real = open
    monkeypatch.setattr(
        liveness,
        "open",
        lambda path, **more: real("/nowhere") if "stat" in path else real(path, **more),
        raising=False,
    )
    assert liveness._born(sleeper.pid) == "?"
    assert liveness._born(1) == "?"
    sleeper.kill()
    sleeper.wait()
    assert liveness._born(sleeper.pid) is None


def test_by_ps(monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]) -> None:
    """On systems without /proc, `ps` tells when a process started."""
    monkeypatch.setattr(liveness, "_LINUX", False)
    me = this_process()
    assert presence_of(me.host, me.pid, me.started) is Presence.ALIVE
    born = liveness._born(sleeper.pid)
    assert born
    assert presence_of(me.host, sleeper.pid, f"- {born}") is Presence.ALIVE
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert presence_of(me.host, sleeper.pid, f"- {born}") is Presence.GONE
    assert sys.platform != "never"
