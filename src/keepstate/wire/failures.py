"""Errors of keepstate's tree as JSON: raised on one side, raised alike on the other."""

from __future__ import annotations

import json
from typing import Any

from keepstate import errors
from keepstate.errors import BackendError, KeepstateError

_KINDS: dict[str, type[KeepstateError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, KeepstateError)
}


def encode_error(error: KeepstateError) -> dict[str, Any]:
    """Return an error as what `json.dumps` takes: its kind, its message (as ``detail``), and its facts.

    Facts that JSON can't hold are left out, and so is the cause: it is the other side's affair.
    """
    kind = next(kind.__name__ for kind in type(error).__mro__ if _KINDS.get(kind.__name__) is kind)
    facts = {name: fact for name, fact in vars(error).items() if _travels(fact)}
    return {"detail": str(error), "kind": kind, "facts": facts}


def _travels(fact: object) -> bool:
    try:
        json.dumps(fact)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def decode_error(data: object) -> KeepstateError | None:
    """Return the error that `encode_error` made JSON of, or ``None`` where ``data`` is nothing of the sort.

    A kind that only a newer keepstate knows comes out as ``BackendError``.
    """
    if type(data) is not dict:
        return None
    detail, kind, facts = data.get("detail"), data.get("kind"), data.get("facts", {})
    if type(detail) is not str or type(kind) is not str or type(facts) is not dict:
        return None
    error = _KINDS.get(kind, BackendError)(detail)
    vars(error).update(facts)
    return error
