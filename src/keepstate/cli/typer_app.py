"""The command line as Typer has it: help, completion, and everything that is not a plain call."""

from __future__ import annotations

import functools
import inspect
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from keepstate.cli.commands import HOMES, PANELS, find
from keepstate.cli.declared import Argument, Group, Option, call, declarations
from keepstate.cli.exit_codes import ExitCode, Stop
from keepstate.cli.quick import NEGATIVE
from keepstate.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    # Typer brings its own click from 0.17 on, and uses the click package before
    Context = Any
    Parsed = Any

_MARK = "\0"
# beyond these no number means anything here, and a store or the system may not take it
_LARGEST = 10**15
_LARGEST_FLOAT = 1e9
# how click says that something is no number, or one too small
_NO_NUMBER = re.compile(r"is not (a valid (int|float|integer)( range)?|in the range x>=\S+)$")
# click's or Typer's own root of "this can't be parsed", by way of the one name that every Typer exports
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def invoke(argv: list[str]) -> int:
    """Run the command that ``argv`` says, and return its exit code; raise ``Stop`` where it can't be parsed."""
    try:
        return int(_invoke(argv) or 0)
    except typer.Exit as exc:
        return int(exc.exit_code)
    except (typer.Abort, EOFError):
        raise KeyboardInterrupt from None
    except _UsageError as exc:
        raise Stop(_explain(exc), ExitCode.USAGE) from None


def _invoke(argv: list[str]) -> Any:
    root = build()
    if not argv:
        # a shell asks for completions by calling without arguments; a person gets the help
        return root.main(["--help"], prog_name="keepstate", standalone_mode=False)
    if len(argv) == 1 and isinstance(group := find(argv[0]), Group) and not group.callable_alone:
        argv = [*argv, "--help"]
    with root.make_context("keepstate", argv) as ctx:
        return root.invoke(ctx)


def _explain(exc: Any) -> str:
    text = " ".join(exc.format_message().replace(_MARK, "").replace(repr(_MARK)[1:-1], "").split()).rstrip(
        "."
    )
    least = getattr(getattr(getattr(exc, "param", None), "type", None), "min", None)
    text = _NO_NUMBER.sub(
        lambda found: (
            f"is not a {'whole ' if 'int' in found[0] or type(least) is int else ''}number"
            + ("" if least is None else f" of at least {least:g}")
        ),
        text,
    )
    path = exc.ctx.command_path if exc.ctx is not None else "keepstate"
    # a question mark ends a sentence as well
    return f"{text[:1].lower()}{text[1:]}{'' if text.endswith('?') else ';'} see `{path} --help`"


# --------------------------------------------------------------------------------------- kinds of commands


class _PlainUnderNoColor:
    """Typer's help drops colours under NO_COLOR, yet not bold and dim; this drops those too."""

    def format_help(self, ctx: Context, formatter: Any) -> None:
        """Print the help."""
        from rich.console import Console
        from typer import rich_utils

        if Console().no_color:
            rich_utils.COLOR_SYSTEM = None
        super().format_help(ctx, formatter)  # type: ignore[misc]


class Command(_PlainUnderNoColor, TyperCommand):
    """A command whose arguments may be negative numbers."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse ``args``; ``-1`` is a value, as no option begins with a digit."""
        taking = {
            name
            for item in self.params
            if item.param_type_name == "option" and not getattr(item, "is_flag", False)
            for name in item.opts
        }
        marked: list[str] = []
        for place, arg in enumerate(args):
            if arg == "--":
                marked += args[place:]
                break
            after_option = place > 0 and args[place - 1] in taking
            # no argument of a process can hold the mark
            marked.append(_MARK + arg if NEGATIVE.match(arg) and not after_option else arg)
        rest: list[str] = super().parse_args(ctx, marked)
        for name, value in ctx.params.items():
            if isinstance(value, str):
                ctx.params[name] = value.removeprefix(_MARK)
        return rest


class Program(_PlainUnderNoColor, TyperCommand):
    """A command that ends with another program's own command line, which is left as it is."""


class Commands(_PlainUnderNoColor, TyperGroup):
    """Commands under one name."""


class Root(Commands):
    """`keepstate` itself: it knows its commands by name, and imports the one that is asked for."""

    def list_commands(self, ctx: Context) -> list[str]:  # noqa: ARG002 - click's own signature
        """Return the names of all commands."""
        return list(HOMES)

    def get_command(self, ctx: Context, cmd_name: str) -> Parsed | None:  # noqa: ARG002 - as above
        """Return the command of a name, or ``None``."""
        return command(cmd_name)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Return the command that ``args`` begin with, or refuse with the one that was perhaps meant."""
        if not ctx.resilient_parsing and find(args[0]) is None:
            from difflib import get_close_matches

            close = get_close_matches(args[0], HOMES, n=1)
            ctx.fail(f"No such command {args[0]!r}" + (f", did you mean `{close[0]}`?" if close else "."))
        found: tuple[Any, Any, list[str]] = super().resolve_command(ctx, args)
        return found


# ------------------------------------------------------------------------------- from declarations to Typer


def build() -> Parsed:
    """Build `keepstate` itself, with completion and all commands to be imported when needed."""
    app = typer.Typer(cls=Root, add_completion=True)
    app.callback()(_keepstate)
    return _finished(get_command(app))


def command(name: str) -> Parsed | None:
    """Build the command of a name; ``None`` where there is none."""
    found = find(name)
    if found is None:
        return None
    if isinstance(found, Group):
        app = typer.Typer(cls=Commands, add_completion=False)
        app.callback(invoke_without_command=found.callable_alone)(_head(found))
        for subname, function in found.commands.items():
            app.command(subname, cls=Command)(_for_typer(function))
    else:
        app = typer.Typer(add_completion=False)
        takes_words = any(one.kind == list[str] for one in declarations(found).values())
        kind: type[TyperCommand] = Program if takes_words else Command
        app.command(name, cls=kind, context_settings={"allow_interspersed_args": not takes_words})(
            _for_typer(found)
        )
    built = _finished(get_command(app))
    built.name = name
    built.rich_help_panel = next(title for title, names in PANELS.items() if name in names)
    return built


def _finished(built: Parsed) -> Parsed:
    """Let help texts flow, as a terminal has a width of its own; what is indented keeps its lines."""
    for each in (built, *getattr(built, "commands", {}).values()):
        each.help = re.sub(r"(?<=\S)\n(?=\S)", " ", each.help or "")
    return built


def _for_typer(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Return a function that Typer can read, with Typer's declarations instead of ours."""
    declared = declarations(function)
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=one.default,
            annotation=Annotated[one.kind, _translated(one.spelled)],
        )
        for name, one in declared.items()
    ]

    @functools.wraps(function)
    def checked(**given: Any) -> int | None:
        for name, value in given.items():
            # what is not a number is larger than nothing
            if (type(value) is int and abs(value) > _LARGEST) or (
                type(value) is float and not abs(value) <= _LARGEST_FLOAT
            ):
                spelled = declared[name].spelled
                shown = spelled.names[0] if isinstance(spelled, Option) else spelled.metavar
                raise InvalidInputError(f"{shown} is beyond all bounds: {value}")
        return call(function, given)

    checked.__annotations__ = {one.name: one.annotation for one in parameters}
    checked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return checked


def _head(group: Group) -> Callable[..., int | None]:
    """Return the head of a group for Typer, which calls it before each of the group's commands as well."""
    head = _for_typer(group.head)

    @functools.wraps(head)
    def alone(ctx: typer.Context, **given: Any) -> int | None:
        return head(**given) if ctx.invoked_subcommand is None else None

    own = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    alone.__annotations__ = {"ctx": typer.Context, **head.__annotations__}
    alone.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [own, *inspect.signature(head).parameters.values()]
    )
    return alone


def _translated(declared: Argument | Option) -> Any:
    if isinstance(declared, Option):
        return typer.Option(
            *declared.names,
            metavar=declared.metavar,
            help=declared.help,
            rich_help_panel=declared.panel,
            min=declared.minimum,
            show_default=declared.default,
        )
    return typer.Argument(
        metavar=declared.metavar, help=declared.help, min=declared.minimum, show_default=False
    )


# ------------------------------------------------------------------------------------------------ keepstate


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        from keepstate.cli.output import put

        put(f"keepstate {version('keepstate')}")
        raise typer.Exit


def _keepstate(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_show_version, help="Print the version and exit."
    ),
) -> None:
    """Give a task a memory that survives its retries, so that the next attempt carries on.

    Run a command, start it again if it fails, and let it store where it was:

      keepstate run --retries 10 --retry-delay 10m -- ./load.sh

    In load.sh:

      page=$(keepstate get page --default 0)
      keepstate set page $((page + 1))

    Inspect what is stored, from any shell:

      keepstate runs
      keepstate list --dag-id load.sh --run-id 2026-11-29 --task-id load.sh

    `keepstate COMMAND --help` shows details and examples. `keepstate doctor` shows which store is used, and any problems.
    """
    del version
