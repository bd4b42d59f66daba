"""Records as images and back, for copies of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.backends.fencing import Standing
from keepstate.backends.images import (
    Course,
    Fate,
    Head,
    Image,
    KeptAttempt,
    KeptEntry,
    Origin,
    Tally,
    may_replace,
    stands_as_copied,
    without_uri,
)
from keepstate.backends.memory.record import AttemptRow, Record, Row
from keepstate.backends.requests import Holder
from keepstate.patterns import fits
from keepstate.scope import AssetScope, RunScope, TaskScope

if TYPE_CHECKING:
    from keepstate.backends.images import Selection
    from keepstate.backends.memory.records import Records
    from keepstate.scope import Scope


def head_of(scope: Scope, record: Record) -> Head:
    """Return how a scope stands."""
    assert isinstance(scope, (TaskScope, RunScope, AssetScope))  # noqa: S101 - there are no others
    standing = record.standing
    return Head(
        scope,
        record.version,
        standing.incarnation,
        record.created_at,
        record.updated_at,
        standing.try_number,
        standing.attempt_id,
        standing.item,
        record.state,
        standing.deleted,
    )


def image_of(scope: Scope, record: Record, now: int, own: str) -> Image:
    """Return a scope of the store ``own`` with all that hangs on it and has not expired."""
    rows = {key: row for key, row in sorted(record.rows.items()) if not row.expired(now)}
    return Image.of(
        head_of(scope, record),
        record.copied,
        own,
        entries=tuple(
            KeptEntry(key, row.version, row.updated_at, row.text, row.expires_at, row.writer)
            for key, row in rows.items()
        ),
        log=tuple(version for key in rows for version in reversed(record.history(key, now))),
        attempts=tuple(
            KeptAttempt(
                incarnation=incarnation,
                try_number=try_number,
                state=one.state,
                started_at=one.started_at,
                attempt_id=attempt_id,
                host=one.holder.host if one.holder else None,
                pid=one.holder.pid if one.holder else None,
                process_started=one.holder.started if one.holder else None,
                beat_at=one.beat_at,
                ended_at=one.ended_at,
                reason=one.reason,
                result=one.result,
                arguments=one.arguments,
            )
            for (incarnation, try_number, attempt_id), one in sorted(record.attempts.items())
        ),
    )


def record_of(image: Image, number: int) -> Record:
    """Return the record that an image stands for."""
    head = image.head
    log = {
        entry.key: tuple(one for one in image.log[::-1] if one.key == entry.key) for entry in image.entries
    }
    return Record(
        id=number,
        scope=head.scope,
        created_at=head.created_at,
        updated_at=head.updated_at,
        version=head.version,
        standing=Standing(head.try_number, head.attempt_id, head.incarnation, head.item, head.deleted),
        state=head.state,
        rows={
            one.key: Row(one.text, one.version, one.updated_at, one.expires_at, one.writer)
            for one in image.entries
        },
        log={key: versions for key, versions in log.items() if versions},
        attempts={
            (one.incarnation, one.try_number, one.attempt_id): AttemptRow(
                started_at=one.started_at,
                state=one.state,
                holder=_holder(one),
                beat_at=one.beat_at,
                ended_at=one.ended_at,
                reason=one.reason,
                result=one.result,
                arguments=one.arguments,
            )
            for one in image.attempts
        },
        copied=image.mark,
    )


def _holder(one: KeptAttempt) -> Holder | None:
    if one.host is None or one.pid is None:
        return None
    return Holder(one.host, one.pid, one.process_started or "")


def selected(
    records: Records, selection: Selection, now: int, after: int, limit: int
) -> list[tuple[int, Image]]:
    """Return so many of the selected scopes with their places, from the place ``after`` on."""
    with records.lock:
        found = sorted(
            (one.id, scope)
            for scope, one in records.kept.items()
            if one.id > after and _is_selected(selection, scope)
        )
        return [
            (place, image_of(scope, records.kept[scope], now, records.identity))
            for place, scope in found[:limit]
        ]


def take_in(records: Records, image: Image, *, overwrite: bool) -> Fate:
    """Put a scope in its place, and say what became of it."""
    found, holder = _found(records, image.head.scope)
    if found is not None:
        fate = may_replace(
            image,
            head_of(found.scope, found),
            found.copied,
            lambda: Course.of(image_of(found.scope, found, 0, "")),
            overwrite=overwrite,
        )
        if fate is not Fate.COPIED:
            return fate
        if holder is not None:
            head = head_of(holder.scope, holder)
            as_copied = stands_as_copied(head, holder.copied, image.store)
            if not as_copied and not overwrite:
                return Fate.CONFLICT
            _take_uri(records, holder, image.store if as_copied else None)
        del records.kept[found.scope]
    number = found.id if found else records.next_id()
    records.kept[image.head.scope] = record_of(image, number)
    return Fate.COPIED


def _found(records: Records, scope: Scope) -> tuple[Record | None, Record | None]:
    """Return what an image's scope is here; and, where that is an asset, another one that has its uri."""
    if not isinstance(scope, AssetScope):
        return records.kept.get(scope), None
    known = [(asset, one) for asset, one in records.kept.items() if isinstance(asset, AssetScope)]
    named = next((one for asset, one in known if asset.name == scope.name), None)
    holder = next((one for asset, one in known if asset.uri == scope.uri), None)
    return named or holder, holder if named is not None and holder is not named else None


def _take_uri(records: Records, holder: Record, store: str | None) -> None:
    """Take an asset's uri from it; where it was copied from ``store``, it goes on being as it was copied."""
    asset = holder.scope
    assert isinstance(asset, AssetScope)  # noqa: S101 - nothing else has a uri
    del records.kept[asset]
    holder.scope = without_uri(asset, holder.id)
    records.kept[holder.scope] = holder
    if store is not None:
        holder.copied = Origin(head_of(holder.scope, holder).fingerprint, store).to_text()


def tally(records: Records, selection: Selection, now: int) -> Tally:
    """Count what is selected."""
    with records.lock:
        found = [
            (scope, one)
            for scope, one in records.kept.items()
            if not one.standing.deleted and _is_selected(selection, scope)
        ]
    return Tally(
        task_instances=sum(isinstance(scope, TaskScope) for scope, _ in found),
        runs=sum(isinstance(scope, RunScope) for scope, _ in found),
        assets=sum(isinstance(scope, AssetScope) for scope, _ in found),
        entries=sum(len(one.live(now)) for _, one in found),
        attempts=sum(at.state != "deleted" for _, one in found for at in one.attempts.values()),
    )


def _is_selected(selection: Selection, scope: Scope) -> bool:
    if isinstance(scope, AssetScope):
        names = (str(scope.name), str(scope.uri))
        wanted = selection.assets
        return selection.has_assets and (wanted is None or any(fits(wanted, name) for name in names))
    return (
        selection.has_runs
        and selection.dag_id in {None, scope.dag_id}
        and selection.run_id in {None, scope.run_id}
        and (selection.dags is None or fits(selection.dags, scope.dag_id))
    )
