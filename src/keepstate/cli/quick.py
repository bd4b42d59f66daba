"""Reads a plain command line without Typer; whatever is unusual, or wrong, is Typer's to judge."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from keepstate.cli.declared import REQUIRED, Argument, Declaration, Group, Option, declarations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Call = tuple[Callable[..., int | None], dict[str, Any]]

NEGATIVE = re.compile(r"-\.?\d")
"""What begins like a negative number, and is no option: none begins with a digit."""

_WHOLE = re.compile(r"-?\d{1,9}", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


class _UnsureError(Exception):
    """This command line is not plain."""


def read(found: Callable[..., int | None] | Group, args: Sequence[str]) -> Call | None:
    """Return the function that ``args`` call, and its parameters; ``None`` when that is not for here to say."""
    if isinstance(found, Group):
        if args and args[0] in found.commands:
            return read(found.commands[args[0]], args[1:])
        if not found.callable_alone:
            return None
        found = found.head
    try:
        return found, _parameters(found, list(args))
    except _UnsureError:
        return None


def _parameters(function: Callable[..., int | None], args: list[str]) -> dict[str, Any]:
    declared = declarations(function)
    options = {
        spelling: (name, one)
        for name, one in declared.items()
        if isinstance(one.spelled, Option)
        for spelling in one.spelled.names
    }
    arguments = {name: one for name, one in declared.items() if isinstance(one.spelled, Argument)}
    # the last argument may be another program's command line
    takes_words = any(one.kind == list[str] for one in arguments.values())
    given: dict[str, Any] = {}
    words = _split(options, args, given, takes_words=takes_words)
    if takes_words:
        if not words:
            raise _UnsureError
        return {**given, next(iter(arguments)): words}
    if len(words) != len(arguments):
        raise _UnsureError
    for (name, one), word in zip(arguments.items(), words, strict=True):
        given[name] = _value(one, word)
    if any(one.default is REQUIRED and name not in given for name, one in declared.items()):
        raise _UnsureError
    return given


def _split(
    options: dict[str, tuple[str, Declaration]], args: list[str], given: dict[str, Any], *, takes_words: bool
) -> list[str]:
    """Move what the options in ``args`` say to ``given``, and return what are no options."""
    words: list[str] = []
    while args:
        word = args.pop(0)
        if word == "--":
            return words + args
        negative = NEGATIVE.match(word) and not takes_words
        if word.startswith("-") and word != "-" and not negative:
            _take_option(options, word, args, given)
        elif takes_words:
            return [word, *args]
        else:
            words.append(word)
    return words


def _take_option(
    options: dict[str, tuple[str, Declaration]], word: str, args: list[str], given: dict[str, Any]
) -> None:
    spelled, has_value, text = word.partition("=")
    if spelled not in options or not spelled.startswith("--" if has_value else "-"):
        raise _UnsureError
    name, one = options[spelled]
    if one.kind is bool:
        if has_value:
            raise _UnsureError
        given[name] = True
        return
    if not has_value:
        if not args or (args[0].startswith("-") and args[0] != "-"):
            raise _UnsureError
        text = args.pop(0)
    given[name] = _value(one, text)


def _value(one: Declaration, text: str) -> Any:
    if one.kind in (str, str | None):
        return text
    pattern, make = (_NUMBER, float) if one.kind is float else (_WHOLE, int)
    if not pattern.fullmatch(text):
        raise _UnsureError
    number = make(text)
    if one.spelled.minimum is not None and number < one.spelled.minimum:
        raise _UnsureError
    return number
