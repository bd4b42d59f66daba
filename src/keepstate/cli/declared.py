"""How a command declares what it takes: an ``Annotated`` parameter per argument and option, and groups of commands.

The declarations are keepstate's own, and two readers go by them. `typer_app` builds the Typer command: help, completion,
and refusals that say what is wrong. `quick` reads a plain command line without importing Typer, as shells call `keepstate get`
in loops, and that import would be a fifth of each call; whatever it is not sure of it leaves to Typer. A test compares them.

Both ask `declarations`, so a module that declares commands imports what their annotations name.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Argument:
    """A positional parameter."""

    def __init__(self, metavar: str, help: str, *, minimum: int | None = None) -> None:  # noqa: A002 - Typer's name for it
        self.metavar = metavar
        self.help = help
        self.minimum = minimum


class Option:
    """A parameter by name: a flag where its type is ``bool``, and else with a value.

    ``default`` is what the help says where the default value itself would say nothing.
    """

    def __init__(
        self,
        *names: str,
        help: str,  # noqa: A002 - Typer's name for it
        metavar: str | None = None,
        panel: str | None = None,
        minimum: float | None = None,
        default: str | bool = False,
    ) -> None:
        self.names = names
        self.help = help
        self.metavar = metavar
        self.panel = panel
        self.minimum = minimum
        self.default = default


class Group:
    """Commands under one name. ``head`` describes them, and is itself the command of the bare name if ``callable_alone``."""

    def __init__(
        self,
        head: Callable[..., int | None],
        commands: Mapping[str, Callable[..., int | None]],
        *,
        callable_alone: bool,
    ) -> None:
        self.head = head
        self.commands = commands
        self.callable_alone = callable_alone


class Together:
    """The base of options that several commands take together: a frozen dataclass with a field for each, all with defaults.

    A command takes them as one parameter of that class.
    """


REQUIRED: Any = inspect.Parameter.empty
"""The default of what has none."""


class Declaration(NamedTuple):
    """What a parameter of a command is: its type, how it is spelled, and its default value."""

    kind: Any
    spelled: Argument | Option
    default: Any


def declarations(function: Callable[..., int | None]) -> dict[str, Declaration]:
    """Return what a command takes, by name: its parameters, and in place of those that stand for several, their fields."""
    kinds = _kinds(function)
    own = function.__defaults__ or ()
    defaults = dict(zip([*kinds][len(kinds) - len(own) :], own, strict=True))
    found: dict[str, Declaration] = {}
    for name, kind in kinds.items():
        if _stands_for_several(kind):
            found |= {field: _declaration(its, getattr(kind, field)) for field, its in _kinds(kind).items()}
        else:
            found[name] = _declaration(kind, defaults.get(name, REQUIRED))
    return found


def call(function: Callable[..., int | None], given: Mapping[str, Any]) -> int | None:
    """Call a command with values by the names that `declarations` has."""
    arguments = dict(given)
    for name, kind in _kinds(function).items():
        if _stands_for_several(kind):
            its = {field: arguments.pop(field) for field in _kinds(kind) if field in arguments}
            arguments[name] = kind(**its)
    return function(**arguments)


@lru_cache(maxsize=64)
def _kinds(declaring: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function's parameters, or of a class's fields."""
    found = inspect.get_annotations(declaring, eval_str=True)
    return {name: kind for name, kind in found.items() if name != "return"}


def _stands_for_several(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Together)


def _declaration(kind: Any, default: Any) -> Declaration:
    return Declaration(kind.__origin__, kind.__metadata__[0], default)
