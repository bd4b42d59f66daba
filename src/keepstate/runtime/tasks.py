"""``@task``: functions and coroutines that are retried, and whose state lasts from one attempt to the next."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from keepstate.errors import InvalidTypeError
from keepstate.runtime.arguments import arguments_for, check_call, fingerprint
from keepstate.runtime.calls import Call, attempts_of, drive, drive_async
from keepstate.runtime.context import NAMES, running
from keepstate.runtime.declarations import declare
from keepstate.runtime.nested import name_call
from keepstate.runtime.runs import current_run
from keepstate.runtime.templates import render

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from keepstate.runtime.context import Context
    from keepstate.runtime.declarations import Declared

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A function that runs as a task when it is called. `task` makes one."""

    def __init__(
        self, function: Callable[P, R], task_id: str | None = None, **declared: Unpack[Declared]
    ) -> None:
        """Wrap ``function``; the rest is what `task` takes."""
        if not callable(function):
            raise InvalidTypeError(
                f"@task takes a function, not {function!r:.80}; name it with @task(task_id=...)",
                path="function",
            )
        functools.update_wrapper(self, function)
        self.function = function
        self._declared = declared
        name = task_id if task_id is not None else getattr(function, "__name__", type(function).__name__)
        self.options = declare("@task", name, **declared)
        self._is_async = inspect.iscoroutinefunction(function)

    def __repr__(self) -> str:
        return f"<task {self.task_id}>"

    @property
    def task_id(self) -> str:
        """The id of the first call in a run; further ones are ``…__1``, ``…__2``."""
        return self.options.task_id

    def override(self, *, task_id: str | None = None, **changes: Unpack[Declared]) -> Task[P, R]:
        """Return the same task, declared otherwise: ``load.override(task_id="load_eu")(url)``."""
        declared: Declared = {**self._declared, **changes}
        return Task(self.function, self.task_id if task_id is None else task_id, **declared)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the task in the current run, and return its result; of an ``async def``, return what to await.

        Where it succeeded in this run before, with the same arguments, its stored result is returned.
        """
        check_call(self.function, args, kwargs, NAMES)
        run = current_run()
        task_id = name_call(running.here(), run, self.task_id)
        arguments = fingerprint(self.function, args, kwargs)

        def prepare(context: Context) -> Callable[[], R]:
            given, named = render(args, context), render(kwargs, context)
            named = arguments_for(self.function, given, named, context)
            return lambda: self.function(*given, **named)

        call = Call(
            run,
            task_id,
            self.options,
            prepare,
            arguments=arguments,
            # a call is known by its place alone, and the list of a loop may have changed since
            item=arguments,
            task=self,
        )
        steps = attempts_of(call)
        result: R = drive_async(steps) if self._is_async else drive(steps)  # type: ignore[assignment]
        return result


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *, task_id: str | None = None, **declared: Unpack[Declared]
) -> Callable[[Callable[P, R]], Task[P, R]]: ...


def task(function: Any = None, /, *, task_id: str | None = None, **declared: Unpack[Declared]) -> Any:
    """Make a task of a function, bare or with its declaration (see `Declared`).

    ::

        @task(retries=10, retry_delay=timedelta(minutes=10))
        def load(url, task_state_store=None): ...

    A parameter with the name of something in the context (``task_state_store``, ``asset_state_store``, ``ti``, ``run_id``, …),
    or ``context``, gets it, unless the caller gives one; ``**context`` gets everything. String arguments that hold Jinja2 are
    rendered.

    The result is stored, and must be JSON. A task that succeeded in a run is not run again there: its stored result is
    returned, if its arguments are the same (else ``TaskArgumentsChangedError``). With ``store_result=False`` nothing is stored,
    and the task runs each time it is called.
    """
    if function is None:
        return lambda it: Task(it, task_id, **declared)
    return Task(function, task_id, **declared)
