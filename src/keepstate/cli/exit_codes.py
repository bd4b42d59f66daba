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
    ExitCode.OK: "done",
    ExitCode.FAILED: "there is no such key, version, task instance, run or asset; a check found something wrong; a question was answered with no",
    ExitCode.USAGE: "the command line, a key, an id or a value can't be used",
    ExitCode.CONFLICT: "`--if-version` found another version, and nothing was changed; `copy` or `import` left alone what is no earlier state of the same",
    ExitCode.UNAVAILABLE: "the store can't be reached, or stayed busy",
    ExitCode.FULL: "there is no room left where the store lives; nothing was half-written",
    ExitCode.IO: "the store is damaged or failed, or the output can't be written",
    ExitCode.RUNNING: "a living process holds this task instance",
    ExitCode.STALE: "a later attempt has begun, so this one may not change anything",
    ExitCode.DENIED: "the store may only be read, or its server does not admit the token",
    ExitCode.CONFIGURATION: "a setting, a store URL, a missing extra, or a store that can't do this",
    ExitCode.INTERRUPTED: "ended by Ctrl-C, which is the usual way for `tail`",
    ExitCode.BROKEN_PIPE: "whoever read the output went away, as in `keepstate tail | head -1`",
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
