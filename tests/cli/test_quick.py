"""A plain command line is read without Typer, and just as Typer reads it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keepstate.cli import commands, quick, typer_app
from keepstate.cli.declared import REQUIRED, Group, Option, declarations


def every_function() -> dict[tuple[str, ...], Any]:
    """Return the functions of all commands by what is typed to call them."""
    found: dict[tuple[str, ...], Any] = {}
    for name in commands.HOMES:
        command = commands.find(name)
        if isinstance(command, Group):
            found |= {(name, sub): function for sub, function in command.commands.items()}
            if command.callable_alone:
                found[name,] = command.head
        elif command is not None:
            found[name,] = command
    return found


FUNCTIONS = every_function()
ODD = [
    "--",
    "-",
    "--help",
    "--nope",
    "-x",
    "-yy",
    "-1",
    "-.5",
    "0",
    "1",
    "7",
    "-0",
    "",
    "x",
    "1_0",
    "٣",
    "0.5",
    "=",
]

values = st.one_of(
    st.sampled_from(ODD),
    st.integers(-3, 12).map(str),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6),
)


@st.composite
def lines(draw) -> tuple[tuple[str, ...], list[str]]:
    """A command with arguments that often fit it."""
    path = draw(st.sampled_from(sorted(FUNCTIONS)))
    spellings = [
        (spelling, one.kind)
        for one in declarations(FUNCTIONS[path]).values()
        if isinstance(one.spelled, Option)
        for spelling in one.spelled.names
    ]
    args: list[str] = []
    for _ in range(draw(st.integers(0, 5))):
        spelling, kind = draw(st.sampled_from([*spellings, ("", str), ("", str)]))
        value = draw(values)
        if not spelling:
            args.append(value)
        elif kind is bool and draw(st.integers(0, 9)):
            args.append(spelling)
        elif draw(st.booleans()):
            args.append(f"{spelling}={value}")
        else:
            args += [spelling, value]
    return path, args


def as_typer_reads(path: tuple[str, ...], args: list[str]) -> dict[str, Any] | None:
    """Return the parameters that Typer finds, or ``None`` where it refuses or shows help."""
    command = typer_app.command(path[0])
    if len(path) == 2:
        command = command.commands[path[1]]
    try:
        context = command.make_context("keepstate", list(args), resilient_parsing=False)
    except Exception:  # noqa: BLE001 - whatever it is, it is no call
        return None
    if hasattr(command, "commands") and getattr(context, "_protected_args", None):
        return None
    found = {name: value for name, value in context.params.items() if name != "ctx"}
    # what Typer keeps as a tuple, it hands over as a list
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


@settings(max_examples=400, deadline=None)
@given(lines())
@example((("set",), ["offset", "-1", "--map-index", "3"]))
@example((("set",), ["--", "-x", "-y"]))
@example((("run",), ["--retries", "3", "python", "-u", "x.py", "--help"]))
@example((("run",), ["--", "--help"]))
@example((("clear",), ["-y", "--forget"]))
@example((("tail",), ["--interval", "0.1", "--all"]))
@example((("restore",), ["key", "3"]))
@example((("restore",), ["key", "-3"]))
@example((("get",), ["key", "--dag-id=a=b"]))
@example((("get",), ["--default", "--raw"]))
def test_what_is_read_quickly_is_what_typer_reads(line: tuple[tuple[str, ...], list[str]]) -> None:
    """Every parameter has the value that Typer gives it; whatever the quick way is not sure of, it leaves."""
    path, args = line
    read = quick.read(commands.find(path[0]), [*path[1:], *args])
    if read is None:
        return
    function, parameters = read
    if function is not FUNCTIONS[path]:
        # an argument of a group alone is the name of a command in it
        assert path + tuple(args[:1]) in FUNCTIONS
        return
    found = as_typer_reads(path, args)
    assert found is not None, "Typer refuses this"
    defaults = {
        name: one.default for name, one in declarations(function).items() if one.default is not REQUIRED
    }
    assert {**defaults, **parameters} == found


@pytest.mark.parametrize(
    "argv",
    [
        ["get", "page", "--default", "0"],
        [
            "get",
            "page",
            "--raw",
            "--json",
            "--dag-id",
            "d",
            "--run-id",
            "r",
            "--task-id=t",
            "--map-index",
            "3",
        ],
        ["set", "page", "41"],
        ["set", "page", "-41", "--retention", "7d", "--if-version", "0"],
        ["set", "page", "-", "--raw"],
        ["delete", "page", "--asset", "orders"],
        ["clear", "-y"],
        ["run", "--", "true"],
        ["run", "--retries", "10", "--retry-delay", "10m", "--take-over", "./load.sh", "--fast"],
        ["runs", "show", "--dag-id", "d", "--run-id", "r"],
        ["runs"],
        ["db", "upgrade", "--url", "sqlite:///x.db"],
    ],
)
def test_what_shells_call_is_plain(argv: list[str]) -> None:
    """The usual calls don't need Typer."""
    assert quick.read(commands.find(argv[0]), argv[1:]) is not None


@pytest.mark.parametrize(
    "argv",
    [
        ["get"],
        ["get", "--help"],
        ["get", "a", "b"],
        ["get", "a", "--dag-id"],
        ["get", "a", "--dag-id", "--run-id"],
        ["get", "a", "--map-index", "x"],
        ["set", "a", "1", "--if-version", "-1"],
        ["clear", "-yy"],
        ["clear", "-y=1"],
        ["clear", "--yes=1"],
        ["run"],
        ["run", "--help"],
        ["db"],
        ["db", "nope"],
        ["runs", "nope"],
    ],
)
def test_what_is_not_plain_is_left_to_typer(argv: list[str]) -> None:
    """Help, and whatever is to be refused, is Typer's."""
    assert quick.read(commands.find(argv[0]), argv[1:]) is None
