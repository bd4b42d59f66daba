"""What an exit code of the command line means. `docs/reference/command-line.md` has the same table; a test compares them.

0 to 3 are everyday answers; those from 64 on are BSD's ``sysexits.h`` where it has a name that fits, so that a shell can tell
"try again later" from "fix this first".
"""

from __future__ import annotations

from enum import IntEnum

from keepstate import errors


class ExitCode(IntEnum):
    """The codes that `keepstate` itself ends with; `keepstate run` ends with its command's."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CONFLICT = 3
    UNAVAILABLE = 69
    FULL = 73
    IO = 74
    RUNNING = 75
    STALE = 76
    DENIED = 77
    CONFIGURATION = 78
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "there is no such key, version, task instance, run or asset; or a check found a problem; or a question was answered with no",
    ExitCode.USAGE: "the command line, a key, an id or a value is invalid",
    ExitCode.CONFLICT: "`--if-version` found another version, and nothing was changed; or `copy` or `import` left scopes alone that were changed independently",
    ExitCode.UNAVAILABLE: "the store can't be reached, or stayed busy",
    ExitCode.FULL: "the store's disk is full; no write was applied partly",
    ExitCode.IO: "the store is damaged or failed, or the output can't be written",
    ExitCode.RUNNING: "a living process holds this task instance",
    ExitCode.STALE: "a later attempt has begun, so this one may not change anything",
    ExitCode.DENIED: "the store is read-only, or its server does not accept the token",
    ExitCode.CONFIGURATION: "a setting or store URL is invalid, an extra is missing, or this store can't do this",
    ExitCode.INTERRUPTED: "ended by Ctrl-C, which is how `tail` usually ends",
    ExitCode.BROKEN_PIPE: "the reader of the output has closed it, as in `keepstate tail | head -1`",
}

# the first that fits counts
_CODES: tuple[tuple[type[errors.KeepstateError], ExitCode], ...] = (
    (errors.InvalidInputError, ExitCode.USAGE),
    (errors.InvalidTypeError, ExitCode.USAGE),
    (errors.TaskArgumentsChangedError, ExitCode.USAGE),
    (errors.VersionConflictError, ExitCode.CONFLICT),
    (errors.StaleAttemptError, ExitCode.STALE),
    (errors.AlreadyRunningError, ExitCode.RUNNING),
    (errors.ConfigurationError, ExitCode.CONFIGURATION),
    (errors.UnsupportedError, ExitCode.CONFIGURATION),
    (errors.StoreVersionError, ExitCode.CONFIGURATION),
    (errors.BackendUnavailableError, ExitCode.UNAVAILABLE),
    (errors.AccessDeniedError, ExitCode.DENIED),
    (errors.StoreReadOnlyError, ExitCode.DENIED),
    (errors.StoreFullError, ExitCode.FULL),
    (errors.BackendError, ExitCode.IO),
)


def exit_code_of(error: errors.KeepstateError) -> ExitCode:
    """Return the code that an invocation ends with when it met ``error``."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)


class Stop(Exception):  # noqa: N818 - it need not be an error: an absent key, a question answered with no
    """Ends the invocation with one line on stderr and a code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code
