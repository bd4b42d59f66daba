"""Records as images and back, for copies of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.backends.fencing import Standing
from keepstate.backends.images import Head, Image, KeptAttempt, KeptEntry
from keepstate.backends.memory.record import AttemptRow, Record, Row
from keepstate.backends.requests import Holder
from keepstate.scope import AssetScope, RunScope, TaskScope

if TYPE_CHECKING:
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


def image_of(scope: Scope, record: Record, now: int) -> Image:
    """Return a scope with all that hangs on it and has not expired."""
    rows = {key: row for key, row in sorted(record.rows.items()) if not row.expired(now)}
    return Image(
        head=head_of(scope, record),
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
        origin=record.copied,
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
        copied=head.fingerprint,
    )


def _holder(one: KeptAttempt) -> Holder | None:
    if one.host is None or one.pid is None:
        return None
    return Holder(one.host, one.pid, one.process_started or "")
