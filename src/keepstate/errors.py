"""Every error that keepstate raises, in one tree.

KeepstateError
├── ConfigurationError              a setting, a URL or a missing extra
├── InvalidInputError               (also ValueError) what was passed in can't be stored or named
│   ├── InvalidKeyError             a key that breaks the key rules
│   ├── InvalidIdError              a dag, run, task or asset id that breaks the id rules
│   ├── InvalidValueError           a value that JSON can't hold, or None
│   │   └── ValueTooLargeError      a value above a size limit
│   └── InvalidRetentionError       a retention that is not positive, or overflows
├── InvalidTypeError                (also TypeError) a value, key, or retention of the wrong type
├── VersionConflictError            compare-and-set found another version
├── VersionNotFoundError            (also LookupError) no such version in a key's history
├── ScopeNotFoundError              (also LookupError) no such task instance or asset, where it had to be there
├── StaleAttemptError               a later attempt of the task instance has begun
├── AlreadyRunningError             the task instance or run is held by a living process
├── CheckpointMismatchError         another item stands where the last finished one stood
├── UnknownJobStatusError           a job's status is neither active, succeeded nor failed
├── TaskFailedError                 a supervised command or task used up its retries
├── TaskArgumentsChangedError       a finished task was called again with other arguments
├── UnsupportedError                this backend can't keep that promise, so it refuses
└── BackendError                    the store behind failed
    ├── BackendUnavailableError     it can't be reached
    ├── AccessDeniedError           the server does not know the token, or the token may not do this
    ├── StoreReadOnlyError          it can be read, but not written
    ├── StoreFullError              there is no room left
    ├── StoreCorruptedError         it is no keepstate store, or it is damaged
    └── StoreVersionError           it was made by a newer keepstate

Facts are attributes, and survive pickling: an error crosses process boundaries with a task's log.
"""

from __future__ import annotations

from typing import Any


class KeepstateError(Exception):
    """The root: catch this to catch whatever keepstate raises on purpose."""

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.__dict__.update(facts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(cls: type[KeepstateError], args: tuple[object, ...], facts: dict[str, object]) -> KeepstateError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(facts)
    return error


class ConfigurationError(KeepstateError):
    """A setting, a store URL, or an installation is not usable; the message names it and what is allowed."""


class InvalidInputError(KeepstateError, ValueError):
    """Something passed in can't be stored or named."""


class InvalidKeyError(InvalidInputError):
    """A key breaks the key rules (non-empty, at most 512 characters, no NUL, no ``.`` or ``..`` segment)."""

    key: str


class InvalidIdError(InvalidInputError):
    """A dag id, run id, task id, map index, or asset name breaks the id rules."""


class InvalidValueError(InvalidInputError):
    """A value that JSON can't hold; ``path`` says where inside the value."""

    path: str


class ValueTooLargeError(InvalidValueError):
    """A value's JSON text is larger than allowed; ``size`` and ``limit`` are bytes."""

    size: int
    limit: int


class InvalidRetentionError(InvalidInputError):
    """A retention that is zero, negative, or reaches past the last representable date."""


class InvalidTypeError(KeepstateError, TypeError):
    """A value, key or retention of a type that can't be stored; for values ``path`` says where."""

    path: str


class VersionConflictError(KeepstateError):
    """``if_version`` named one version and the store holds another; ``actual`` is 0 when the key is absent."""

    key: str
    expected: int
    actual: int


class VersionNotFoundError(KeepstateError, LookupError):
    """A version that is not in the key's history (any more), or of which only size and hash were kept."""

    key: str
    version: int


class ScopeNotFoundError(KeepstateError, LookupError):
    """A task instance or an asset that was to be known already is not: nothing was made, and nothing changed."""


class StaleAttemptError(KeepstateError):
    """A later attempt of this task instance has begun, so this one may not change anything any more."""

    try_number: int
    current_try_number: int | None


class AlreadyRunningError(KeepstateError):
    """A living process holds this task instance or run; ``host``, ``pid`` and ``try_number`` say which."""

    host: str | None
    pid: int | None
    try_number: int | None


class CheckpointMismatchError(KeepstateError):
    """The item at the stored position is not the one that was finished there: the source has changed."""

    key: str
    position: int


class UnknownJobStatusError(KeepstateError):
    """A job reports a status that the class doesn't know; the stored id stays, and nothing is submitted."""

    external_id: object
    status: object


class TaskFailedError(KeepstateError):
    """A supervised command failed and its retries are used up; ``returncode`` is that of the last attempt."""

    returncode: int | None


class TaskArgumentsChangedError(KeepstateError):
    """A task that succeeded in this run was called again with other arguments."""


class UnsupportedError(KeepstateError):
    """The backend in use can't do this, and pretending would weaken a promise."""


class BackendError(KeepstateError):
    """The store behind failed; nothing was half-written."""

    address: str


class BackendUnavailableError(BackendError):
    """The store can't be reached, or stayed busy past the retry bound (``KEEPSTATE_RETRY_TIMEOUT``)."""


class AccessDeniedError(BackendError):
    """The server does not know the token (``KEEPSTATE_TOKEN``), or what it is for does not include this request."""


class StoreReadOnlyError(BackendError):
    """The store may be read but not written."""


class StoreFullError(BackendError):
    """There is no room left where the store lives."""


class StoreCorruptedError(BackendError):
    """The file or database is not a keepstate store, or it is damaged."""


class StoreVersionError(BackendError):
    """A newer keepstate made this store; this one refuses to touch it."""
