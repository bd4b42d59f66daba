"""Copying a store into another: scope by scope, in batches, as often as it takes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from keepstate.backends.images import Copyable, Fate, Image, Selection
from keepstate.errors import UnsupportedError
from keepstate.scope import AssetScope
from keepstate.values import is_damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeVar

    from keepstate.backends.answers import StoredVersion
    from keepstate.backends.images import KeptAttempt, KeptEntry
    from keepstate.store import StateStore

    _Kept = TypeVar("_Kept", KeptEntry, StoredVersion, KeptAttempt)

_MOST_AT_ONCE = 250
# so much of values is held in memory at a time, unless a single scope has more
_ROOM = 4 * 1024 * 1024
_MOST_NAMED = 5


@dataclass(frozen=True)
class Progress:
    """What was looked at so far, and how much of it was copied. ``conflicts`` names the first few that were left alone."""

    scopes: int = 0
    copied: int = 0
    unchanged: int = 0
    left_alone: int = 0
    entries: int = 0
    versions: int = 0
    attempts: int = 0
    conflicts: tuple[str, ...] = field(default=())

    def after(self, images: Iterable[Image], fates: Iterable[Fate]) -> Progress:
        """Return the sum with a batch more."""
        total = self
        for image, fate in zip(images, fates, strict=True):
            total = replace(total, scopes=total.scopes + 1)
            if fate is Fate.COPIED:
                total = replace(
                    total,
                    copied=total.copied + 1,
                    entries=total.entries + sum(one.text is not None for one in image.entries),
                    versions=total.versions + len(image.log),
                    attempts=total.attempts + len(image.attempts),
                )
            elif fate is Fate.UNCHANGED:
                total = replace(total, unchanged=total.unchanged + 1)
            else:
                named = (*total.conflicts, str(image.head.scope))[:_MOST_NAMED]
                total = replace(total, left_alone=total.left_alone + 1, conflicts=named)
        return total


def copyable(store: StateStore) -> Copyable:
    """Return the backend of a store whose scopes can be copied as a whole; raise ``UnsupportedError`` where they can't."""
    backend = store.backend
    if not isinstance(backend, Copyable):
        raise UnsupportedError(
            f"{backend.address} can't be copied, exported or imported: that is done where the tables are. Name the SQLite file or "
            "the database itself; for a keepstate server, `keepstate export` on one machine and `keepstate import` where the "
            "server runs, which it may go on doing"
        )
    return backend


def images_of(store: StateStore, selection: Selection) -> Iterator[list[Image]]:
    """Yield what a store holds, a batch at a time, however much that is. What is made meanwhile comes last."""
    source = copyable(store)
    place, limit = 0, _MOST_AT_ONCE
    while found := source.images(selection, now=store.clock(), after=place, limit=limit):
        place = found[-1][0]
        yield [image for _, image in found]
        size = sum(map(_weight, (image for _, image in found)))
        limit = max(1, min(_MOST_AT_ONCE, limit * 2, limit * _ROOM // max(size, 1)))


def take_in(
    store: StateStore,
    batches: Iterable[list[Image]],
    *,
    overwrite: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Progress:
    """Store images, each scope as a whole or not at all; return what became of them.

    What is there already and has not changed since it was copied is brought up to date, and what was changed there by itself
    is left alone, unless ``overwrite`` is set.
    """
    target = copyable(store)
    total = Progress()
    for batch in batches:
        total = total.after(batch, target.take_in(batch, now=store.clock(), overwrite=overwrite))
        if on_progress is not None:
            on_progress(total)
    return total


def as_carried(batches: Iterable[list[Image]], damaged: Callable[[str], object]) -> Iterator[list[Image]]:
    """Yield images as any store can hold them, and tell ``damaged`` each value in them that keepstate did not write.

    Such a value goes over as it is; but what is no text, or has a NUL, which some databases refuse, as Python shows it.
    """
    for batch in batches:
        whole = []
        for image in batch:
            for entry in image.entries:
                if entry.text is not None and is_damaged(entry.text):
                    damaged(f"the key {entry.key!r} of {image.head.scope}")
            whole.append(
                replace(
                    image,
                    entries=tuple(map(_storable, image.entries)),
                    log=tuple(map(_storable, image.log)),
                    attempts=tuple(map(_storable, image.attempts)),
                )
            )
        yield whole


def _storable(one: _Kept) -> _Kept:
    odd: dict[str, Any] = {
        name: repr(fact)
        for name, fact in vars(one).items()
        if type(fact) is bytes or (type(fact) is str and "\0" in fact)
    }
    return replace(one, **odd) if odd else one


def in_batches(images: Iterable[Image]) -> Iterator[list[Image]]:
    """Group images as `take_in` wants them: not too many at a time, and each scope once."""
    batch: list[Image] = []
    weight = 0
    names: set[object] = set()
    for image in images:
        own = _names(image)
        if batch and (weight >= _ROOM or len(batch) >= _MOST_AT_ONCE or own & names):
            yield batch
            batch, weight, names = [], 0, set()
        batch.append(image)
        weight += _weight(image)
        names |= own
    if batch:
        yield batch


def _names(image: Image) -> set[object]:
    """Return by what a scope is found: half a name is enough for an asset."""
    scope = image.head.scope
    return {("name", scope.name), ("uri", scope.uri)} if isinstance(scope, AssetScope) else {scope}


def _weight(image: Image) -> int:
    texts = (
        *(entry.text for entry in image.entries),
        *(version.text for version in image.log),
        *(attempt.result for attempt in image.attempts),
    )
    return sum(len(text) for text in texts if text)
