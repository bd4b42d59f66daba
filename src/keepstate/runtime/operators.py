"""Operators: tasks that are classes, with the interface of Airflow's, run without an engine."""

from __future__ import annotations

import inspect
import logging
import sys
from abc import ABCMeta
from typing import TYPE_CHECKING, Any

from keepstate.errors import InvalidInputError, InvalidTypeError
from keepstate.runtime.arguments import arguments_for
from keepstate.runtime.calls import Call, attempts_of, drive
from keepstate.runtime.context import running
from keepstate.runtime.declarations import declare
from keepstate.runtime.fingerprints import fingerprint_of
from keepstate.runtime.nested import claim
from keepstate.runtime.runs import current_run, in_dag_run
from keepstate.runtime.templates import render

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from typing_extensions import Unpack

    from keepstate.runtime.context import Context
    from keepstate.runtime.declarations import Declared


class _RunsWhenMade(ABCMeta):
    """Runs an operator, once its ``__init__`` is through, where Airflow would add it to a DAG."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        operator = super().__call__(*args, **kwargs)
        if _is_due(sys._getframe(1)):  # noqa: SLF001 - the frame that makes the operator
            operator.run()
        return operator


def _is_due(maker: FrameType) -> bool:
    """Whether an operator that ``maker`` has made is to run now.

    Calling a ``@task`` function adds a task to a DAG in Airflow, and runs it here. Making an operator is the same: it runs
    in a ``dag_run`` block, and where the main program itself makes it. A module that is imported (a test, a library, a
    REPL's helper) only makes it, and so does a task that uses an operator as a tool.

    Rejected: collecting operators until the script's end, as nothing can be relied on there: threads and exit status are
    gone by the time ``atexit`` runs.
    """
    if running.here() is not None:
        return False
    return in_dag_run() or maker.f_globals.get("__name__") == "__main__"


class BaseOperator(metaclass=_RunsWhenMade):
    """The base of operators: derive from it and write ``execute(context)``.

    An operator runs when it is made, in a ``with dag_run(...)`` block and in the main program; elsewhere `run` runs it.
    The attributes that ``template_fields`` names are rendered with Jinja2 before each attempt.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, task_id: str, **declared: Unpack[Declared]) -> None:
        """Declare the task (see `Declared`). Raises ``TypeError`` naming what an operator does not take."""
        self.__options = declare(type(self).__name__, task_id, **declared)
        self.__templates: dict[str, Any] = {}
        self.__done: tuple[object, Any] | None = None
        self.task_id = task_id
        self.retries = self.__options.policy.retries
        self.inlets = self.__options.inlets
        self.outlets = self.__options.outlets

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.task_id}>"

    @property
    def log(self) -> logging.Logger:
        """The logger of this kind of operator."""
        return logging.getLogger(f"keepstate.operators.{type(self).__name__}")

    def execute(self, context: Context) -> Any:
        """Do the work of one attempt and return its result. Yours to write; it may be ``async def``."""
        raise NotImplementedError(f"{type(self).__name__} needs a method execute(self, context)")

    def run(self) -> Any:
        """Run the operator in the current run, with its retries, and return its result.

        It runs once in a run: asked again, the result is returned. So it is where it succeeded in the run before, with the same
        template fields (else ``TaskArgumentsChangedError``). An exception of the last attempt goes out.
        """
        run = current_run()
        if self.__done is not None and self.__done[0] is run:
            return self.__done[1]
        claim(running.here(), run, self.task_id, self)
        self.__templates = {name: self.__field(name) for name in self.template_fields}
        arguments = fingerprint_of({"operator": type(self).__qualname__, **self.__templates})
        call = Call(
            run,
            self.task_id,
            self.__options,
            self.__prepare,
            arguments=arguments,
            # its task id is its own, and no place in a loop: what it has stored stays with it
            item=None,
            task=self,
        )
        try:
            result = drive(attempts_of(call))
        finally:
            vars(self).update(self.__templates)
        self.__done = (run, result)
        return result

    def __prepare(self, context: Context) -> Callable[[], Any]:
        # from the templates as they were given: an earlier attempt may have changed the attributes
        for name, template in self.__templates.items():
            setattr(self, name, render(template, context))
        return lambda: _settled(self.execute(context))

    def __field(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise InvalidInputError(
                f"{type(self).__name__} names {name!r} in template_fields and has no such attribute; set it in __init__"
            ) from None


class PythonOperator(BaseOperator):
    """Calls a function, or awaits a coroutine function, with what ``@task`` would hand in."""

    template_fields: Sequence[str] = ("op_args", "op_kwargs")

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Sequence[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        task_id: str,
        **declared: Unpack[Declared],
    ) -> None:
        """Call ``python_callable(*op_args, **op_kwargs)``; strings in both are rendered."""
        super().__init__(task_id=task_id, **declared)
        if not callable(python_callable):
            raise InvalidTypeError(
                f"python_callable must be a function, not {python_callable!r:.80}", path="python_callable"
            )
        self.python_callable = python_callable
        self.op_args = list(op_args or ())
        self.op_kwargs = dict(op_kwargs or {})

    def execute(self, context: Context) -> Any:
        """Call the function."""
        named = arguments_for(self.python_callable, self.op_args, self.op_kwargs, context)
        return _settled(self.python_callable(*self.op_args, **named))


def _settled(result: Any) -> Any:
    """Return what a coroutine comes to, and anything else as it is."""
    if not inspect.iscoroutine(result):
        return result
    import asyncio

    return asyncio.run(result)
