"""Calling a task's function: which arguments it gets, and how they are told from those of another call."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import inspect
import json
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keepstate.runtime.context import Context

_SIMPLE = (str, int, float, bool, type(None))
# nobody passes that, but what contains itself has no end
_DEEPEST = 100


def arguments_for(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    """Return the keyword arguments to call with besides ``args``: the caller's, and what the context has for the rest.

    A parameter is served from the context if it has the name of something there (or is ``context``, the whole of it) and no
    default but ``None``. ``**anything`` gets all that is left. What the caller gives wins.
    """
    signature = _signature(function)
    if signature is None:
        return dict(kwargs)
    known = {**context, "context": context}
    given = signature.bind_partial(*args, **kwargs).arguments
    found = dict(kwargs)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            rest = {key: value for key, value in context.items() if key not in signature.parameters}
            found = {**rest, **found}
        elif name in known and name not in given and _waits(parameter):
            found[name] = known[name]
    return found


def check_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], known: frozenset[str]
) -> None:
    """Raise Python's own ``TypeError`` for a call that can't work, before anything of it is stored."""
    signature = _signature(function)
    if signature is None:
        return
    given = signature.bind_partial(*args, **kwargs).arguments
    filled = {
        name: None
        for name, parameter in signature.parameters.items()
        if name in known and name not in given and _waits(parameter)
    }
    signature.bind(*args, **{**kwargs, **filled})


def _waits(parameter: inspect.Parameter) -> bool:
    named = parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}
    return named and (parameter.default is parameter.empty or parameter.default is None)


def fingerprint(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return a short hash of what a function is called with, the same in every process and however it is passed."""
    signature = _signature(function)
    if signature is None:
        return fingerprint_of({"args": args, "kwargs": kwargs})
    return fingerprint_of(signature.bind_partial(*args, **kwargs).arguments)


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature; ``None`` of a builtin that tells none, and so can't ask for anything of the context."""
    try:
        return inspect.signature(function)
    except ValueError:
        return None


def fingerprint_of(arguments: Mapping[str, Any]) -> str:
    """Return a short hash of named arguments.

    What JSON holds is compared by value, tuples, sets and bytes too; a dataclass, an enum, a date, an array, and whatever else
    has an equality of its own, by its content. Of an object that is equal to itself alone (a client, a connection) only the
    type is compared.
    """
    text = json.dumps(_plain(dict(arguments), 0), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _plain(value: Any, depth: int) -> Any:
    """Return something that JSON holds and that is equal for values that count as equal."""
    kind = type(value)
    if kind in _SIMPLE:
        return value
    if depth > _DEEPEST:
        return "…"
    if kind in {list, tuple}:
        return [_plain(member, depth + 1) for member in value]
    if kind is dict:
        return {"{}": _sorted([_plain(pair, depth + 1) for pair in value.items()])}
    if kind in {set, frozenset}:
        return {"set": _sorted([_plain(member, depth + 1) for member in value])}
    return _object(value, depth)


def _object(value: Any, depth: int) -> Any:
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return {"named": f"{value.__module__}.{value.__qualname__}"}
    if isinstance(value, enum.Enum):
        return {type(value).__qualname__: value.name}
    kind: Any = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__eq__ is object.__eq__:
        return {name: ""}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: _plain(fields, depth + 1)}
    return {name: _content(value)}


def _sorted(members: list[Any]) -> list[Any]:
    return sorted(members, key=json.dumps)


def _content(value: object) -> str:
    import pickle

    try:
        return hashlib.sha256(pickle.dumps(value, protocol=4)).hexdigest()
    except Exception:  # noqa: BLE001 - a class may raise whatever it likes, and then only its name is compared
        return ""
