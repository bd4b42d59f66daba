"""One scope with everything that hangs on it, and how a change to it is carried out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from keepstate.backends.answers import ChangeNotice, StoredEntry, StoredVersion
from keepstate.backends.fencing import BURIED, NEW, Standing, Verdict, end_of_superseded, judge, outlived
from keepstate.backends.refusals import conflict, held, stale
from keepstate.backends.requests import Fence, HistoryPolicy, Put
from keepstate.clock import DAY, optional_datetime, to_datetime
from keepstate.scope import AssetScope, Attempt

if TYPE_CHECKING:
    from keepstate.backends.requests import Batch, Begin, Change, Clear, EntryScope, Holder
    from keepstate.scope import Scope


@dataclass(frozen=True)
class Row:
    """An entry; or, without a text, the tombstone of one, which lasts as long as the key's history."""

    text: str | None
    version: int
    updated_at: int
    expires_at: int | None
    writer: str | None

    def expired(self, now: int) -> bool:
        """Whether the entry's or tombstone's time has come."""
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True)
class AttemptRow:
    """An attempt as it is kept, under its incarnation, number and id."""

    started_at: int
    state: str = "running"
    holder: Holder | None = None
    beat_at: int | None = None
    ended_at: int | None = None
    reason: str | None = None
    result: str | None = None
    arguments: str | None = None

    def shown(self, incarnation: int, try_number: int, attempt_id: str) -> Attempt:
        """Return what a list of attempts shows."""
        return Attempt(
            try_number=try_number,
            attempt_id=attempt_id or None,
            incarnation=incarnation,
            state=self.state,
            host=self.holder.host if self.holder else None,
            pid=self.holder.pid if self.holder else None,
            started_at=to_datetime(self.started_at),
            beat_at=optional_datetime(self.beat_at),
            ended_at=optional_datetime(self.ended_at),
            reason=self.reason,
            process_started=self.holder.started if self.holder else None,
        )


@dataclass
class Record:
    """A scope. Its dicts hold values that never change, so copying the dicts copies all of it."""

    id: int
    scope: Scope
    created_at: int
    updated_at: int
    version: int = 0
    standing: Standing = NEW
    state: str | None = None
    reset: bool = False
    copied: str | None = None
    rows: dict[str, Row] = field(default_factory=dict)
    log: dict[str, tuple[StoredVersion, ...]] = field(default_factory=dict)
    attempts: dict[tuple[int, int, str], AttemptRow] = field(default_factory=dict)

    def copy(self) -> Record:
        """Return a copy that may be changed without touching this one."""
        return replace(
            self, reset=False, rows=dict(self.rows), log=dict(self.log), attempts=dict(self.attempts)
        )

    # ------------------------------------------------------------------------------------------- entries

    def live(self, now: int) -> dict[str, Row]:
        """Return the entries that are there."""
        return {key: row for key, row in self.rows.items() if row.text is not None and not row.expired(now)}

    def entries(self, now: int) -> list[StoredEntry]:
        """Return the entries that are there, ordered by key."""
        return [
            StoredEntry(key, row.text, row.version, row.updated_at, row.expires_at, row.writer)
            for key, row in sorted(self.live(now).items())
            if row.text is not None
        ]

    def history(self, key: str, now: int) -> list[StoredVersion]:
        """Return the versions of a key whose time has not come, nor that of the key, newest first."""
        row = self.rows.get(key)
        if row is None or row.expired(now):
            return []
        return [version for version in self.log.get(key, ()) if not _lapsed(version, now)]

    def changes(self, scope: EntryScope, after: int, now: int) -> list[ChangeNotice]:
        """Return what has changed since a version, oldest first."""
        changed = [
            (row.version, key, row)
            for key, row in self.rows.items()
            if row.version > after and not row.expired(now)
        ]
        return [
            ChangeNotice(scope, key, version, _verb(row), row.text, row.updated_at, row.writer)
            for version, key, row in sorted(changed, key=lambda item: item[:2])
        ]

    def apply(self, batch: Batch) -> None:
        """Carry out a batch under one new version, unless an entry stands at another version than expected."""
        now, history = batch.now, batch.history
        live = self.live(now)
        for change in batch.changes:
            stands_at = live[change.key].version if change.key in live else 0
            if change.expected not in (None, stands_at):
                raise conflict(change.key, change.expected or 0, stands_at)
        todo: list[Change] = [one for one in batch.changes if isinstance(one, Put) or one.key in live]
        if todo:
            self._bump(now)
        writer = batch.writer.to_text()
        for change in todo:
            if isinstance(change, Put):
                self._put(change, now, writer, history)
            else:
                self._bury(change.key, "delete", now, writer, history)

    def clear(self, request: Clear) -> None:
        """Remove every entry, and all history too where that is asked."""
        if request.forget:
            self._bump(request.now)
            self.erase_entries()
        else:
            self.bury_all("clear", request.now, request.writer.to_text(), request.history)

    def bury_all(self, action: str, now: int, writer: str | None, history: HistoryPolicy) -> None:
        """Remove every live entry under a new version, if there is any; the history stays for its days."""
        live = self.live(now)
        if live:
            self._bump(now)
        for key in live:
            self._bury(key, action, now, writer, history)

    def erase_entries(self) -> None:
        """Remove all entries and their history without a trace."""
        self.rows.clear()
        self.log.clear()

    def sweep(self, key: str, now: int) -> tuple[int, int]:
        """Remove what has expired of a key; return how many entries and how many versions that were."""
        versions = self.log.pop(key, ())
        if self.rows[key].expired(now):
            del self.rows[key]
            return 1, len(versions)
        kept = tuple(version for version in versions if not _lapsed(version, now))
        self.log[key] = kept
        return 0, len(versions) - len(kept)

    def due(self, now: int) -> list[str]:
        """Return the keys of which something has expired."""
        return [
            key
            for key, row in self.rows.items()
            if row.expired(now) or any(_lapsed(version, now) for version in self.log.get(key, ()))
        ]

    def _bump(self, now: int) -> None:
        self.version += 1
        self.updated_at = now

    def _put(self, change: Put, now: int, writer: str, history: HistoryPolicy) -> None:
        size, logged, sha256 = history.logged(change.text)
        self._note(
            StoredVersion(
                change.key, self.version, "set", logged, size, sha256, now, change.expires_at, writer
            ),
            history.limit,
        )
        self.rows[change.key] = Row(change.text, self.version, now, change.expires_at, writer)

    def _bury(self, key: str, action: str, now: int, writer: str | None, history: HistoryPolicy) -> None:
        if history.days == 0 or history.limit == 0:
            del self.rows[key]
            self.log.pop(key, None)
            return
        lapses_at = now + history.days * DAY
        self._note(
            StoredVersion(key, self.version, action, None, 0, None, now, lapses_at, writer), history.limit
        )
        self.rows[key] = Row(None, self.version, now, lapses_at, writer)

    def _note(self, version: StoredVersion, limit: int) -> None:
        """Add to a key's log, newest first, within its bound; a key that had expired begins anew."""
        row = self.rows.get(version.key)
        past = () if row is None or row.expired(version.written_at) else self.log.get(version.key, ())
        self.log[version.key] = (version, *past)[:limit]

    # ------------------------------------------------------------------------------------------ attempts

    def judge(self, fence: Fence, now: int) -> Verdict:
        """Decide what an attempt is to the one that the scope stands at."""
        return judge(self.standing, fence, lambda: self._known_in(fence), now)

    def admit(
        self, fence: Fence | None, now: int, history: HistoryPolicy, holder: Holder | None = None
    ) -> None:
        """Let an attempt in, registering it if it is the newest, or raise. A person is let in always."""
        standing = self.standing
        if fence is None:
            if standing.deleted:
                self.standing = Standing(None, standing.attempt_id, standing.incarnation + 1)
                self.state, self.created_at, self.updated_at = None, now, now
            return
        verdict = self.judge(fence, now)
        if verdict is Verdict.STALE:
            raise stale(self.scope, fence, standing)
        if verdict is Verdict.CURRENT and holder is None:
            if standing.lacks_item(fence):
                self.standing = replace(standing, item=fence.item)
            return
        if standing.deleted:
            self.created_at = now
        item, incarnation = standing.item, max(standing.incarnation, fence.incarnation or 0)
        other_item = standing.at_other_item(fence) and verdict is not Verdict.CURRENT
        if verdict is Verdict.NEW_INCARNATION or other_item:
            self.reset = verdict is not Verdict.NEW_INCARNATION
            item, incarnation = None, incarnation + 1
            self.bury_all("reset", now, None, history)
        self._close_running(fence, now, holder)
        self.standing = Standing(fence.try_number, fence.attempt_id, incarnation, fence.item or item)
        self.state, self.updated_at = "running", now
        self.attempts.setdefault(
            self._seat(), AttemptRow(now, holder=holder, beat_at=now if holder else None)
        )

    def admit_reader(self, fence: Fence, now: int, history: HistoryPolicy) -> None:
        """Let an attempt read: a superseded one too, unless the entries of its incarnation are gone."""
        if self.judge(fence, now) is not Verdict.STALE:
            self.admit(fence, now, history)
        elif outlived(self.standing, fence, self._known_in(fence)):
            raise stale(self.scope, fence, self.standing)

    def require_current(self, fence: Fence, now: int) -> None:
        """Raise unless this is the current attempt."""
        if self.judge(fence, now) is not Verdict.CURRENT:
            raise stale(self.scope, fence, self.standing)

    def refuse_latecomer(self, request: Begin) -> None:
        """Refuse a request that was sent twice, and arrives again after another attempt began: an id is of one attempt."""
        standing = self.standing
        if request.attempt_id == standing.attempt_id and not standing.deleted:
            return
        known = max((key for key in self.attempts if key[2] == request.attempt_id), default=None)
        if known is not None:
            raise stale(self.scope, Fence(known[1], request.attempt_id), standing)

    def refuse_while_held(self, request: Begin) -> None:
        """Raise while the current attempt is running and its holder gives signs of life."""
        standing, attempt, dead = self.standing, self.current, request.dead
        if attempt is None or attempt.holder is None or attempt.state != "running":
            return
        current = (standing.try_number, standing.attempt_id)
        known_dead = dead is not None and (dead.try_number, dead.attempt_id) == current
        if known_dead or request.now - (attempt.beat_at or 0) > request.lease:
            return
        raise held(request, standing, attempt.holder)

    @property
    def current(self) -> AttemptRow | None:
        """The attempt that the scope stands at."""
        return self.attempts.get(self._seat())

    @current.setter
    def current(self, attempt: AttemptRow) -> None:
        self.attempts[self._seat()] = attempt

    def running(self) -> list[int]:
        """Return the try numbers of attempts whose end is not known."""
        return sorted(number for (_, number, _), one in self.attempts.items() if one.state == "running")

    def bury(self, now: int) -> None:
        """Leave the bare scope of a deleted run, which tells latecomers that they are late."""
        self.erase_entries()
        # numbers and ids stay: what comes from an attempt of a deleted run is known to be late
        self.attempts = {key: AttemptRow(one.started_at, "deleted") for key, one in self.attempts.items()}
        self.standing = replace(self.standing, item=None, deleted=True)
        self.state, self.updated_at = None, now

    def may_go(self, now: int, idle: int | None) -> bool:
        """Whether the scope holds nothing and has idled, or its run was deleted long enough ago."""
        if self.standing.deleted:
            return self.updated_at + BURIED <= now
        if idle is None or isinstance(self.scope, AssetScope) or self.rows or self.updated_at + idle > now:
            return False
        beats = [one.beat_at for one in self.attempts.values() if one.state == "running" and one.beat_at]
        return max(beats, default=0) + idle <= now

    def _known_in(self, fence: Fence) -> int | None:
        """Return the incarnation in which exactly this attempt registered, if it has an id and did."""
        if fence.attempt_id is None:
            return None
        attempt = (fence.try_number, fence.attempt_id)
        return max((key[0] for key in self.attempts if key[1:] == attempt), default=None)

    def _seat(self) -> tuple[int, int, str]:
        standing = self.standing
        return standing.incarnation, standing.try_number or 0, standing.attempt_id or ""

    def _close_running(self, fence: Fence, now: int, holder: Holder | None) -> None:
        state, reason = end_of_superseded(fence, holder)
        for key, attempt in self.attempts.items():
            if attempt.state == "running":
                self.attempts[key] = replace(attempt, state=state, ended_at=now, reason=reason)


def _verb(row: Row) -> str:
    return "delete" if row.text is None else "set"


def _lapsed(version: StoredVersion, now: int) -> bool:
    return version.expires_at is not None and version.expires_at <= now
