"""What a backend is asked: attempts and changes, as the verbs of `backends.base` take them.

Times are microseconds since 1970 in UTC. Values are JSON text.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from keepstate.scope import AssetScope, RunScope, TaskScope, Writer
from keepstate.values import size_of

HeldScope = TaskScope | RunScope
"""What attempts are made of."""

EntryScope = TaskScope | AssetScope
"""What entries hang on."""

# Nobody changes a request or an answer. Those that every `set` makes are not frozen all the same, as making one would take
# three times as long: Session, Put and Batch, and Applied among the answers.


@dataclass(frozen=True)
class Fence:
    """The attempt in whose name a request comes. Without one, it comes from a person and is not fenced.

    ``attempt_id`` is the engine's unique id of this try, where it has one. ``item`` is the fingerprint of the mapped
    item. ``incarnation`` is the one in which the caller registered, once it knows; it is refused in any other.
    """

    try_number: int
    attempt_id: str | None = None
    item: str | None = None
    incarnation: int | None = None


@dataclass(frozen=True)
class Behalf:
    """The attempt in whose name an asset is changed: refused unless it is current where it belongs, at its own task."""

    scope: TaskScope
    fence: Fence


@dataclass
class Session:
    """The number of a request within a client session, so that a retried request applies once.

    Requests of one session come one after another, with rising numbers (Raft's client sessions; Ongaro 2014, 6.3).
    """

    id: str
    number: int


@dataclass
class Put:
    """Write ``text`` under ``key``. ``expected`` is the version it must stand at: 0 is absent, ``None`` is any."""

    key: str
    text: str
    expires_at: int | None
    expected: int | None = None


@dataclass(frozen=True)
class Delete:
    """Remove ``key``; absent is fine, unless ``expected`` names a version."""

    key: str
    expected: int | None = None


Change = Put | Delete


@dataclass(frozen=True)
class HistoryPolicy:
    """What is kept of earlier versions: how many per key, for how long once deleted, and up to what size (0 = any)."""

    limit: int = 20
    days: int = 7
    value_bytes: int = 65_535

    def logged(self, text: str) -> tuple[int, str | None, str | None]:
        """Return a value's size in bytes, and what the log keeps of it: its text, or above the size limit its SHA-256."""
        size = size_of(text)
        if self.value_bytes and size > self.value_bytes:
            return size, None, hashlib.sha256(text.encode()).hexdigest()
        return size, text, None


@dataclass
class Batch:
    """Changes to one scope that apply together or not at all, under one new version. Keys are distinct.

    ``known``: refused with ``ScopeNotFoundError`` unless the scope is there already, and was not deleted.
    """

    scope: EntryScope
    changes: tuple[Change, ...]
    now: int
    writer: Writer
    fence: Fence | None = None
    session: Session | None = None
    history: HistoryPolicy = field(default_factory=HistoryPolicy)
    behalf: Behalf | None = None
    known: bool = False


@dataclass(frozen=True)
class Clear:
    """Remove every entry of a scope, its history too with ``forget``; of every map index with ``all_map_indices``.

    ``known`` as in ``Batch``; with ``all_map_indices`` it is enough that one map index is known.
    """

    scope: EntryScope
    now: int
    writer: Writer
    fence: Fence | None = None
    session: Session | None = None
    history: HistoryPolicy = field(default_factory=HistoryPolicy)
    forget: bool = False
    all_map_indices: bool = False
    behalf: Behalf | None = None
    known: bool = False


@dataclass(frozen=True)
class Holder:
    """The process that carries out an attempt. ``started`` tells a process from a later one with the same pid."""

    host: str
    pid: int
    started: str


@dataclass(frozen=True)
class Begin:
    """Begin an attempt and hold the scope.

    ``try_number`` ``None`` means the next. While the current attempt is running and its holder gives signs of life
    within ``lease`` microseconds, beginning is refused, unless ``take_over`` is set or ``dead`` names it as the attempt
    whose process the caller knows to be gone.
    """

    scope: HeldScope
    attempt_id: str
    holder: Holder
    now: int
    lease: int
    try_number: int | None = None
    item: str | None = None
    take_over: bool = False
    dead: Fence | None = None
    history: HistoryPolicy = field(default_factory=HistoryPolicy)


@dataclass(frozen=True)
class End:
    """Record how an attempt ended.

    ``result`` is the JSON text of a task's result and ``arguments`` the fingerprint of what it was called with.
    ``clear`` removes the scope's entries in the same transaction (``clear_on_success``).
    """

    scope: HeldScope
    fence: Fence
    state: str
    now: int
    reason: str | None = None
    result: str | None = None
    arguments: str | None = None
    clear: bool = False
    history: HistoryPolicy = field(default_factory=HistoryPolicy)
