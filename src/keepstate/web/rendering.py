"""From a page's context to HTML. Everything is escaped; a name that a context lacks is an error, never an empty place."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from keepstate.clock import to_datetime, to_text
from keepstate.web.addresses import with_query
from keepstate.web.states import look_of
from keepstate.web.static import address_of

if TYPE_CHECKING:
    from datetime import datetime


def render(template: str, page: Any) -> str:
    """Return the HTML of a template, in which the context is called ``page``."""
    return _environment().get_template(template).render(page=page)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("keepstate.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_as_written,
    )
    environment.filters.update(
        instant=to_text, plain_time=_plain_time, number=_number, size=_size, days=_days, moment=to_datetime
    )
    environment.globals.update(asset=address_of, with_query=with_query, look_of=look_of, anchor=anchor)
    return environment


def _as_written(value: object) -> object:
    if not isinstance(value, str) or "\r" not in value:
        return value
    # HTML reads a carriage return as a line feed, so that a form would send another key than the one that was meant
    return Markup(str(escape(value)).replace("\r", "&#13;"))  # noqa: S704 - it is escaped


def anchor(key: str) -> str:
    """Return an id for what belongs to a key: the same each time, so that the focus finds it again in a new part."""
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def _plain_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _number(value: int) -> str:
    return f"{value:,}"


def _days(count: int) -> str:
    return "1 day" if count == 1 else f"{count:,} days"


_KILO = 1024


def _size(count: int) -> str:
    if count < _KILO:
        return f"{count} bytes"
    if count < _KILO * _KILO:
        return f"{count / _KILO:.1f} KB"
    return f"{count / _KILO / _KILO:.1f} MB"
