"""What entries hang on, and what a reader gets back: scopes, entries, versions, attempts."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from keepstate.errors import InvalidIdError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_MAX_ID = 250
_MAX_ASSET = 1500
_MAX_MAP_INDEX = 2**31 - 1
_MAX_TRY_NUMBER = 2**31 - 1
_REFUSED_IN_ID = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_REFUSED_IN_ASSET = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_id(kind: str, value: object) -> None:
    """Raise ``InvalidIdError`` for what can't be the id of a dag, a run or a task."""
    if type(value) is not str:
        raise InvalidIdError(f"{kind} must be a str, not {type(value).__name__}: {value!r:.80}")
    if not 1 <= len(value) <= _MAX_ID:
        raise InvalidIdError(f"{kind} must have 1 to {_MAX_ID} characters, not {len(value)}: {value[:40]!r}")
    if value in {".", ".."} or _REFUSED_IN_ID.search(value):
        raise InvalidIdError(
            f"{kind} must not be '.' or '..', nor have a slash or control character: {value!r:.300}"
        )


def _check_asset_name(kind: str, value: object) -> None:
    if type(value) is not str:
        raise InvalidIdError(f"an asset's {kind} must be a str, not {type(value).__name__}: {value!r:.80}")
    if not 1 <= len(value) <= _MAX_ASSET:
        raise InvalidIdError(f"an asset's {kind} must have 1 to {_MAX_ASSET} characters, not {len(value)}")
    if _REFUSED_IN_ASSET.search(value):
        raise InvalidIdError(f"an asset's {kind} must have no control character: {value!r:.120}")


def check_attempt(try_number: object, attempt_id: object = None, item: object = None) -> None:
    """Raise ``InvalidIdError`` for what can't name an attempt, or the item that it works on."""
    if type(try_number) is not int or not 1 <= try_number <= _MAX_TRY_NUMBER:
        raise InvalidIdError(
            f"try_number must be a whole number from 1 to {_MAX_TRY_NUMBER}, not {try_number!r:.80}"
        )
    for kind, text in (("attempt_id", attempt_id), ("item", item)):
        if text is None:
            continue
        if type(text) is not str:
            raise InvalidIdError(f"{kind} must be a str, not {type(text).__name__}: {text!r:.80}; use str()")
        if not 1 <= len(text) <= _MAX_ID or _REFUSED_IN_ASSET.search(text):
            raise InvalidIdError(
                f"{kind} must have 1 to {_MAX_ID} characters and no control character: {text!r:.300}"
            )


# a server is asked about the same task instances again and again
@lru_cache(maxsize=1024)
def _digest(*identity: object) -> bytes:
    """Return the 32 bytes by which a scope is found; JSON keeps ``("a", "bc")`` and ``("ab", "c")`` apart."""
    return hashlib.sha256(json.dumps(identity, ensure_ascii=True).encode()).digest()


@dataclass(frozen=True)
class TaskScope:
    """A task instance: ``(dag_id, run_id, task_id, map_index)``; ``map_index`` is -1 unless the task is mapped."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    digest: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_id("dag_id", self.dag_id)
        check_id("run_id", self.run_id)
        check_id("task_id", self.task_id)
        if type(self.map_index) is not int or not -1 <= self.map_index <= _MAX_MAP_INDEX:
            raise InvalidIdError(
                f"map_index must be a whole number from -1 to {_MAX_MAP_INDEX}: {self.map_index!r}"
            )
        object.__setattr__(
            self, "digest", _digest("task", self.dag_id, self.run_id, self.task_id, self.map_index)
        )

    def __str__(self) -> str:
        return f"{self.dag_id} / {self.run_id} / {self.name_in_run}"

    @property
    def name_in_run(self) -> str:
        """Its task, and its map index where it has one: ``load [3]``."""
        return self.task_id if self.map_index < 0 else f"{self.task_id} [{self.map_index}]"


@dataclass(frozen=True)
class RunScope:
    """A run as a whole: it holds no entries, but it is begun, held and ended like a task instance."""

    dag_id: str
    run_id: str
    digest: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_id("dag_id", self.dag_id)
        check_id("run_id", self.run_id)
        object.__setattr__(self, "digest", _digest("run", self.dag_id, self.run_id))

    def __str__(self) -> str:
        return f"{self.dag_id} / {self.run_id}"


@dataclass(frozen=True)
class AssetScope:
    """An asset, by name, by uri, or by both. Where only one is known, it names the asset's other half too."""

    name: str | None = None
    uri: str | None = None

    def __post_init__(self) -> None:
        if self.name is None and self.uri is None:
            raise InvalidIdError("an asset needs a name or a uri")
        if self.name is not None:
            _check_asset_name("name", self.name)
        if self.uri is not None:
            _check_asset_name("uri", self.uri)

    def __str__(self) -> str:
        return f"asset {self.name if self.name is not None else self.uri}"


def asset_digest(half: str, text: str) -> bytes:
    """Return the 32 bytes by which an asset is found by its ``half`` ("name" or "uri")."""
    return _digest("asset", half, text)


Scope = TaskScope | RunScope | AssetScope


@dataclass(frozen=True)
class Asset:
    """Data that tasks read and write, named as in Airflow: a ``name``, and a ``uri`` that defaults to it."""

    name: str
    uri: str = ""

    def __post_init__(self) -> None:
        if not self.uri:
            object.__setattr__(self, "uri", self.name)
        AssetScope(self.name, self.uri)


@dataclass(frozen=True)
class Writer:
    """Who wrote a version: a task's attempt, or somebody outside any attempt.

    ``kind`` is ``task``, ``watcher``, ``api``, ``cli`` or ``web``. The four ids are those of the task instance for
    ``task``; ``name`` is the person's or token's, where known. ``token`` names the token that a server let it in by, where
    kind and name are what the client said; it is no part of what makes two writers equal.
    """

    kind: str
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    map_index: int | None = None
    try_number: int | None = None
    name: str | None = None
    token: str | None = field(default=None, compare=False)

    def to_text(self) -> str:
        """Return the JSON text under which the store keeps a writer: what is absent is left out."""
        facts = {name: value for name, value in vars(self).items() if value is not None}
        return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Writer:
        """Return the writer that ``to_text`` wrote; what a newer keepstate adds is ignored.

        Raises ``ValueError`` for a text that names nobody.
        """
        try:
            facts = json.loads(text)
            if "\\u" in text:
                # nobody could print a lone surrogate
                json.dumps(facts, ensure_ascii=False).encode()
            writer = cls(**{name: facts[name] for name in cls.__dataclass_fields__ if name in facts})
        except (TypeError, RecursionError) as exc:
            raise ValueError(f"{text!r:.60} is no writer") from exc
        if type(writer.kind) is not str:
            raise ValueError(f"{text!r:.60} names no kind of writer")
        return writer


def writer_of(text: str | None) -> Writer | None:
    """Return who is stored to have written something; ``None`` where that is nobody, or a text that names nobody.

    For those from whom a damaged writer must not keep what was written.
    """
    try:
        return None if text is None else Writer.from_text(text)
    except ValueError:
        return None


def with_ids_of(scope: TaskScope | AssetScope, writer: Writer) -> Writer:
    """Return who wrote to a scope as a whole: of its own attempts the store leaves out the ids, as the scope says them."""
    if writer.kind != "task" or writer.task_id is not None or not isinstance(scope, TaskScope):
        return writer
    return replace(
        writer, dag_id=scope.dag_id, run_id=scope.run_id, task_id=scope.task_id, map_index=scope.map_index
    )


@dataclass(frozen=True)
class Entry:
    """A key and its value as they stand. ``version`` is that of the scope's change that last touched the key.

    ``damaged`` is for an entry that keepstate did not write, where it was asked for: what is stored, as text, in place of a
    value; ``value`` is ``None`` then.
    """

    key: str
    value: Any
    version: int
    updated_at: datetime
    expires_at: datetime | None
    writer: Writer | None = None
    damaged: str | None = None


@dataclass(frozen=True)
class HistoryEntry:
    """One version of a key. ``action`` is ``set``, ``delete``, ``clear`` or ``reset`` (a new incarnation began).

    ``value`` is ``None`` where the key was removed, and where the value was above the size limit: then ``size`` (bytes)
    and ``sha256`` (of the compact JSON) still tell what it was. ``damaged`` is as in ``Entry``.
    """

    key: str
    version: int
    action: str
    value: Any
    size: int
    sha256: str | None
    written_at: datetime
    expires_at: datetime | None
    writer: Writer | None = None
    damaged: str | None = None


@dataclass(frozen=True)
class Attempt:
    """One execution of a task instance or run.

    ``state`` is ``running``, ``success``, ``failed``, ``up_for_retry``, ``lost`` (its process died) or ``superseded``.
    ``process_started`` tells the process of that pid, on its machine, from later ones with the same pid.
    """

    try_number: int
    attempt_id: str | None
    incarnation: int
    state: str
    host: str | None
    pid: int | None
    started_at: datetime
    beat_at: datetime | None
    ended_at: datetime | None
    reason: str | None = None
    process_started: str | None = None


@dataclass(frozen=True)
class DagInfo:
    """A dag in a list: how many runs it has, and its most recently begun one.

    ``runs`` is counted up to 100, which is said of a dag that has as many or more. ``last_state`` is the most serious of its
    tasks' where nobody began the last run as a whole. ``updated_at`` is when any of the newest 100 runs last changed its
    state, or any task instance of the last one.
    """

    dag_id: str
    runs: int
    last_run_id: str
    last_state: str | None
    last_created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class RunInfo:
    """A run in a list: its state, its latest try, and when it was first and last seen.

    ``tasks_state`` is the most serious of its tasks' states where nobody began the run as a whole. It is told of a run that is
    looked up by its ids, and in no list, which would have to read all tasks of all runs.
    """

    dag_id: str
    run_id: str
    state: str | None
    try_number: int | None
    created_at: datetime
    updated_at: datetime
    tasks_state: str | None = None


@dataclass(frozen=True)
class TaskInstanceInfo:
    """A task instance in a list, with its scope's counters and how many live entries it holds."""

    scope: TaskScope
    state: str | None
    try_number: int | None
    version: int
    entries: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class AssetInfo:
    """An asset in a list; ``id`` is the integer by which REST names it."""

    id: int
    name: str
    uri: str
    entries: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class CleanupReport:
    """How many rows a cleanup removed, or would remove, by kind."""

    entries: int = 0
    history: int = 0
    scopes: int = 0
    attempts: int = 0
    sessions: int = 0
    dry_run: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """How many rows of each kind."""
        return {name: count for name, count in vars(self).items() if name != "dry_run"}

    @property
    def total(self) -> int:
        """All rows together."""
        return sum(self.counts.values())


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
