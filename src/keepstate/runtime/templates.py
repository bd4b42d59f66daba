"""Rendering the strings in a task's arguments with Jinja2, in its sandbox, where there is anything to render."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from keepstate.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping


def render(value: Any, context: Mapping[str, Any]) -> Any:
    """Return ``value`` with every string in it rendered, inside lists, tuples, sets and dicts too; other objects as they are.

    Jinja2 is loaded only for a string that holds ``{{`` or ``{%``. A name that the context lacks, or a template that can't
    be read, is ``InvalidInputError``.
    """
    if isinstance(value, str):
        return _render_text(value, context) if "{{" in value or "{%" in value else value
    kind = type(value)
    if kind in {list, tuple, set}:
        return kind(render(member, context) for member in value)
    if kind is dict:
        return {key: render(member, context) for key, member in value.items()}
    return value


def _render_text(text: str, context: Mapping[str, Any]) -> str:
    import jinja2

    try:
        return str(_environment().from_string(text).render(context))
    except jinja2.TemplateError as exc:
        raise InvalidInputError(
            f"the template {text!r:.200} can't be rendered: {exc.message}; a task's templates know {', '.join(sorted(context))}"
        ) from exc


@cache
def _environment() -> Any:
    import jinja2.sandbox

    return jinja2.sandbox.ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, cache_size=0
    )
