"""What a backend answers: entries, versions, attempts and lists, as they are stored.

Times are microseconds since 1970 in UTC. Values are JSON text.
"""

from __future__ import annotations

from dataclasses import dataclass

from keepstate.backends.requests import EntryScope  # noqa: TC001 - they are looked up where an answer becomes JSON
from keepstate.scope import RunInfo, TaskScope  # noqa: TC001


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
    """The scope's version after a change. ``repeated`` says that this request had been applied before.

    ``behalf`` is the incarnation of the attempt in whose name an asset was changed, where this very request asked for it.
    """

    version: int
    incarnation: int
    reset: bool = False
    repeated: bool = False
    behalf: int | None = None


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


MOST_RUNS_COUNTED = 100
"""So many of a dag's newest runs a list of dags looks at, however many it has."""

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
class Admission:
    """What a server takes a token for: its role, and the pattern of the dags that it reaches (``None``: all)."""

    role: str
    dags: str | None


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
