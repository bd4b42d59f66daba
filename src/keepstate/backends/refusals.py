"""The errors of requests that are refused: what happened, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepstate.errors import (
    AlreadyRunningError,
    BackendError,
    ScopeNotFoundError,
    StaleAttemptError,
    VersionConflictError,
)
from keepstate.scope import AssetScope

if TYPE_CHECKING:
    from keepstate.backends.fencing import Standing
    from keepstate.backends.requests import Begin, EntryScope, Fence, Holder, Session
    from keepstate.scope import Scope


def stale(scope: Scope, fence: Fence, standing: Standing) -> StaleAttemptError:
    """Make the error that tells a superseded attempt what happened and what to do."""
    if standing.deleted:
        reason = "its run was deleted"
    elif fence.incarnation not in (None, standing.incarnation) or standing.at_other_item(fence):
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


def held(request: Begin, standing: Standing, holder: Holder) -> AlreadyRunningError:
    """Make the error that tells who begins an attempt which one is running, and where."""
    return AlreadyRunningError(
        f"{request.scope} is running: attempt {standing.try_number}, process {holder.pid} on {holder.host}; "
        "wait until it ends, or take over with --take-over, or in Python dag_run(..., take_over=True)",
        host=holder.host,
        pid=holder.pid,
        started=holder.started,
        try_number=standing.try_number,
        attempt_id=standing.attempt_id,
    )


def out_of_order(session: Session, last_number: int, address: str) -> BackendError:
    """Make the error of a numbered request that came after a later one of its session."""
    return BackendError(
        f"request {session.number} came after request {last_number} of the same client session, and was not applied "
        "(again); a session's requests must come one after another",
        address=address,
        last_number=last_number,
    )


def unknown(scope: EntryScope) -> ScopeNotFoundError:
    """Make the error of a change to what was to be known already, and is not."""
    kind = "asset is known" if isinstance(scope, AssetScope) else "task instance is known"
    return ScopeNotFoundError(f"no such {kind}: {scope}; nothing was changed. Look for a mistyped id")


def conflict(key: str, expected: int, actual: int) -> VersionConflictError:
    """Make the error of a compare-and-set that found another version."""
    found = f"it has version {actual}" if actual else "it is absent"
    wanted = f"if it has version {expected}" if expected else "if it is absent"
    return VersionConflictError(
        f"key {key!r} was to be changed only {wanted}, but {found}; read it again and decide again",
        key=key,
        expected=expected,
        actual=actual,
    )
