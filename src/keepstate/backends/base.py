"""What a backend must do: a narrow set of atomic verbs on encoded text.

Each verb is all or nothing. A backend that can't keep a promise raises ``UnsupportedError``; none is weakened by
default. Everything above (accessors, checkpoints, jobs, the runtime, the server) is built from these verbs, and
`keepstate.testing.contract` holds every backend to them.

Times are microseconds since 1970 in UTC and are handed in by the caller. Values are JSON text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from keepstate.clock import DAY
from keepstate.errors import InvalidIdError, ScopeNotFoundError, StaleAttemptError, VersionConflictError
from keepstate.scope import (
    AssetInfo,
    AssetScope,
    Attempt,
    CleanupReport,
    DagInfo,
    RunInfo,
    RunScope,
    TaskInstanceInfo,
    TaskScope,
    Writer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from keepstate.scope import Scope

HeldScope = TaskScope | RunScope
"""What attempts are made of."""

EntryScope = TaskScope | AssetScope
"""What entries hang on."""


# ---------------------------------------------------------------------------------------------- requests

# Nobody changes a request or an answer. Those that every `set` makes are not frozen all the same, as making one would take
# three times as long: Session, Put, Batch and Applied.


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


# ----------------------------------------------------------------------------------------------- answers


@dataclass
class StoredEntry:
    """An entry as it is stored."""

    key: str
    text: str
    version: int
    updated_at: int
    expires_at: int | None
    writer: str | None = None


@dataclass(frozen=True)
class StoredVersion:
    """A row of the log as it is stored; ``text`` is ``None`` where nothing or too much was written."""

    key: str
    version: int
    action: str
    text: str | None
    size: int
    sha256: str | None
    written_at: int
    expires_at: int | None
    writer: str | None = None


@dataclass
class Reading:
    """What a read saw, all at one moment. ``version`` is the scope's, 0 where there is none yet.

    ``incarnation`` is ``None`` where the reader is a superseded attempt, which is served but has no say. ``reset`` is set
    when this very request registered its attempt in a new incarnation *because the mapped item changed*.
    """

    version: int
    incarnation: int | None
    entries: tuple[StoredEntry, ...] = ()
    total: int | None = None
    reset: bool = False


@dataclass
class Applied:
    """The scope's version after a change. ``repeated`` says that this request had been applied before."""

    version: int
    incarnation: int
    reset: bool = False
    repeated: bool = False


@dataclass(frozen=True)
class Begun:
    """An attempt that began. ``lost`` are try numbers of attempts found dead; ``reset`` as in ``Reading``."""

    try_number: int
    incarnation: int
    lost: tuple[int, ...] = ()
    reset: bool = False


@dataclass(frozen=True)
class Outcome:
    """How the last successful attempt of a task instance ended, for the runtime that won't run it again."""

    try_number: int
    result: str | None
    arguments: str | None


MOST_IN_A_GRID = 40_000
"""So many task instances a grid looks at, however large its runs are."""


@dataclass(frozen=True)
class GridTask:
    """A task in one run, all its map indices together: what states they are in, and since when it is there."""

    task_id: str
    states: tuple[str | None, ...]
    task_instances: int
    entries: int
    try_number: int | None
    created_at: int


@dataclass(frozen=True)
class GridRun:
    """A run with its tasks, ordered by their ids."""

    run: RunInfo
    tasks: tuple[GridTask, ...]

    @property
    def dag_id(self) -> str:
        """The dag's id."""
        return self.run.dag_id


@dataclass(frozen=True)
class KeyOfTask:
    """The key of an entry of a task instance."""

    scope: TaskScope
    key: str

    @property
    def dag_id(self) -> str:
        """The dag's id."""
        return self.scope.dag_id


@dataclass(frozen=True)
class KeyOfAsset:
    """The key of an entry of an asset, which REST names by its ``id``."""

    id: int
    name: str
    uri: str
    key: str


@dataclass(frozen=True)
class ChangeNotice:
    """A key that changed, for those who follow: ``action`` is ``set`` or ``delete``."""

    scope: EntryScope
    key: str
    version: int
    action: str
    text: str | None
    updated_at: int
    writer: str | None


@dataclass(frozen=True)
class StoredToken:
    """A token of the server as it is stored: a hash of its secret, never the secret.

    ``kind`` is ``token`` (a person made it), ``session`` (a browser that logged in) or ``login`` (a link that logs in
    once); ``parent_id`` is the token that the latter two were made from.
    """

    id: str
    kind: str
    name: str
    digest: str
    role: str
    dags: str | None
    assets: str | None
    parent_id: str | None
    created_at: int
    expires_at: int | None
    revoked_at: int | None = None
    used_at: int | None = None


# ------------------------------------------------------------------------------------------------ fencing


@dataclass(frozen=True)
class Standing:
    """The attempt that a scope stands at: the one whose writes count. ``deleted`` when its run was deleted.

    When a person has written to it since, it stands at no try any more, and ``attempt_id`` is the last one's before.
    """

    try_number: int | None
    attempt_id: str | None
    incarnation: int
    item: str | None = None
    deleted: bool = False


class Verdict(Enum):
    """What becomes of a request, given the attempt that the scope stands at."""

    CURRENT = "current"
    """It comes from the current attempt."""
    NEWER = "newer"
    """It comes from a later attempt, which becomes the current one."""
    NEW_INCARNATION = "new incarnation"
    """It comes from a task instance that was made again: it becomes current and starts empty."""
    STALE = "stale"
    """It comes from an attempt that has been superseded."""


def judge(  # noqa: PLR0911 - one line per rule
    standing: Standing, fence: Fence, known_in: Callable[[], int | None], now: int
) -> Verdict:
    """Decide what ``fence`` is to ``standing``. The one place where attempts are compared.

    ``known_in`` returns the incarnation in which exactly this attempt registered before, or ``None``; it is asked only
    when the answer matters. Rules: a higher try wins, a lower one is stale. An attempt id that is unknown, time-ordered
    (UUIDv7) and newer than the current one, on try 1, is a run made again. An id that says to be from more than a day after
    ``now`` is not taken for time-ordered: all that is made until then would be older.
    """
    if fence.incarnation is not None and fence.incarnation != standing.incarnation:
        return Verdict.STALE
    if standing.deleted:
        registered = fence.incarnation is not None
        old = registered or _ran_before(standing, fence, now) or known_in() is not None
        return Verdict.STALE if old else Verdict.NEW_INCARNATION
    if standing.try_number is None:
        old = _ran_before(standing, fence, now) or known_in() is not None
        return Verdict.STALE if old else Verdict.NEWER
    same_try = fence.try_number == standing.try_number
    if same_try and (
        fence.attempt_id == standing.attempt_id or not (fence.attempt_id and standing.attempt_id)
    ):
        return Verdict.CURRENT
    if fence.attempt_id is not None:
        known = known_in()
        if known is not None and (known < standing.incarnation or same_try):
            return Verdict.STALE
        newer = is_newer(fence.attempt_id, standing.attempt_id, now)
        if fence.try_number == 1 and newer and known is None:
            return Verdict.NEW_INCARNATION
        if same_try:
            # one try has one id; an unknown id that can't be ordered begins now
            return Verdict.STALE if newer is False else Verdict.NEWER
    return Verdict.NEWER if fence.try_number > standing.try_number else Verdict.STALE


def _ran_before(standing: Standing, fence: Fence, now: int) -> bool:
    """After a deletion all that ran before is stale; what can't be told from a new run is taken for one."""
    if fence.attempt_id is not None and fence.attempt_id == standing.attempt_id:
        return True
    return is_newer(fence.attempt_id, standing.attempt_id, now) is False


def outlived(standing: Standing, fence: Fence, known: int | None) -> bool:
    """Whether a stale attempt belongs to an earlier incarnation, whose entries are gone: it may not read these either."""
    if standing.deleted or standing.try_number is None:
        return True
    if fence.incarnation is not None and fence.incarnation != standing.incarnation:
        return True
    if known is not None:
        return known < standing.incarnation
    return fence.try_number == standing.try_number


def is_newer(one: str | None, other: str | None, now: int | None = None) -> bool | None:
    """Whether time-ordered id ``one`` was made after ``other``; ``None`` when either is no UUIDv7 (RFC 9562, 5.7).

    Nor is there an answer where one of them says that it was made more than a day after ``now``.
    """
    a, b = _uuid7(one), _uuid7(other)
    if a is None or b is None or (now is not None and _made_at(max(a, b)) > now + DAY):
        return None
    return a > b


def _made_at(uuid7: str) -> int:
    """Return when an id says that it was made: it begins with 48 bits of milliseconds."""
    return int(uuid7[:12], 16) * 1000


_UUID7 = re.compile(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", re.ASCII)


def _uuid7(text: str | None) -> str | None:
    digits = (text or "").replace("-", "").lower()
    return digits if _UUID7.fullmatch(digits) else None


# ------------------------------------------------------------------------------------------------- assets


def which_asset(scope: AssetScope, known: Sequence[AssetScope]) -> AssetScope | None:
    """Return which of the ``known`` assets a request means, or ``None``. The one place where their names are compared.

    Half a name stands for the other half too, so it also finds the asset that has it as its other half. Raises
    ``InvalidIdError`` when name and uri are given, and belong to two assets.
    """
    name = scope.name if scope.name is not None else scope.uri
    uri = scope.uri if scope.uri is not None else scope.name
    by_name = next((asset for asset in known if asset.name == name), None)
    by_uri = next((asset for asset in known if asset.uri == uri), None)
    if None not in (scope.name, scope.uri) and by_name and by_uri and by_name != by_uri:
        raise InvalidIdError(
            f"the asset named {name!r} has the uri {by_name.uri!r}, and the uri {uri!r} belongs to the asset "
            f"named {by_uri.name!r}; delete one of them, or name it as it is known"
        )
    return (by_name or by_uri) if scope.name is not None else (by_uri or by_name)


# ------------------------------------------------------------------------------------------------ refusals


def stale(scope: Scope, fence: Fence, standing: Standing) -> StaleAttemptError:
    """Make the error that tells a superseded attempt what happened and what to do."""
    if standing.deleted:
        reason = "its run was deleted"
    elif fence.incarnation is not None and fence.incarnation != standing.incarnation:
        reason = "the task instance was made again, or its mapped item changed, since this attempt began"
    elif standing.try_number is None:
        reason = "its run was deleted, or it never began"
    else:
        reason = f"attempt {standing.try_number} has begun since"
    return StaleAttemptError(
        f"attempt {fence.try_number} of {scope} may not go on: {reason}; let this process end",
        try_number=fence.try_number,
        current_try_number=standing.try_number,
    )


def ended(scope: Scope, fence: Fence, state: str, standing: Standing) -> StaleAttemptError:
    """Make the error that tells an attempt that its first end stands, as somebody may have acted upon it."""
    return StaleAttemptError(
        f"attempt {fence.try_number} of {scope} has ended as {state!r} already, and that stands; let this process end",
        try_number=fence.try_number,
        current_try_number=standing.try_number,
    )


def unknown(scope: EntryScope) -> ScopeNotFoundError:
    """Make the error of a change to what was to be known already, and is not."""
    kind = "asset is known" if isinstance(scope, AssetScope) else "task instance is known"
    return ScopeNotFoundError(f"no such {kind}: {scope}; nothing was changed. Look for a mistyped id")


def conflict(key: str, expected: int, actual: int) -> VersionConflictError:
    """Make the error of a compare-and-set that found another version."""
    found = f"it stands at version {actual}" if actual else "it is absent"
    wanted = f"version {expected}" if expected else "no entry"
    return VersionConflictError(
        f"key {key!r} was to be changed over {wanted}, but {found}; read it again and decide anew",
        key=key,
        expected=expected,
        actual=actual,
    )


# ------------------------------------------------------------------------------------------------ protocol


class Backend(Protocol):
    """A place where entries live."""

    address: str
    """Where that is, for people: without passwords or tokens."""

    guide_only: bool
    """Whether only the guide's four verbs work here, unfenced (a custom class)."""

    def read(
        self,
        scope: EntryScope,
        keys: Sequence[str] | None,
        *,
        now: int,
        fence: Fence | None = None,
        writer: Writer | None = None,
        history: HistoryPolicy | None = None,
        limit: int | None = None,
        offset: int = 0,
        texts: bool = True,
    ) -> Reading:
        """Return the live entries under ``keys`` (``None``: all, ordered by key, ``limit`` from ``offset``).

        An unregistered ``fence`` is registered first if it is the newest; a superseded one is served, unless it belongs
        to an earlier incarnation: ``StaleAttemptError``. With ``limit``, ``Reading.total`` counts all live entries.
        Without ``texts``, those of the entries are empty, and no value is read.
        """
        ...

    def apply(self, batch: Batch) -> Applied:
        """Apply a batch. Raises ``StaleAttemptError`` or ``VersionConflictError`` with nothing changed."""
        ...

    def clear(self, request: Clear) -> Applied:
        """Remove a scope's entries. Raises ``StaleAttemptError`` with nothing changed."""
        ...

    def history(
        self, scope: EntryScope, key: str, *, now: int, limit: int | None = None
    ) -> list[StoredVersion]:
        """Return the versions of ``key`` whose time has not passed, newest first."""
        ...

    def begin(self, request: Begin) -> Begun:
        """Begin an attempt. Raises ``AlreadyRunningError``, or ``StaleAttemptError`` when a later one stands."""
        ...

    def beat(self, scope: HeldScope, fence: Fence, *, now: int) -> None:
        """Note a sign of life. Raises ``StaleAttemptError`` when the attempt was superseded or taken over."""
        ...

    def end(self, request: End) -> None:
        """Record an attempt's end; doing so twice is fine. Raises ``StaleAttemptError``."""
        ...

    def attempts(self, scope: HeldScope) -> list[Attempt]:
        """Return the attempts of a scope, newest first, those of earlier incarnations too."""
        ...

    def outcome(self, scope: HeldScope) -> Outcome | None:
        """Return how the current attempt succeeded, or ``None`` if it has not."""
        ...

    def changes(self, scope: EntryScope, *, after: int, now: int) -> tuple[int, list[ChangeNotice]]:
        """Return the scope's version, and the keys changed since version ``after``, oldest change first."""
        ...

    def dags(self, *, pattern: str | None = None, limit: int | None = None, offset: int = 0) -> list[DagInfo]:
        """Return the dags that have runs, ordered by id.

        ``pattern`` admits what fits it as a whole: ``*`` is any characters, ``?`` one, and case counts.
        """
        ...

    def count_dags(self, *, pattern: str | None = None) -> int:
        """Return how many dags `dags` would list without a limit."""
        ...

    def runs(
        self,
        dag_id: str | None = None,
        *,
        pattern: str | None = None,
        run_id: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[RunInfo]:
        """Return runs, most recently begun first: of the dags that fit ``pattern``, and of that id, where these are given."""
        ...

    def count_runs(self, dag_id: str | None = None, *, pattern: str | None = None) -> int:
        """Return how many runs `runs` would list without a limit."""
        ...

    def run(self, scope: RunScope) -> RunInfo | None:
        """Return one run, or ``None`` where it is not known, or was deleted."""
        ...

    def task_instance(self, scope: TaskScope, *, now: int) -> TaskInstanceInfo | None:
        """Return one task instance, or ``None`` where it is not known, or was deleted."""
        ...

    def count_task_instances(self, dag_id: str, run_id: str) -> int:
        """Return how many task instances `task_instances` would list without a limit."""
        ...

    def task_instances(
        self, dag_id: str, run_id: str, *, now: int, limit: int | None = None, offset: int = 0
    ) -> list[TaskInstanceInfo]:
        """Return the task instances of a run, ordered by task id and map index."""
        ...

    def grid(
        self,
        dag_id: str | None = None,
        *,
        now: int,
        pattern: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> list[GridRun]:
        """Return the runs that `runs` would, each with its tasks; of at most ``MOST_IN_A_GRID`` task instances."""
        ...

    def keys(
        self, *, now: int, pattern: str | None = None, runs: int = 40, limit: int = 10_000
    ) -> list[KeyOfTask]:
        """Return the keys of what live entries the newest ``runs`` of the dags that fit have, those of newer runs first."""
        ...

    def keys_of_assets(
        self, *, now: int, pattern: str | None = None, limit: int = 10_000
    ) -> list[KeyOfAsset]:
        """Return the keys of the live entries of the assets that fit, ordered by the assets' names."""
        ...

    def assets(
        self, *, now: int, pattern: str | None = None, limit: int | None = None, offset: int = 0
    ) -> list[AssetInfo]:
        """Return the assets, ordered by name; with ``pattern``, those whose name or uri fits it."""
        ...

    def count_assets(self, *, pattern: str | None = None) -> int:
        """Return how many assets `assets` would list without a limit."""
        ...

    def asset(self, which: AssetScope | int, *, now: int) -> AssetInfo | None:
        """Return one asset, by what it is called or by its id, or ``None`` where it is not known."""
        ...

    def delete_run(self, dag_id: str, run_id: str, *, now: int, session: Session | None = None) -> int:
        """Erase everything of a run, history included; return how many task instances it had.

        Attempts that still run are stale from then on. With a ``session``, a repeated request leaves alone what was made
        since, and returns what the first one did.
        """
        ...

    def delete_asset(self, scope: AssetScope, *, now: int, session: Session | None = None) -> bool:
        """Erase an asset with its entries and history; return whether it was there. ``session`` as in `delete_run`."""
        ...

    def purge(
        self,
        *,
        now: int,
        batch_size: int,
        idle: int | None,
        history: HistoryPolicy,
        dry_run: bool = False,
        sessions: Sequence[str] = (),
    ) -> Iterator[CleanupReport]:
        """Remove what has expired, lapsed or idled, in transactions of ``batch_size`` rows, yielding each batch's count.

        ``idle`` is how many microseconds after its last change an empty scope goes (``None``: never). ``sessions`` are those
        that the caller goes on using, however old they are.
        """
        ...

    def check_writable(self) -> None:
        """Raise the ``BackendError`` that a write would meet now, without changing anything that is kept."""
        ...

    def close(self) -> None:
        """Release what this backend opened itself. Using it again afterwards is an error."""
        ...
