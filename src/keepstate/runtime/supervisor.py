"""`keepstate run`: start a program again when it fails, is killed or hangs, and give it a memory that lasts.

Who holds what. The supervisor holds the task instance that the command is: it begins and ends its attempts, and the program
uses the store as that attempt. Unless both a run id and a task id are given, the command is the run, and the supervisor
holds that too and records how it ended; with both, the command is one task of a run that it may share with others at the same
time. A ``@task`` in the program is a task instance of its own in the same run, held by the program's process.
Inside a supervised program, a `keepstate run` that names neither dag nor run is a task of the run around it.

This module is imported by each `keepstate run`, so it imports little.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from keepstate.allowance import LAST_WORDS, Allowance, latest
from keepstate.clock import SECOND
from keepstate.errors import (
    BackendUnavailableError,
    InvalidTypeError,
    KeepstateError,
    StaleAttemptError,
    TaskArgumentsChangedError,
)
from keepstate.runtime.attempts import PATIENCE, begin, describe
from keepstate.runtime.commands import NOT_FOUND, Child, Guard
from keepstate.runtime.holding import hold_run
from keepstate.runtime.liveness import Presence
from keepstate.runtime.places import Place
from keepstate.runtime.retries import RetryPolicy, seconds
from keepstate.runtime.runs import how_to_run_again, supervised_attempt
from keepstate.runtime.signals import SignalWatch
from keepstate.scope import RunScope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keepstate.runtime.attempts import Displaced, HeldAttempt
    from keepstate.scope import TaskScope
    from keepstate.store import StateStore

log = logging.getLogger("keepstate.runtime")

RETRY_DELAY = timedelta(seconds=10)
"""The pause between attempts where none is given."""

GRACE = timedelta(seconds=10)
"""How long a command that is told to end has, until it is killed."""

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""The signals after which no further attempt begins."""

PASSED_ON = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that are passed on to the command."""

_GLANCE = 0.05

# as a shell has it, the exit code of what signal n ended is so much more than n
_KILLED = 128


class Event:
    """Something that happened, for whoever tells people. ``str(event)`` is one line.

    ``kind`` is ``began``, ``lost`` (an earlier attempt), ``succeeded``, ``failed``, ``waiting`` (for the next attempt),
    ``exhausted``, ``stopped`` (by a signal) or ``already_succeeded``.
    """

    # plain classes here: making a dataclass costs a start-up what running a small command does

    def __init__(
        self,
        kind: str,
        scope: TaskScope,
        text: str,
        try_number: int | None = None,
        returncode: int | None = None,
        delay: float | None = None,
    ) -> None:
        self.kind = kind
        self.scope = scope
        self.text = text
        self.try_number = try_number
        self.returncode = returncode
        self.delay = delay

    def __str__(self) -> str:
        return self.text


def supervise(  # noqa: PLR0913 - as many as `keepstate run` has options
    store: StateStore,
    command: Sequence[str],
    *,
    dag_id: str | None = None,
    run_id: str | None = None,
    task_id: str | None = None,
    map_index: int = -1,
    retries: int = 0,
    retry_delay: timedelta | float = RETRY_DELAY,
    retry_exponential_backoff: bool | float = False,
    max_retry_delay: timedelta | float | None = None,
    timeout: timedelta | float | None = None,
    take_over: bool = False,
    grace: timedelta | float = GRACE,
    url: str | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> int:
    """Run ``command``, again and again until it succeeds or its ``retries`` are used up; return its last exit code.

    The code is a shell's: 128 + n when signal n ended it, 126 or 127 when it could not be started, which is not tried again; 124 when it took longer
    than ``timeout`` (then its process group is ended by SIGTERM, and after ``grace`` by SIGKILL). A command that has succeeded
    in the named run before is not run again: 0; another command in its place is refused. Retries count per call of this
    function, try numbers go on.

    ``dag_id`` and ``task_id`` default to the program's name; without a ``run_id`` the newest unfinished run of the dag goes on,
    else a new one begins. The command finds its task instance in ``KEEPSTATE_*`` variables, and the store at ``url``, if one is
    given, in ``KEEPSTATE_URL``. It has a process group of its own, and ends with this process, even when that is killed.

    SIGTERM, SIGINT, SIGHUP and SIGQUIT are passed on, and end the retries, where this runs on the main thread; SIGUSR1 and
    SIGUSR2 are only passed on. Once the command has ended after such a signal, a store that can't be reached is tried for
    `LAST_WORDS` seconds at most, and what could not be recorded is logged.

    Raises ``TaskArgumentsChangedError`` when another command has succeeded as this task instance,
    ``AlreadyRunningError`` while a living process holds the task instance or run (unless ``take_over`` is set), and
    ``StaleAttemptError`` when another start has taken over; the command has been ended then.
    """
    job = _Job(
        store,
        list(command),
        policy=RetryPolicy.of(retries, retry_delay, retry_exponential_backoff, max_retry_delay),
        timeout=None if timeout is None else seconds("timeout", timeout),
        grace=seconds("grace", grace),
        url=url,
        on_event=on_event,
    )
    place = Place(store.settings, command, dag_id, run_id, task_id, map_index)
    with Guard() as guard, job.allowance, SignalWatch(PASSED_ON, job.pass_on) as signals:
        job.idle = signals.idle
        try:
            if not place.is_run:
                return job.run(place.scope(), guard, take_over=take_over)
            return _run_alone(store, job, place, guard, take_over=take_over)
        except BackendUnavailableError as exc:
            if (code := job.code_when_stopped) is None:
                raise
            log.warning("%s", exc)
            return code


def _run_alone(store: StateStore, job: _Job, place: Place, guard: Guard, *, take_over: bool) -> int:
    """Hold the run that the command is, and record how it ended."""
    run = hold_run(store, place.dag_id, place.run_id, take_over=take_over, guard=guard.pid)
    run.on_overtaken = job.end_command
    try:
        assert isinstance(run.scope, RunScope)  # noqa: S101 - hold_run holds nothing else
        scope = place.scope(run.scope.run_id)
        code = job.run(scope, guard, take_over=take_over, hold=run)
    except BaseException as exc:
        _end_by(run, exc)
        raise
    if code == 0:
        _end(run, "success")
    else:
        _end(run, "failed", f"{scope.task_id} failed")
    return code


class _Job:
    """A command that is run as often as it takes."""

    def __init__(
        self,
        store: StateStore,
        command: list[str],
        *,
        policy: RetryPolicy,
        timeout: float | None,
        grace: float,
        url: str | None,
        on_event: Callable[[Event], None] | None,
    ) -> None:
        if not command or not all(isinstance(word, str) for word in command):
            raise InvalidTypeError(
                f"the command must be a list of words, not {command!r:.80}", path="command"
            )
        self._store = store
        self._command = command
        self._policy = policy
        self._timeout = timeout
        self._grace = grace
        self._url = url
        self._on_event = on_event
        self._child: Child | None = None
        self._stopped: int | None = None
        self._early: int | None = None
        self._code: int | None = None
        self._startable = True
        self.allowance = Allowance()
        self.idle: Callable[[float | None], None] | None = None

    def run(self, scope: TaskScope, guard: Guard, *, take_over: bool, hold: HeldAttempt | None = None) -> int:
        """Run attempts until one succeeds or none is left; return the exit code of the last."""
        if (outcome := self._store.backend.outcome(scope)) is not None:
            if outcome.arguments not in {None, _fingerprint(self._command)}:
                raise TaskArgumentsChangedError(
                    f"another command has succeeded as {scope}, so this one is not run: give it a --run-id or --task-id "
                    "of its own, or remove what is stored with `keepstate runs delete`"
                )
            text = f"{scope} has already succeeded, and is not run again"
            if not self._is_step(scope):
                text += f"; {how_to_run_again(scope, '--run-id')}"
            self._tell("already_succeeded", scope, text, returncode=0)
            return 0
        failures = 0
        own: list[str] = []
        while self._stopped is None:
            if hold is not None:
                hold.check()
            attempt = begin(self._store, scope, take_over=take_over, hold=hold, guard=guard.pid, own=own)
            code, told = self._attempt(attempt, scope, guard)
            self._code = code
            number = attempt.try_number
            if code == 0:
                attempt.end(
                    "success",
                    arguments=_fingerprint(self._command),
                    clear=self._store.settings.clear_on_success,
                    patience=PATIENCE,
                )
                self._tell("succeeded", scope, f"attempt {number} succeeded", number, 0)
                return 0
            failures += 1
            take_over = False
            last = failures > self._policy.retries or not self._startable or self._stopped is not None
            # a later attempt's beginning ends it all here
            _end(attempt, "failed" if last else "up_for_retry", told)
            if hold is not None and hold.overtaken:
                # that is why the command was ended
                hold.check()
            self._tell("failed", scope, f"attempt {number} failed: {told}", number, code)
            if last or not self._wait(scope, failures):
                self._give_up(scope, number, code)
                return code
        self._give_up(scope, None, None)
        return _KILLED + self._stopped

    def _is_step(self, scope: TaskScope) -> bool:
        """Whether it is a task of the supervised run around it, where finished steps are met at each retry."""
        around = supervised_attempt(self._store.settings)
        return around is not None and (around[0].dag_id, around[0].run_id) == (scope.dag_id, scope.run_id)

    def pass_on(self, number: int) -> None:
        """Pass a signal on to the command; begin no further attempt, if it is one that ends."""
        if number in ENDING:
            self._stopped = number
            if self._child is None:
                # else when the command has ended, which may take its time
                self.allowance.begin(LAST_WORDS)
        elif self._child is None:
            self._early = number
        if self._child is not None:
            self._child.send(number)

    @property
    def code_when_stopped(self) -> int | None:
        """The exit code after a signal that ended it all; ``None`` without one, or for a success that could not be recorded."""
        if self._stopped is None or self._code == 0:
            return None
        return self._code or _KILLED + self._stopped

    def _signal(self) -> int | None:
        """Return the signal that was passed on, if one was by now: it may come between any two lines."""
        return self._stopped

    def end_command(self) -> None:
        """End the command that runs, if one does."""
        child = self._child
        if child is not None:
            child.stop()

    def _attempt(self, attempt: HeldAttempt, scope: TaskScope, guard: Guard) -> tuple[int, str]:
        """Run the command once, as ``attempt``; return its exit code, and what is to be told of its end."""
        number = attempt.try_number
        attempt.on_overtaken = self.end_command
        for lost in attempt.lost:
            self._tell("lost", scope, f"attempt {lost} of {scope} {attempt.fate}", lost)
        try:
            self._await(attempt.displaced)
            if (stopped := self._signal()) is not None:
                return _KILLED + stopped, "it was stopped before it began"
            self._tell("began", scope, f"attempt {number} of {scope}", number)
            # what comes while no command runs is for none
            self._early = None
            child = Child(self._command, self._environment(attempt, scope), guard, grace=self._grace)
            self._child = child
            self.allowance.lift()
            if attempt.overtaken:
                child.stop()
            if (early := self._signal() or self._early) is not None:
                child.send(early)
            code = child.wait(self._timeout, self.idle)
            self._startable = child.startable
        except BaseException as exc:
            # the guard ends the command
            _end_by(attempt, exc)
            raise
        finally:
            self._child = None
            if self._signal() is not None:
                self.allowance.begin(LAST_WORDS)
            # a late beat must not end the next attempt's command
            attempt.on_overtaken = _nothing
        told = f"it took longer than {self._timeout:g} s" if child.timed_out else _told(code)
        if not child.startable:
            told += f", as {self._command[0]!r:.80} " + (
                "was not found" if code == NOT_FOUND else "can't be started"
            )
        if (stopped := self._signal()) is not None:
            told += f", after {signal.Signals(stopped).name} was passed on"
        return code, told

    def _await(self, displaced: Displaced | None) -> None:
        """Wait for the end of what was taken over: its supervisor ends its command when a heartbeat tells it."""
        deadline = time.monotonic() + self._store.settings.lease / SECOND
        while displaced is not None and self._stopped is None and time.monotonic() < deadline:
            if displaced.presence is Presence.GONE:
                return
            (self.idle or time.sleep)(_GLANCE)

    def _environment(self, attempt: HeldAttempt, scope: TaskScope) -> dict[str, str]:
        from keepstate.connect import absolute, absolute_home

        environment = {
            **os.environ,
            "KEEPSTATE_DAG_ID": scope.dag_id,
            "KEEPSTATE_RUN_ID": scope.run_id,
            "KEEPSTATE_TASK_ID": scope.task_id,
            "KEEPSTATE_MAP_INDEX": str(scope.map_index),
            "KEEPSTATE_TRY_NUMBER": str(attempt.try_number),
            "KEEPSTATE_ATTEMPT_ID": attempt.attempt_id,
        }
        # the command may work in another folder
        settings = self._store.settings
        if self._url is not None:
            environment["KEEPSTATE_URL"] = absolute(self._url)
        elif settings.url and environment.get("KEEPSTATE_URL") == settings.url:
            environment["KEEPSTATE_URL"] = absolute(settings.url)
        if settings.home and environment.get("KEEPSTATE_HOME") == settings.home:
            environment["KEEPSTATE_HOME"] = absolute_home(settings.home)
        return _finding_keepstate(environment)

    def _wait(self, scope: TaskScope, failures: int) -> bool:
        """Wait until the next attempt is due; return whether it is still wanted."""
        pause = self._policy.pause_after(failures)
        retry = f"retry {failures} of {self._policy.retries}"
        self._tell("waiting", scope, f"next attempt in {pause:g} s ({retry})", delay=pause)
        deadline = time.monotonic() + pause
        while self._stopped is None and (left := deadline - time.monotonic()) > 0:
            (self.idle or time.sleep)(left)
        return self._stopped is None

    def _give_up(self, scope: TaskScope, number: int | None, code: int | None) -> None:
        if self._stopped is not None:
            name = signal.Signals(self._stopped).name
            self._tell("stopped", scope, f"stopped by {name}: no further attempt", number, code)
        elif not self._startable:
            self._tell("exhausted", scope, "no retry, as that would end in the same way", number, code)
        else:
            self._tell("exhausted", scope, f"no retry left of {self._policy.retries}", number, code)

    def _tell(
        self,
        kind: str,
        scope: TaskScope,
        text: str,
        try_number: int | None = None,
        returncode: int | None = None,
        delay: float | None = None,
    ) -> None:
        if self._on_event is not None:
            self._on_event(Event(kind, scope, text, try_number, returncode, delay))


def _finding_keepstate(environment: dict[str, str]) -> dict[str, str]:
    """Return an environment in which a command finds `keepstate`: a virtual environment is on no PATH of cron's."""
    path = environment.get("PATH", os.defpath)
    folders = path.split(os.pathsep)
    own = os.path.dirname(sys.executable)  # noqa: PTH120 - pathlib is not loaded for a small command

    def has_it(folder: str) -> bool:
        return os.access(os.path.join(folder or os.curdir, "keepstate"), os.X_OK)  # noqa: PTH118 - as above

    if has_it(own) and not any(map(has_it, folders)):
        environment["PATH"] = f"{path}{os.pathsep}{own}"
    return environment


def _fingerprint(command: list[str]) -> str:
    """Return a short hash of a command, by which another one is known."""
    import hashlib

    return hashlib.sha256("\0".join(command).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _nothing() -> None:
    """Do nothing when a heartbeat learns what the end of the attempt will tell."""


def _end(attempt: HeldAttempt, state: str, reason: str | None = None, *, patience: float = PATIENCE) -> None:
    """Record an end. Trouble is logged, as the exit code matters more; raises ``StaleAttemptError`` all the same."""
    if latest() <= time.monotonic():
        attempt.release()
        log.warning("The end of %s (%s) was not stored: no time is left for it", attempt.scope, state)
        return
    try:
        attempt.end(state, reason=reason, patience=patience)
    except StaleAttemptError:
        raise
    except KeepstateError as exc:
        log.warning("The end of %s could not be stored: %s", attempt.scope, exc)


def _end_by(attempt: HeldAttempt, error: BaseException) -> None:
    """Record the end by an error that is on its way out, and tells of a loss itself."""
    with contextlib.suppress(StaleAttemptError):
        _end(attempt, "failed", describe(error), patience=0)


def _told(code: int) -> str:
    if code > _KILLED:
        try:
            return f"it was ended by {signal.Signals(code - _KILLED).name}"
        except ValueError:
            pass
    return f"exit code {code}"
