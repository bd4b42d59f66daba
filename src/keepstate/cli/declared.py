"""How a command declares what it takes: an ``Annotated`` parameter per argument and option, and groups of commands.

The declarations are keepstate's own, and two readers go by them. `typer_app` builds the Typer command: help, completion,
and refusals that say what is wrong. `quick` reads a plain command line without importing Typer, as shells call `keepstate get`
in loops, and that import would be a fifth of each call; whatever it is not sure of it leaves to Typer. A test compares them.

Both ask `declarations`, so a module that declares commands imports what their annotations name.
"""

from __future__ import annotations

import inspect
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


class Declaration(NamedTuple):
    """What a parameter of a command is."""

    kind: Any
    spelled: Argument | Option


def declarations(function: Callable[..., int | None]) -> dict[str, Declaration]:
    """Return what a command takes, by the names of its parameters."""
    found = inspect.get_annotations(function, eval_str=True)
    return {
        name: Declaration(kind.__origin__, kind.__metadata__[0])
        for name, kind in found.items()
        if name != "return"
    }
