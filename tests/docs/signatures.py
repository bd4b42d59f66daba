"""How the reference shows a signature: as Python does, but with plain annotations and named defaults."""

from __future__ import annotations

import inspect
import re
from typing import Any

_SPACE = re.compile(r"\s+")


def shown(name: str, function: Any) -> str:
    """Return the one line that the reference has for a callable: ``name(parameters) -> result``."""
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name not in {"self", "cls"}]
    parts: list[str] = []
    keyword_only = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
                parts.append("*")
        parts.append(_parameter(parameter))
    if any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        last = max(i for i, p in enumerate(parameters) if p.kind is p.POSITIONAL_ONLY)
        parts.insert(last + 1, "/")
    result = (
        "" if signature.return_annotation is signature.empty else f" -> {_type(signature.return_annotation)}"
    )
    return squeezed(f"{name}({', '.join(parts)}){result}")


def squeezed(text: str) -> str:
    """Return a signature without the line breaks and trailing commas that a page may have."""
    text = _SPACE.sub(" ", text).strip()
    return text.replace("( ", "(").replace(", )", ")").replace(" )", ")")


def _parameter(parameter: inspect.Parameter) -> str:
    text = parameter.name
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
        text = ("*" if parameter.kind is parameter.VAR_POSITIONAL else "**") + text
    if parameter.annotation is not parameter.empty:
        text += f": {_type(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        spaced = " = " if parameter.annotation is not parameter.empty else "="
        text += spaced + _default(parameter.default)
    return text


def _type(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return str(getattr(annotation, "__name__", annotation)).replace("NoneType", "None")


def _default(value: Any) -> str:
    return value.__name__ if inspect.isroutine(value) else repr(value)
