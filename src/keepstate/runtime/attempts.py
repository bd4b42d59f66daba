"""One held attempt: begun, kept alive by heartbeats, and ended."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from keepstate.allowance import LAST_WORDS, Allowance, latest
from keepstate.backends.fencing import is_newer
from keepstate.backends.requests import Begin, End, Fence
from keepstate.clock import SECOND
from keepstate.errors import (
    AlreadyRunningError,
    BackendUnavailableError,
    KeepstateError,
    StaleAttemptError,
)
from keepstate.runtime.liveness import Presence, presence_of, this_process
from keepstate.store import new_attempt_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.backends.answers import Begun
    from keepstate.backends.requests import HeldScope
    from keepstate.store import StateStore

log = logging.getLogger("keepstate.runtime")

# longer than any clock counts: an attempt of this host is not judged by its heartbeats, but by its process
_NO_LEASE = 2**62
_GLANCE = 0.05
# how long a guard may take to end what a killed supervisor left behind
_ENDING = 15.0
_LONGEST_REASON = 2000
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# how long the end of work that succeeded is tried to be recorded, where losing it means doing the work again
PATIENCE = 60.0
_BETWEEN_TRIES = 1.0


def on_the_way_out(store: StateStore, error: BaseException) -> Allowance:
    """Return the time for all that is to be stored of an error together: a single request's, less where the process is to end."""
    seconds = store.settings.retry_timeout
    return Allowance(seconds if isinstance(error, Exception) else min(seconds, LAST_WORDS))


def describe(error: BaseException) -> str:
    """Return the reason that an error is; its own text may fail, as it is somebody else's code."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - a class may raise whatever it likes
        return f"{type(error).__name__}, whose text can't be told"


def _storable(reason: str) -> str:
    """Return a text that every store can hold: of bounded length, without lone surrogates and control characters."""
    text = reason[:_LONGEST_REASON].encode("utf-8", "backslashreplace").decode()
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)[:_LONGEST_REASON]


class Displaced:
    """A holder, as the store knows it: of an attempt that lives, and was taken over."""

    def __init__(self, host: str | None, pid: int | None, started: str | None) -> None:
        self._facts = host, pid, started

    @property
    def presence(self) -> Presence:
        """What is known of its process now."""
        return presence_of(*self._facts)


class HeldAttempt:
    """An attempt of a task instance or run that this process carries out, from its beginning to its recorded end.

    ``overtaken`` turns true when a heartbeat learns that a later attempt has begun; ``on_overtaken`` is then called once,
    on the thread of the heartbeats, and whoever set it is to tell people. ``fate`` says what became of the ``lost`` ones.
    """

    def __init__(
        self,
        store: StateStore,
        scope: HeldScope,
        attempt_id: str,
        begun: Begun,
        displaced: Displaced | None,
        fate: str,
    ) -> None:
        self.store = store
        self.scope = scope
        self.fence = Fence(begun.try_number, attempt_id, incarnation=begun.incarnation)
        self.lost = begun.lost
        self.displaced = displaced
        self.fate = fate
        self.overtaken = False
        self.on_overtaken: Callable[[], None] | None = None
        self._process = os.getpid()

    @property
    def try_number(self) -> int:
        """The number of this attempt; numbers go on over restarts."""
        return self.fence.try_number

    @property
    def attempt_id(self) -> str:
        """The unique, time-ordered id of this attempt."""
        return self.fence.attempt_id or ""

    def check(self) -> None:
        """Give a sign of life. Raises ``StaleAttemptError`` when a later attempt has begun."""
        try:
            self.store.backend.beat(self.scope, self.fence, now=self.store.clock())
        except StaleAttemptError:
            self.overtaken = True
            raise

    def beat(self) -> None:
        """Give a sign of life; trouble is logged, as it is no reason to stop the work: the next beat may get through."""
        try:
            self.check()
        except StaleAttemptError as exc:
            _heart.release(self)
            self._tell_overtaken(exc)
        except KeepstateError as exc:
            log.warning("A heartbeat of %s could not be stored, and is tried again: %s", self.scope, exc)
        except Exception:  # whatever it is, the other attempts' hearts must beat on
            log.exception("A heartbeat of %s could not be stored, and is tried again", self.scope)

    def _tell_overtaken(self, error: StaleAttemptError) -> None:
        if self.on_overtaken is None:
            log.warning("%s", error)
            return
        try:
            self.on_overtaken()
        except Exception:  # as above
            log.exception("%s was overtaken, and what was to follow from that has failed", self.scope)

    def end(
        self,
        state: str,
        *,
        reason: str | None = None,
        result: str | None = None,
        arguments: str | None = None,
        clear: bool = False,
        patience: float = 0,
    ) -> None:
        """Record the end, and let go. Raises ``StaleAttemptError``, with nothing changed, if a later attempt has begun.

        While the store can't be reached it is tried again, for ``patience`` seconds beyond the store's own.
        A forked child that comes by does nothing: the attempt is its parent's.
        """
        if os.getpid() != self._process:
            return
        self.release()
        store = self.store
        request = End(
            scope=self.scope,
            fence=self.fence,
            state=state,
            now=store.clock(),
            reason=reason and _storable(reason),
            result=result,
            arguments=arguments,
            clear=clear,
            history=store.history_policy,
        )
        deadline = time.monotonic() + patience
        while True:
            try:
                store.backend.end(request)
            except BackendUnavailableError as exc:
                if time.monotonic() >= min(deadline, latest()):
                    raise
                log.warning(
                    "The end of %s (%s) could not be stored, and it is tried again: %s",
                    self.scope,
                    state,
                    exc,
                )
                time.sleep(_BETWEEN_TRIES)
            else:
                return

    def release(self) -> None:
        """Stop the heartbeats, without recording an end."""
        _heart.release(self)


def begin(
    store: StateStore,
    scope: HeldScope,
    *,
    item: str | None = None,
    take_over: bool = False,
    hold: HeldAttempt | None = None,
    guard: int | None = None,
    own: list[str] | None = None,
) -> HeldAttempt:
    """Begin the next attempt of a task instance or run, and keep it alive until its `end`.

    An attempt on this host is lost as soon as its process is gone, and lives as long as that does, whatever the store's clock
    says; one on another host is lost after the lease.

    ``hold`` is the attempt by which this process holds the run of a task: for what an earlier holder left behind on another
    host the lease is waited for, and where the run was taken over, its tasks are too. ``own`` lists the attempts that the
    caller itself has made before and is done with, whether or not their end could be stored; this one is added. ``guard`` is
    the pid of the process that cleans up after this one.

    Raises ``AlreadyRunningError`` while a living process holds the scope, unless ``take_over`` is set.
    """
    attempt_id = new_attempt_id(store.clock)
    earlier = frozenset(own or ())
    if own is not None:
        # before the store is asked: the answer may be lost
        own.append(attempt_id)
    request = Begin(
        scope=scope,
        attempt_id=attempt_id,
        holder=this_process(guard),
        now=store.clock(),
        lease=_NO_LEASE,
        item=item,
        history=store.history_policy,
    )
    begun, displaced, was_own = _begin(store, request, hold, earlier, take_over=take_over)
    fate = "was taken over" if displaced else "was lost: its process is gone"
    if was_own:
        fate = "has ended, which could not be stored then"
    attempt = HeldAttempt(store, scope, attempt_id, begun, displaced, fate)
    if begun.lost:
        numbers = ", ".join(map(str, begun.lost))
        log.warning("%s: attempt %s %s", scope, numbers, fate)
    if begun.reset:
        kept = "was cleared" if store.backend.guide_only else "is in the history"
        log.warning(
            "%s starts without state: it is called with other arguments than the attempt that wrote it. "
            "What was stored %s.",
            scope,
            kept,
        )
    _heart.hold(attempt)
    return attempt


def _begin(
    store: StateStore, request: Begin, hold: HeldAttempt | None, own: frozenset[str], *, take_over: bool
) -> tuple[Begun, Displaced | None, bool]:
    """Ask the store, and where it says no, look whether the holder is still there: what the store can't see."""
    lease = store.settings.lease
    began = time.monotonic()

    def within(seconds: float) -> bool:
        return time.monotonic() < min(began + seconds, latest())

    displaced = None
    was_own = False
    while True:
        request = replace(request, now=store.clock())
        try:
            return store.backend.begin(request), displaced, was_own
        except AlreadyRunningError as held:
            facts = vars(held)
            seen = Fence(held.try_number or 0, facts.get("attempt_id"))
            holder = Displaced(held.host, held.pid, facts.get("started"))
            presence = holder.presence
            inherited = hold is not None and is_newer(hold.attempt_id, seen.attempt_id) is True
            if seen.attempt_id in own and seen != request.dead:
                request, was_own = replace(request, dead=seen), True
            elif presence is Presence.GONE and seen != request.dead:
                request = replace(request, dead=seen)
            elif presence is Presence.ELSEWHERE and request.lease == _NO_LEASE:
                request = replace(request, lease=lease)
            elif presence is Presence.ENDING and within(_ENDING):
                time.sleep(_GLANCE)
            elif (take_over or (inherited and hold is not None and hold.displaced)) and seen != request.dead:
                request, displaced = replace(request, dead=seen), holder
            elif inherited and presence is Presence.ELSEWHERE and within(lease / SECOND):
                time.sleep(_GLANCE)
            else:
                raise


class _Heart:
    """Beats for every attempt that this process holds, on one daemon thread that lasts as long as there are any."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew: a forked child has none of its parent's attempts, nor the thread."""
        self._changed = threading.Condition()
        self._due: dict[HeldAttempt, float] = {}
        self._beating = False

    def hold(self, attempt: HeldAttempt) -> None:
        """Begin to beat for an attempt."""
        with self._changed:
            if not self._beating:
                # first, as it may fail: then nothing beats, and the next attempt's hold tries again
                threading.Thread(target=self._beat, name="keepstate-heart", daemon=True).start()
                self._beating = True
            self._due[attempt] = time.monotonic() + attempt.store.settings.heartbeat
            self._changed.notify()

    def release(self, attempt: HeldAttempt) -> None:
        """Stop beating for an attempt; does nothing if that was so already."""
        with self._changed:
            self._due.pop(attempt, None)
            self._changed.notify()

    def _beat(self) -> None:
        # signals are for the main thread: here they would not end what it waits for
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            while (attempt := self._next()) is not None:
                attempt.beat()
        except BaseException:
            # whatever ended this thread, the next attempt begins another one, which beats for all
            with self._changed:
                self._beating = False
            raise

    def _next(self) -> HeldAttempt | None:
        """Wait until a beat is due, and return for which attempt; ``None``, and the thread ends, when none is left."""
        with self._changed:
            while self._due:
                attempt = min(self._due, key=self._due.__getitem__)
                wait = self._due[attempt] - time.monotonic()
                if wait <= 0:
                    self._due[attempt] = time.monotonic() + attempt.store.settings.heartbeat
                    return attempt
                self._changed.wait(wait)
            self._beating = False
            return None


_heart = _Heart()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_heart.forget)
