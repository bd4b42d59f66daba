"""Entries as pages show them: a value cut to what fits, its JSON coloured, and progress where it is a checkpoint's."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keepstate.clock import optional_datetime, to_datetime
from keepstate.errors import InvalidIdError
from keepstate.scope import TaskScope
from keepstate.server.writers import writer_for
from keepstate.values import as_text, decode, is_damaged, size_of
from keepstate.web.difference import difference

if TYPE_CHECKING:
    from datetime import datetime

    from keepstate.backends.answers import StoredEntry
    from keepstate.backends.requests import EntryScope
    from keepstate.scope import Writer
    from keepstate.web.addresses import Addresses
    from keepstate.web.asked import Asked
    from keepstate.web.difference import Difference

_ONE_LINE = 72
_MOST_LINES = 8
_MOST_CHARACTERS = 480
# what is cut to a few lines need not be laid out as a whole first
_LAID_OUT = 20_000
# what is larger is shown as it is stored: laid out and coloured, a megabyte would take seconds and hundreds of megabytes
_LARGE = 100_000

_TOKEN = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*")(?=\s*:)|(?P<text>"(?:[^"\\]|\\.)*"?)|(?P<number>-?\d[\d.eE+-]*)'
    r"|(?P<word>true|false|null)|(?P<rest>[^\"\dtfn-]+|.)",
    re.DOTALL,
)
_POSITION_KEYS = frozenset({"position", "total", "done", "fingerprint"})


@dataclass(frozen=True)
class Token:
    """A piece of JSON text: ``kind`` is ``name``, ``text``, ``number``, ``word`` or ``rest``."""

    kind: str
    text: str


@dataclass(frozen=True)
class Progress:
    """How far a checkpoint has come. ``total`` is ``None`` where nobody knows it."""

    position: int
    total: int | None
    done: bool

    @property
    def percent(self) -> int | None:
        """The whole per cent that are done, if the total is known."""
        if self.total is None:
            return 100 if self.done else None
        return 100 if self.total == 0 else min(self.position * 100 // self.total, 100)


@dataclass(frozen=True)
class WriterShown:
    """Who wrote something: in words, and where more about it is."""

    text: str
    href: str | None = None


@dataclass(frozen=True)
class EntryShown:
    """An entry in a list. ``cut`` says that its value goes on, ``damaged`` that it is none that keepstate wrote."""

    key: str
    tokens: tuple[Token, ...]
    cut: bool
    damaged: bool
    size: int
    version: int
    updated_at: datetime
    expires_at: datetime | None
    writer: WriterShown | None
    progress: Progress | None


def entry_shown(stored: StoredEntry, scope: EntryScope, asked: Asked) -> EntryShown:
    """Return an entry as a list shows it."""
    text, cut = preview(stored.text)
    return EntryShown(
        stored.key,
        tokens(text),
        cut,
        is_damaged(stored.text),
        size_of(as_text(stored.text)),
        stored.version,
        to_datetime(stored.updated_at),
        optional_datetime(stored.expires_at),
        writer_shown(stored.writer, scope, asked),
        progress_of(stored.text),
    )


# -------------------------------------------------------------------------------------------------- values


def pretty(text: str) -> str:
    """Return JSON as people write it: on one line where it fits, else indented. What is damaged or large is left as it is."""
    if len(text) > _LARGE:
        return as_text(text)
    try:
        value = decode(text)
    except ValueError:
        return as_text(text)
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= _ONE_LINE else json.dumps(value, ensure_ascii=False, indent=2)


def difference_of(before: str, after: str) -> Difference | None:
    """Return how one stored value differs from another, or ``None`` where one is damaged."""
    if is_damaged(before) or is_damaged(after):
        return None
    return difference(decode(before), decode(after))


def preview(text: str) -> tuple[str, bool]:
    """Return the beginning of a value, and whether it goes on."""
    if len(text) > _LAID_OUT:
        return as_text(text)[:_MOST_CHARACTERS], True
    lines = pretty(text).split("\n")
    shown = "\n".join(lines[:_MOST_LINES])
    return shown[:_MOST_CHARACTERS], len(lines) > _MOST_LINES or len(shown) > _MOST_CHARACTERS


def tokens(text: str) -> tuple[Token, ...]:
    """Return JSON text, or its beginning, in pieces to be coloured; together they are the text. A large one is one piece."""
    if len(text) > _LARGE:
        return (Token("rest", text),)
    return tuple(Token(found.lastgroup or "rest", found[0]) for found in _TOKEN.finditer(text))


def progress_of(text: str) -> Progress | None:
    """Return how far a checkpoint has come, or ``None`` for an entry that `checkpoint` did not write."""
    if len(text) > _MOST_CHARACTERS or not as_text(text).startswith('{"position":') or is_damaged(text):
        return None
    value: Any = decode(text)
    position, total, done = value.get("position"), value.get("total"), value.get("done")
    if not value.keys() <= _POSITION_KEYS or type(done) is not bool or not _is_count(position):
        return None
    if total is not None and not _is_count(total):
        return None
    return Progress(position, total, done)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


# ------------------------------------------------------------------------------------------------- writers

_PEOPLE = {"web": "on the web pages", "cli": "on the command line", "api": "through the API"}


def writer_shown(text: str | None, scope: EntryScope, asked: Asked) -> WriterShown | None:
    """Return who wrote something at ``scope``, as far as whoever asks may know it; ``None`` where nobody does."""
    writer = writer_for(asked.caller, text)
    if writer is None:
        return None
    if writer.kind == "task":
        return _task(writer, scope, asked.addresses)
    how = _PEOPLE.get(writer.kind, f"by {writer.kind}")
    if writer.token:
        how += f" with the token {writer.token}"
    return WriterShown(f"{writer.name}, {how}" if writer.name else how[:1].upper() + how[1:])


def _task(writer: Writer, scope: EntryScope, addresses: Addresses) -> WriterShown:
    attempt = f"Attempt {writer.try_number}" if writer.try_number else "A task"
    if writer.dag_id is None or writer.run_id is None or writer.task_id is None:
        # the store leaves out what the scope says already; and of others' tasks nothing is told
        return WriterShown(attempt)
    index = -1 if writer.map_index is None else writer.map_index
    try:
        its = TaskScope(writer.dag_id, writer.run_id, writer.task_id, index)
    except InvalidIdError:
        return WriterShown(attempt)
    if its == scope:
        return WriterShown(attempt)
    of = f"{its}, attempt {writer.try_number}" if writer.try_number else str(its)
    return WriterShown(of, addresses.task_instance(its))
