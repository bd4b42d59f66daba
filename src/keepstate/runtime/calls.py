"""One call of a task, attempt after attempt: the same steps for functions and coroutines.

`attempts_of` says what is to be done, one step after another, and decides what follows; `drive` and `drive_async` do it. So
there is one implementation of what an attempt is, and neither driver knows anything of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from keepstate.allowance import try_all
from keepstate.awaitable import in_thread
from keepstate.backends.requests import Behalf
from keepstate.errors import (
    AlreadyRunningError,
    InvalidTypeError,
    InvalidValueError,
    StaleAttemptError,
    TaskArgumentsChangedError,
)
from keepstate.runtime import assets
from keepstate.runtime.attempts import PATIENCE, begin, describe, on_the_way_out
from keepstate.runtime.context import TaskInstance, make_context, running
from keepstate.runtime.nested import Inner, Names
from keepstate.scope import TaskScope, Writer
from keepstate.values import decode, encode

if TYPE_CHECKING:
    from keepstate.accessors import TaskStateStore
    from keepstate.runtime.assets import AssetStates
    from keepstate.runtime.attempts import HeldAttempt
    from keepstate.runtime.context import Context
    from keepstate.runtime.declarations import Options
    from keepstate.runtime.runs import Run

log = logging.getLogger("keepstate.runtime")

# another attempt would meet the same again
_FINAL = (StaleAttemptError, AlreadyRunningError, TaskArgumentsChangedError)


class Call:
    """One call of a task in a run.

    ``prepare`` takes an attempt's context and returns the body, ready to be called. ``arguments`` is the fingerprint of what
    the task was called with, and ``item`` is given where its place among the calls alone tells it from others: what another
    item has stored is not its state.
    """

    def __init__(
        self,
        run: Run,
        task_id: str,
        options: Options,
        prepare: Callable[[Context], Callable[[], Any]],
        *,
        arguments: str,
        item: str | None,
        task: object,
    ) -> None:
        self.scope = TaskScope(run.dag_id, run.run_id, task_id)
        self.policy = options.policy
        self._run = run
        self._options = options
        self._prepare = prepare
        self._arguments = arguments
        self._item = item
        self._task = task
        self._names = Names(run, task_id)
        self._own: list[str] = []
        self._first_try: int | None = None
        self._held: HeldAttempt | None = None
        self._state: TaskStateStore | None = None
        self._assets: AssetStates | None = None
        self._hopeless: BaseException | None = None
        self._result: str | None = None

    def earlier_result(self) -> tuple[Any] | None:
        """Return what the task returned when it succeeded in this run, if it did and its result was stored.

        Raises ``TaskArgumentsChangedError`` when it was called with other arguments then.
        """
        if not self._options.store_result:
            return None
        outcome = self._run.store.backend.outcome(self.scope)
        if outcome is None or outcome.result is None:
            return None
        if outcome.arguments != self._arguments:
            raise TaskArgumentsChangedError(
                f"{self.scope} has succeeded in this run, and is now called with other arguments: its result is not theirs. "
                "Call it with the same ones, start another run, or name this call with .override(task_id=...)"
            )
        self._run.returned_results = True
        log.info("%s has succeeded in this run already; its stored result is returned", self.scope)
        return (None if outcome.result == "null" else decode(outcome.result),)

    def begin(self) -> Body:
        """Begin the next attempt, with an accessor of its own, and return its body."""
        run, options = self._run, self._options
        run.check()
        run.began_tasks = True
        self._held = held = begin(run.store, self.scope, item=self._item, hold=run.hold, own=self._own)
        number = held.try_number
        self._first_try = self._first_try or number
        ids = {"dag_id": run.dag_id, "run_id": run.run_id, "task_id": self.scope.task_id}
        map_index = self.scope.map_index
        self._state = run.store.bound(self.scope, held.fence, Writer("task", try_number=number))
        writer = Writer("task", **ids, map_index=map_index, try_number=number)
        self._assets = assets.AssetStates(run.store, options.assets, writer, Behalf(self.scope, held.fence))
        last = self._first_try + options.policy.retries
        ti = TaskInstance(
            **ids,
            map_index=map_index,
            try_number=number,
            max_tries=last,
            id=held.attempt_id,
            held=held,
            inner=Inner(self._names),
        )
        context = make_context(
            run, ti, self._state, self._assets, self._task, options.inlets, options.outlets
        )
        try:
            return Body(self._prepare(context), context)
        except Exception as exc:
            self._hopeless = exc
            raise

    def finish(self, result: Any) -> None:
        """Write what throttled checkpoints hold back, and make sure that the result can be stored."""
        self._flush()
        if not self._options.store_result:
            return
        try:
            self._result = "null" if result is None else encode(result)
        except (InvalidTypeError, InvalidValueError) as exc:
            error = type(exc)(
                f"the task {self.scope.task_id!r} returned what can't be stored: {exc}. "
                "Return JSON, or declare the task with store_result=False: then it runs each time it is called",
                **vars(exc),
            )
            self._hopeless = error
            raise error from exc

    def may_go_on(self, error: BaseException, failures: int) -> bool:
        """Whether another attempt may follow, now or in another process."""
        return (
            failures <= self.policy.retries and not isinstance(error, _FINAL) and error is not self._hopeless
        )

    def fail(self, error: BaseException, *, again: bool) -> None:
        """Record that the attempt has failed. Trouble in doing so is logged: ``error`` is what matters."""
        held, self._held = self._held, None
        if held is None:
            return
        end = partial(held.end, "up_for_retry" if again else "failed", reason=describe(error))
        with on_the_way_out(self._run.store, error):
            for step in (self._flush, end):
                try:
                    step()
                except StaleAttemptError as stale:
                    log.warning("%s", stale)
                except Exception as trouble:  # noqa: BLE001 - as said
                    log.warning("The end of %s could not be stored: %s", self.scope, trouble)
        held.release()

    def succeed(self) -> None:
        """Record the success, with the result."""
        held, self._held = self._held, None
        assert held is not None  # noqa: S101 - begun before
        stored = self._options.store_result
        held.end(
            "success",
            result=self._result,
            arguments=self._arguments if stored else None,
            clear=self._run.store.settings.clear_on_success,
            patience=PATIENCE,
        )

    def _flush(self) -> None:
        steps = [] if self._state is None else [self._state.flush]
        if self._assets is not None:
            steps.append(partial(assets.flush, self._assets))
        try_all(steps)


# -------------------------------------------------------------------------------------------------- steps


@dataclass(frozen=True)
class OnStore:
    """Use the store, which may take its time."""

    work: Callable[[], Any]


@dataclass(frozen=True)
class Body:
    """Run the task's own code."""

    work: Callable[[], Any]
    context: Context


@dataclass(frozen=True)
class Pause:
    """Wait for so many seconds."""

    seconds: float


Step = OnStore | Body | Pause
Steps = Generator[Step, Any, Any]


def attempts_of(call: Call) -> Steps:
    """Yield what is to be done for a call, and return its result.

    An attempt that fails is followed by another after a pause, with a new accessor, as often as the policy says; then its
    exception goes out. What a throttled checkpoint holds back is written before the end of the attempt is recorded. A stale
    attempt is not followed by another, and changes nothing. ``KeyboardInterrupt`` and its like end the attempt, and go out.
    """
    earlier = yield OnStore(call.earlier_result)
    if earlier is not None:
        return earlier[0]
    failures = 0
    while True:
        try:
            body = yield OnStore(call.begin)
            result = yield body
            yield OnStore(partial(call.finish, result))
        except BaseException as exc:
            failures += 1
            again = call.may_go_on(exc, failures)
            yield OnStore(partial(call.fail, exc, again=again))
            if not again or not isinstance(exc, Exception):
                raise
            pause = call.policy.pause_after(failures)
            log.warning(
                "%s failed (failure %d, %d retries allowed); the next attempt begins in %g s",
                call.scope,
                failures,
                call.policy.retries,
                pause,
                exc_info=exc,
            )
        else:
            yield OnStore(call.succeed)
            return result
        yield Pause(pause)


def drive(steps: Steps, error: BaseException | None = None) -> Any:
    """Do what is to be done, here and now. ``error`` is what the last step has met already."""
    answer: Any = None
    while True:
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as done:
            return done.value
        finally:
            answer = error = None
        try:
            answer = _perform(step)
        except BaseException as exc:  # noqa: BLE001 - the steps decide what becomes of it
            error = exc


async def drive_async(steps: Steps) -> Any:
    """Do what is to be done, without ever blocking the loop: the store is used on other threads."""
    import asyncio

    answer: Any = None
    error: BaseException | None = None
    while error is None or isinstance(error, Exception):
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as done:
            return done.value
        finally:
            answer = error = None
        try:
            if isinstance(step, OnStore):
                answer = await _to_the_end(step.work)
            elif isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            else:
                with running.entered(step.context):
                    answer = await step.work()
        except BaseException as exc:  # noqa: BLE001 - as above
            error = exc
    # cancelled or interrupted: nothing can be awaited any more, and what is left to do is short
    return drive(steps, error)


def _perform(step: Step) -> Any:
    if isinstance(step, OnStore):
        return step.work()
    if isinstance(step, Pause):
        return time.sleep(step.seconds)
    with running.entered(step.context):
        return step.work()


async def _to_the_end(work: Callable[[], Any]) -> Any:
    """Await work on another thread; cancelled, wait for its end nevertheless: only then is it known what to undo."""
    import asyncio

    future = asyncio.ensure_future(in_thread(work))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                continue
        if not future.cancelled():
            # seen, so that nobody complains of it
            future.exception()
        raise
