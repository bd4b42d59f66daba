"""Every command teaches by example, and docs/reference/command-line.md knows every command, option and exit code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

from keepstate.cli import commands, typer_app
from keepstate.cli.exit_codes import MEANINGS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
SCOPE = {"--dag-id", "--run-id", "--task-id", "--map-index", "--asset", "--asset-uri"}
EVERYWHERE = {"--url", "--help"}


def every_command() -> dict[str, Any]:
    """Return all commands by what is typed to call them."""
    found = {}
    for name in commands.HOMES:
        command = typer_app.command(name)
        if command is None:
            continue
        found[f"keepstate {name}"] = command
        for sub, subcommand in getattr(command, "commands", {}).items():
            found[f"keepstate {name} {sub}"] = subcommand
    return found


COMMANDS = every_command()


def options(command: Any) -> set[str]:
    """Return the long options of a command."""
    names = {name for item in command.params for name in (*item.opts, *item.secondary_opts)}
    return {name for name in names if name.startswith("--")}


def section(title: str) -> str:
    """Return the part of the page under a heading, up to the next one."""
    found = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no section {title!r}"
    return found[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_in_its_help(run, name: str) -> None:
    """The help shows how the command is called."""
    done = run(*name.split()[1:], "--help")
    assert (done.code, done.err) == (0, "")
    help_text = done.out.partition("╭─")[0]
    assert f"  {name}" in help_text.split("Usage:", 1)[1].split("\n", 1)[1]
    assert "\x1b" not in done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does(name: str) -> None:
    """No option and no argument is without help."""
    for item in COMMANDS[name].params:
        assert item.help or item.name == "help", item.name


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_page_has_exactly_the_options_of_a_command(name: str) -> None:
    """Scope options and --url are described once; all others in the command's own table."""
    command, text = COMMANDS[name], section(name)
    expected = options(command) - EVERYWHERE
    if expected >= SCOPE:
        assert "[scope options](#scope)" in " ".join(text.split())
        expected -= SCOPE
    else:
        assert "(#scope)" not in text
    table = re.findall(r"^\| `(--[a-z-]+)` \|", text, re.MULTILINE)
    assert sorted(table) == sorted(expected)


def test_every_command_takes_a_url() -> None:
    """The store can be named anywhere."""
    without = [
        name
        for name, command in COMMANDS.items()
        if "--url" not in options(command)
        and name
        not in {"keepstate airflow", "keepstate db", "keepstate token", "keepstate demo", "keepstate copy"}
    ]
    assert without == []


def test_the_page_has_no_command_that_is_not_there() -> None:
    """A heading for each command, and no other."""
    titles = set(re.findall(r"^##+ (keepstate .*)$", PAGE, re.MULTILINE))
    assert titles == set(COMMANDS)


def test_the_page_has_the_scope_options() -> None:
    """All of them, in the section that commands point to."""
    assert set(re.findall(r"`(--[a-z-]+)`", section("Scope"))) >= SCOPE


def test_the_page_has_the_exit_codes() -> None:
    """The table on the page is the one in the code."""
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", section("Exit codes"), re.MULTILINE)
    assert {int(code): meaning.replace("\\|", "|") for code, meaning in rows} == {
        int(code): meaning for code, meaning in MEANINGS.items()
    }


def test_the_help_names_every_command(run) -> None:
    """`keepstate`, and `keepstate --help`, list the commands with a line each."""
    for argv in ([], ["--help"]):
        done = run(*argv)
        assert done.code == 0
        for name in COMMANDS:
            if name.count(" ") == 1:
                assert re.search(rf"^│ {name.split()[1]} +\S", done.out, re.MULTILINE), name


def test_a_group_alone_shows_its_help(run) -> None:
    """`keepstate db` is a question."""
    assert "downgrade" in run("db").out
    assert isinstance(COMMANDS["keepstate db"], TyperGroup)


def test_a_mistyped_command_is_guessed(run) -> None:
    """The message names what is close."""
    assert "did you mean `history`?" in run("histroy").err
    assert "did you mean" not in run("xyzzy").err
