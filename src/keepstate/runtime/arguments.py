"""Calling a task's function: which arguments it gets, and how they are told from those of another call."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from keepstate.runtime.fingerprints import fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from keepstate.runtime.context import Context


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
