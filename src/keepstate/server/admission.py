"""What a caller may ask of the worker API: by role, by what the token reaches, and in the server's own bounds.

Each verb has a line in ``VERBS_ADMITTED``; one without is refused. Whether something exists is never asked before it is
clear that the caller reaches it, and a refusal reads the same either way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from keepstate.backends.requests import HistoryPolicy
from keepstate.errors import AccessDeniedError, InvalidIdError
from keepstate.scope import AssetScope
from keepstate.server.roles import Right
from keepstate.store import PURGE_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepstate.backends.requests import Batch, Clear, Session
    from keepstate.scope import Writer
    from keepstate.server.roles import Caller
    from keepstate.store import StateStore

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Gate:
    """One caller before one store."""

    store: StateStore
    caller: Caller

    # ------------------------------------------------------------------------------------------ reaching

    def scope(self, scope: Any) -> Any:
        """Return the scope, of any kind, or raise ``AccessDeniedError`` where the caller does not reach it."""
        if isinstance(scope, AssetScope):
            return self.asset(scope)
        self.dag(scope.dag_id)
        return scope

    def dag(self, dag_id: str) -> None:
        """Raise ``AccessDeniedError`` where the caller does not reach a dag."""
        if not self.caller.reaches_dag(dag_id):
            raise _out_of_reach(f"dag {dag_id!r}")

    def asset(self, scope: AssetScope) -> AssetScope:
        """Return an asset by what it is called, or raise ``AccessDeniedError`` where the caller does not reach it.

        Each half that is given must fit the pattern, or be the half of an asset that the other one reaches. So nobody makes
        an asset whose other half is somebody else's, nor learns whether there is one of that name or uri.
        """
        caller = self.caller
        if caller.assets is None:
            return scope
        try:
            known = self.store.backend.asset(scope, now=self.store.clock())
        except InvalidIdError:
            # name and uri are of two assets, one of which may be out of reach: the error would tell of it
            raise _out_of_reach("asset of that name or uri") from None
        own: tuple[str, ...] = ()
        if known is not None and caller.reaches_asset(known.name, known.uri):
            own = (known.name, known.uri)
        names, uris = (own[:1], own[1:]) if None not in (scope.name, scope.uri) else (own, own)
        for half, its in ((scope.name, names), (scope.uri, uris)):
            # what one half stands for is known by the other half; what both stand for, by each
            if half is not None and half not in its and not caller.reaches_asset(half, half):
                raise _out_of_reach("asset of that name or uri")
        return AssetScope(*own) if own else scope

    # ------------------------------------------------------------------------------------------ requests

    def change(self, request: Batch | Clear) -> Any:
        """Admit a change of entries."""
        if request.fence is not None or request.behalf is not None:
            # it begins an attempt, where it comes first
            self.caller.require(Right.RUN)
        if request.behalf is not None:
            self.dag(request.behalf.scope.dag_id)
        return replace(
            request,
            writer=self.writer(request.writer),
            scope=self.scope(request.scope),
            history=self.history(request.history),
            session=self.session(request.session),
        )

    def writer(self, writer: Writer) -> Writer:
        """Return who is recorded. Nobody signs for a task out of reach, for the pages, or as another token."""
        if writer.dag_id is not None:
            self.dag(writer.dag_id)
        if writer.kind == "web":
            # they know who logged in
            raise AccessDeniedError("only the pages themselves write as 'web'; name another kind of writer")
        if writer.kind == "api" and writer.name is not None:
            # a token that is named is the one that was sent, as it is in REST
            return replace(writer, name=self.caller.name, token=None)
        # what a task's attempt writes is known by that; who else it was is the client's to say, and so the token is kept too
        return replace(writer, token=None if writer.kind == "task" else self.caller.name)

    def session(self, session: Session | None) -> Session | None:
        """Return a client session under a name that no other token can use, nor so take its numbers."""
        return session and replace(session, id=self.session_id(session.id))

    def session_id(self, name: str) -> str:
        """Return the id under which the session of that name is kept."""
        return f"{self.caller.token_id}/{name}"

    def history(self, asked: HistoryPolicy | None) -> HistoryPolicy:
        """Return what is kept of earlier versions: of each bound the tighter, the caller's or the server's."""
        own, asked = self.store.history_policy, asked or HistoryPolicy()
        # no bound on the size is 0, and so the wider one; no history at all is 0 too, and the tighter one
        sizes = [bound for bound in (own.value_bytes, asked.value_bytes) if bound]
        return HistoryPolicy(
            limit=min(own.limit, asked.limit),
            days=min(own.days, asked.days),
            value_bytes=min(sizes, default=0),
        )


def _out_of_reach(what: str) -> AccessDeniedError:
    return AccessDeniedError(f"this token does not reach the {what}, if there is one")


# ------------------------------------------------------------------------------------------------- by verb


def _of_scope(gate: Gate, arguments: Arguments) -> Arguments:
    return {**arguments, "scope": gate.scope(arguments["scope"])}


def _read(gate: Gate, arguments: Arguments) -> Arguments:
    if arguments.get("fence") is not None:
        # it begins an attempt, where it comes first
        gate.caller.require(Right.RUN)
        arguments = {**arguments, "history": gate.history(arguments.get("history"))}
    if arguments.get("writer") is not None:
        arguments = {**arguments, "writer": gate.writer(arguments["writer"])}
    return _of_scope(gate, arguments)


def _apply(gate: Gate, arguments: Arguments) -> Arguments:
    return {"batch": gate.change(arguments["batch"])}


def _clear(gate: Gate, arguments: Arguments) -> Arguments:
    return {"request": gate.change(arguments["request"])}


def _of_attempt(gate: Gate, arguments: Arguments) -> Arguments:
    request = arguments["request"]
    return {
        "request": replace(request, scope=gate.scope(request.scope), history=gate.history(request.history))
    }


def _of_dag(gate: Gate, arguments: Arguments) -> Arguments:
    gate.dag(arguments["dag_id"])
    return arguments


def _delete_run(gate: Gate, arguments: Arguments) -> Arguments:
    return {**_of_dag(gate, arguments), "session": gate.session(arguments.get("session"))}


def _delete_asset(gate: Gate, arguments: Arguments) -> Arguments:
    return {**_of_scope(gate, arguments), "session": gate.session(arguments.get("session"))}


def _dags(gate: Gate, arguments: Arguments) -> Arguments:
    if arguments.get("dag_id") is not None:
        gate.dag(arguments["dag_id"])
    return arguments


def _which(gate: Gate, arguments: Arguments) -> Arguments:
    which = arguments["which"]
    return arguments if isinstance(which, int) else {**arguments, "which": gate.asset(which)}


def _purge(gate: Gate, arguments: Arguments) -> Arguments:
    most = gate.store.settings.state_cleanup_batch_size or PURGE_BATCH
    return {
        **arguments,
        "history": gate.history(arguments["history"]),
        "batch_size": min(arguments["batch_size"], most),
        "sessions": [gate.session_id(name) for name in arguments.get("sessions", ())],
    }


def _as_it_is(gate: Gate, arguments: Arguments) -> Arguments:
    del gate
    return arguments


VERBS_ADMITTED: dict[str, tuple[Right, Callable[[Gate, Arguments], Arguments]]] = {
    "read": (Right.READ, _read),
    "apply": (Right.WRITE, _apply),
    "clear": (Right.WRITE, _clear),
    "history": (Right.READ, _of_scope),
    "changes": (Right.READ, _of_scope),
    "begin": (Right.RUN, _of_attempt),
    "beat": (Right.RUN, _of_scope),
    "end": (Right.RUN, _of_attempt),
    "attempts": (Right.READ, _of_scope),
    "outcome": (Right.READ, _of_scope),
    "dags": (Right.READ, _as_it_is),
    "dag_ids": (Right.READ, _as_it_is),
    "count_dags": (Right.READ, _as_it_is),
    "runs": (Right.READ, _dags),
    "count_runs": (Right.READ, _dags),
    "run": (Right.READ, _of_scope),
    "task_instance": (Right.READ, _of_scope),
    "count_task_instances": (Right.READ, _of_dag),
    "task_instances": (Right.READ, _of_dag),
    "grid": (Right.READ, _dags),
    "keys": (Right.READ, _as_it_is),
    "keys_of_assets": (Right.READ, _as_it_is),
    "assets": (Right.READ, _as_it_is),
    "count_assets": (Right.READ, _as_it_is),
    "asset": (Right.READ, _which),
    "delete_run": (Right.ERASE, _delete_run),
    "delete_asset": (Right.ERASE, _delete_asset),
    "purge": (Right.ADMINISTER, _purge),
    "check_writable": (Right.READ, _as_it_is),
}
"""Which right each verb needs, and what else is looked at. The lists are narrowed in `keepstate.server.narrowed`."""
