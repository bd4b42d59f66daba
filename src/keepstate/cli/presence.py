"""Whether an attempt that is recorded as running still is: a process that was killed could not record its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from keepstate.runtime.liveness import Presence, presence_of

if TYPE_CHECKING:
    from datetime import datetime

    from keepstate.backends.requests import HeldScope
    from keepstate.scope import Attempt
    from keepstate.store import StateStore


class Sight(NamedTuple):
    """What is known of the process of an attempt.

    ``word`` is ``alive``, ``ending`` (it is gone, and what it left behind is being ended), ``gone``, ``silent`` (on another
    host, and the last heartbeat is older than the lease), or ``unknown``.
    """

    word: str
    says: str = ""

    @property
    def lost(self) -> bool:
        """Whether the attempt is likely to be lost."""
        return self.word in {"gone", "silent"}


def sight(attempt: Attempt, store: StateStore, now: datetime) -> Sight | None:
    """Return what is known of a running attempt; ``None`` for one that has ended."""
    if attempt.state != "running":
        return None
    presence = presence_of(attempt.host, attempt.pid, attempt.process_started)
    if presence is Presence.GONE:
        return Sight("gone", "its process is gone")
    if presence is not Presence.ELSEWHERE:
        return Sight(presence.value)
    if attempt.host is None:
        # an engine began it, and sees to it
        return Sight("unknown")
    silence = (now - (attempt.beat_at or attempt.started_at)).total_seconds()
    if silence * 1_000_000 < store.settings.lease:
        return Sight("alive")
    from keepstate.cli.times import span

    return Sight("silent", f"no heartbeat for {span(max(int(silence), 1))}")


def sight_of(store: StateStore, scope: HeldScope, now: datetime) -> Sight | None:
    """Return what is known of a scope's current attempt."""
    latest = next(iter(store.backend.attempts(scope)), None)
    return None if latest is None else sight(latest, store, now)
