"""Scopes as a whole, for copies of a store: what a backend gives out and takes in besides the verbs of `backends.base`.

An image is a scope with all that hangs on it at one moment: entries, what is left of removed ones, history and attempts. So
a copy is fenced as its original is, and compare-and-set goes on where it stood. Numbers that a store gives to its rows are its
own, and those of its clients' sessions are nobody else's: neither is part of an image.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from keepstate.backends.answers import StoredVersion  # noqa: TC001 - it is looked up where an image becomes JSON
from keepstate.scope import AssetScope, RunScope, TaskScope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LONGEST_URI = 1500


@dataclass(frozen=True)
class KeptEntry:
    """An entry; or, without a text, what is left of a removed one for as long as its history lasts."""

    key: str
    version: int
    updated_at: int
    text: str | None = None
    expires_at: int | None = None
    writer: str | None = None


@dataclass(frozen=True)
class KeptAttempt:
    """An attempt, with what only its store knows of it. ``attempt_id`` is empty where it has none."""

    incarnation: int
    try_number: int
    state: str
    started_at: int
    attempt_id: str = ""
    item: str | None = None
    host: str | None = None
    pid: int | None = None
    process_started: str | None = None
    beat_at: int | None = None
    ended_at: int | None = None
    reason: str | None = None
    result: str | None = None
    arguments: str | None = None


@dataclass(frozen=True)
class Head:
    """How a scope stands, without its contents. An asset's name and uri are part of how it stands."""

    scope: TaskScope | RunScope | AssetScope
    version: int
    incarnation: int
    created_at: int
    updated_at: int
    try_number: int | None = None
    attempt_id: str | None = None
    item: str | None = None
    state: str | None = None
    deleted: bool = False

    @property
    def fingerprint(self) -> str:
        """What tells it from every other moment of any scope: whatever changes a scope changes its head."""
        facts = [getattr(self, one.name) for one in fields(Head) if one.name != "scope"]
        text = json.dumps([str(type(self.scope).__name__), *_names(self.scope), *facts], ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:40]

    def follows(self, other: Head) -> bool:
        """Whether this is no earlier state than ``other`` in what one store does to one scope.

        A scope that was removed and made again was created later; else a version and an attempt never go back.
        """
        if self.created_at != other.created_at:
            return self.created_at > other.created_at
        own = self.version, (self.incarnation, self.try_number or 0)
        theirs = other.version, (other.incarnation, other.try_number or 0)
        if own == theirs:
            return self.updated_at >= other.updated_at
        return own[0] >= theirs[0] and own[1] >= theirs[1]


@dataclass(frozen=True)
class Origin:
    """What was last copied into a scope: the fingerprint of its head, and the store that had brought it to there."""

    fingerprint: str
    store: str

    def to_text(self) -> str:
        """Return what a store keeps of it."""
        return f"{self.fingerprint} {self.store}"

    @classmethod
    def from_text(cls, text: str | None) -> Origin | None:
        """Return what ``to_text`` wrote; nothing where nothing was copied."""
        return None if text is None else cls(*text.split(" "))


@dataclass(frozen=True)
class Image:
    """A scope with all that hangs on it, at one moment. What has expired by then is not part of it.

    ``origin`` is the fingerprint of the head that was last copied into this scope, if any was. ``store`` is the identity of
    the store that brought it to where it is: where nobody has changed it since it was copied, the one that it came from.
    """

    head: Head
    entries: tuple[KeptEntry, ...] = ()
    log: tuple[StoredVersion, ...] = ()
    attempts: tuple[KeptAttempt, ...] = ()
    origin: str | None = None
    store: str = ""

    @classmethod
    def of(cls, head: Head, copied: str | None, own: str, **contents: Any) -> Image:
        """Return the image of a scope of the store ``own``, into which ``copied`` was copied, as `Origin` writes it."""
        origin = Origin.from_text(copied)
        if origin is None:
            return cls(head, store=own, **contents)
        store = origin.store if origin.fingerprint == head.fingerprint else own
        return cls(head, origin=origin.fingerprint, store=store, **contents)

    @property
    def mark(self) -> str:
        """What is kept of it where it is copied to."""
        return Origin(self.head.fingerprint, self.store).to_text()


@dataclass(frozen=True)
class Selection:
    """Which scopes are meant: all, unless something is named. Assets are meant where they, or nothing, are named."""

    dag_id: str | None = None
    run_id: str | None = None
    dags: str | None = None
    assets: str | None = None

    @property
    def has_runs(self) -> bool:
        """Whether it means any run."""
        return self.assets is None or (self.dag_id, self.run_id, self.dags) != (None, None, None)

    @property
    def has_assets(self) -> bool:
        """Whether it means any asset."""
        return self.assets is not None or (self.dag_id, self.run_id, self.dags) == (None, None, None)


@dataclass(frozen=True)
class Tally:
    """How much there is: scopes by kind, entries that can be read, and attempts that can be seen."""

    task_instances: int = 0
    runs: int = 0
    assets: int = 0
    entries: int = 0
    attempts: int = 0


class Fate(Enum):
    """What became of an image."""

    COPIED = "copied"
    """It is what the scope holds now."""
    UNCHANGED = "unchanged"
    """The scope held it already, or has gone on from there by itself since."""
    CONFLICT = "conflict"
    """The scope holds something that the image does not go on from, and was left alone."""


@dataclass(frozen=True)
class Course:
    """When what happened to a scope did, as far as it is still known: changes by version, attempts by what names them.

    One store gives a version to one change, and writes of an attempt once when it began. Where the same has two times, a
    store's file was duplicated and both went on: neither of the two states goes on from the other.
    """

    changes: Mapping[int, int]
    attempts: Mapping[tuple[int, int, str], int]

    @classmethod
    def of(cls, image: Image) -> Course:
        """Return the course that an image tells of."""
        entries = {one.version: one.updated_at for one in image.entries}
        log = {one.version: one.written_at for one in image.log}
        began = {(one.incarnation, one.try_number, one.attempt_id): one.started_at for one in image.attempts}
        return cls({**log, **entries}, began)

    def agrees_with(self, other: Course) -> bool:
        """Whether nothing of which both tell has two times."""
        return all(other.changes.get(what, when) == when for what, when in self.changes.items()) and all(
            other.attempts.get(what, when) == when for what, when in self.attempts.items()
        )


def may_replace(
    image: Image, there: Head, copied: str | None, course: Callable[[], Course], *, overwrite: bool
) -> Fate:
    """Decide what becomes of an image where its scope is known: the one place where copies are compared.

    ``copied`` is what was last copied there, ``course`` returns what is known of its past. Only a later state of the same may
    replace it: what came from the same store, or what goes on from what was copied from there to where the image comes from.
    With ``overwrite``, all that is another state is replaced, also one that went on from the image itself.
    """
    new, old, origin = image.head.fingerprint, there.fingerprint, Origin.from_text(copied)
    if new == old or (not overwrite and origin is not None and new == origin.fingerprint):
        return Fate.UNCHANGED
    if not overwrite and not image.head.follows(there):
        return Fate.CONFLICT
    if overwrite or image.origin == old:
        return Fate.COPIED
    if not stands_as_copied(there, copied, image.store):
        return Fate.CONFLICT
    # the name of a store is duplicated with its file; of one that was made anew, numbers begin anew
    made_anew = image.head.created_at != there.created_at
    return Fate.COPIED if made_anew or Course.of(image).agrees_with(course()) else Fate.CONFLICT


def stands_as_copied(there: Head, copied: str | None, store: str) -> bool:
    """Whether a scope is as it was copied from ``store``, and nobody has changed it since."""
    return store != "" and Origin.from_text(copied) == Origin(there.fingerprint, store)


def without_uri(asset: AssetScope, number: int) -> AssetScope:
    """Return what an asset is called whose uri has gone to another one, until it is known which it has now."""
    return AssetScope(asset.name, f"moved:{number}:{asset.uri}"[:_LONGEST_URI])


@runtime_checkable
class Copyable(Protocol):
    """A backend whose scopes can be copied as a whole."""

    address: str

    def images(self, selection: Selection, *, now: int, after: int, limit: int) -> list[tuple[int, Image]]:
        """Return up to ``limit`` images, each with its place, in the order of their places, of those above ``after``.

        Places begin above 0, and a scope that is made later has a higher one. Each image is of one moment; they need not
        all be of the same.
        """
        ...

    def take_in(self, several: Sequence[Image], *, now: int, overwrite: bool = False) -> list[Fate]:
        """Store images, each as a whole or not at all, and return what became of each. ``overwrite``: conflicts are none.

        They are of different scopes. Those that are replaced are locked, as by any change.
        """
        ...

    def tally(self, selection: Selection, *, now: int) -> Tally:
        """Count what is there."""
        ...


def _names(scope: TaskScope | RunScope | AssetScope) -> list[str | int | None]:
    if isinstance(scope, AssetScope):
        return [scope.name, scope.uri]
    if isinstance(scope, RunScope):
        return [scope.dag_id, scope.run_id]
    return [scope.dag_id, scope.run_id, scope.task_id, scope.map_index]
