"""Rendering the strings in a task's arguments with Jinja2, in its sandbox, where there is anything to render.

Strings may come from anywhere, the result of another task included. So a template sees plain values, and no object by which
it could reach the store, its settings, or the program; and it can't be made to fill the memory by a product or a power.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from keepstate.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLAIN = ("ds", "ds_nodash", "logical_date", "run_id", "try_number", "ts", "ts_nodash")
# more than any path, name or command needs
_LONGEST_PRODUCT = 1_000_000
_HIGHEST_POWER = 1_000


def render(value: Any, context: Mapping[str, Any]) -> Any:
    """Return ``value`` with every string in it rendered, inside lists, tuples, sets and dicts too; other objects as they are.

    Of the ``context`` templates see what `visible` leaves. Jinja2 is loaded only for a string that holds ``{{`` or ``{%``.
    Raises ``InvalidInputError`` for a name that the context lacks, and a template that can't be rendered.
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
    names = visible(context)
    try:
        return str(_environment().from_string(text).render(names))
    except Exception as exc:
        # not only Jinja2's own: a template may divide by zero as well
        raise InvalidInputError(
            f"the template {text!r:.200} can't be rendered: {exc}; a task's templates know {', '.join(sorted(names))}"
        ) from exc


def visible(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a task's context templates may see: ids, numbers and dates, without the objects that hold them."""
    run, ti = context["dag_run"], context["ti"]
    date = context["logical_date"]
    attempt = SimpleNamespace(
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=ti.map_index,
        try_number=ti.try_number,
        max_tries=ti.max_tries,
        id=ti.id,
        attempt_id=ti.attempt_id,
    )
    return {
        **{name: context[name] for name in _PLAIN},
        "dag_run": SimpleNamespace(dag_id=run.dag_id, run_id=run.run_id, logical_date=date, start_date=date),
        "task": SimpleNamespace(task_id=ti.task_id),
        "task_instance": attempt,
        "ti": attempt,
    }


@cache
def _environment() -> Any:
    import jinja2.exceptions
    import jinja2.sandbox

    class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if operator == "**":
                too_much = max(abs(left), abs(right)) > _HIGHEST_POWER
            else:
                sizes = [abs(side) if isinstance(side, (int, float)) else len(side) for side in (left, right)]
                too_much = sizes[0] * sizes[1] > _LONGEST_PRODUCT and not (
                    isinstance(left, (int, float)) and isinstance(right, (int, float))
                )
            if too_much:
                raise jinja2.exceptions.SecurityError(f"{operator} would make too much of it")
            return super().call_binop(context, operator, left, right)

    return Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, cache_size=0)
