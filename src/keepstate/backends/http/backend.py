"""The verbs of `backends.base` over a keepstate server: one request each."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from keepstate.backends.answers import Admission
from keepstate.backends.http import forking
from keepstate.backends.http.channel import Channel, Reply
from keepstate.backends.http.servers import server_at
from keepstate.backends.sessions import Sessions
from keepstate.errors import BackendError, ConfigurationError, InvalidInputError, StaleAttemptError
from keepstate.patterns import compacted
from keepstate.wire import decode_answer, encode_request
from keepstate.wire.asking import Asking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from keepstate.backends.answers import Begun, GridRun, KeyOfAsset, KeyOfTask, Outcome
    from keepstate.backends.requests import Begin, End, Fence, HeldScope, HistoryPolicy, Session
    from keepstate.clock import Clock
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
    )

log = logging.getLogger("keepstate")

T = TypeVar("T")

_NO_ID = 2**63

_warned: set[str] = set()


class HttpBackend(Asking):
    """Entries behind a keepstate server.

    The times handed in are left here: the server stamps each request with its own clock. A request is sent again while
    trouble may pass, and applies once: changes carry the number of a client session, beginning an attempt its id.
    """

    guide_only = False

    def __init__(self, url: str, *, token: str | None, retry_timeout: float, now: Clock) -> None:
        """Connect at the first request. Raises ``ConfigurationError`` for a URL that can't be used."""
        server = server_at(url)
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            # not even in the error: it is a secret still
            raise ConfigurationError(
                "the token for the keepstate server has characters that no header can hold"
            )
        self.address = server.address
        self._channel = Channel(server, token=token, retry_timeout=retry_timeout, now=now)
        self._sessions = Sessions()
        forking.carry(self)
        if token is not None and not server.encrypted and not server.near and server.address not in _warned:
            _warned.add(server.address)
            log.warning(
                "KEEPSTATE_TOKEN goes to %s unencrypted, for all on the way to read; use https://",
                self.address,
            )

    def __repr__(self) -> str:
        return f"<HttpBackend {self.address}>"

    # ------------------------------------------------------------------------------------------ attempts

    def begin(self, request: Begin) -> Begun:
        """See `Backend.begin`."""
        begun: Begun = self._ask("begin", request=request)
        return begun

    def beat(self, scope: HeldScope, fence: Fence, *, now: int) -> None:
        """See `Backend.beat`."""
        del now
        self._ask("beat", scope=scope, fence=fence)

    def end(self, request: End) -> None:
        """See `Backend.end`."""
        reply = self._exchange("end", request=request)
        again = reply.tries > 1 and isinstance(reply.error, StaleAttemptError)
        if reply.error is not None and not (again and self._has_ended(request)):
            raise reply.error

    def _has_ended(self, request: End) -> bool:
        """Whether an earlier try was recorded, and only its answer lost, before the next attempt began."""
        fence = request.fence
        return any(
            one.ended_at is not None
            and (one.state, one.try_number) == (request.state, fence.try_number)
            and fence.attempt_id in {None, one.attempt_id}
            and fence.incarnation in {None, one.incarnation}
            for one in self.attempts(request.scope)
        )

    def attempts(self, scope: HeldScope) -> list[Attempt]:
        """See `Backend.attempts`."""
        found: list[Attempt] = self._ask("attempts", scope=scope)
        return found

    def outcome(self, scope: HeldScope) -> Outcome | None:
        """See `Backend.outcome`."""
        found: Outcome | None = self._ask("outcome", scope=scope)
        return found

    # --------------------------------------------------------------------------------------------- lists

    def dags(self, *, pattern: str | None = None, limit: int | None = None, offset: int = 0) -> list[DagInfo]:
        """See `Backend.dags`."""
        return self._listed("dags", [], pattern, limit=limit, offset=offset)

    def dag_ids(self, *, pattern: str | None = None, limit: int | None = None, offset: int = 0) -> list[str]:
        """See `Backend.dag_ids`."""
        return self._listed("dag_ids", [], pattern, limit=limit, offset=offset)

    def count_dags(self, *, pattern: str | None = None) -> int:
        """See `Backend.count_dags`."""
        return self._listed("count_dags", 0, pattern)

    def runs(
        self,
        dag_id: str | None = None,
        *,
        pattern: str | None = None,
        run_id: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[RunInfo]:
        """See `Backend.runs`."""
        return self._listed("runs", [], pattern, dag_id=dag_id, run_id=run_id, limit=limit, offset=offset)

    def count_runs(self, dag_id: str | None = None, *, pattern: str | None = None) -> int:
        """See `Backend.count_runs`."""
        return self._listed("count_runs", 0, pattern, dag_id=dag_id)

    def run(self, scope: RunScope) -> RunInfo | None:
        """See `Backend.run`."""
        found: RunInfo | None = self._ask("run", scope=scope)
        return found

    def task_instance(self, scope: TaskScope, *, now: int) -> TaskInstanceInfo | None:
        """See `Backend.task_instance`."""
        del now
        found: TaskInstanceInfo | None = self._ask("task_instance", scope=scope)
        return found

    def count_task_instances(self, dag_id: str, run_id: str, task_id: str | None = None) -> int:
        """See `Backend.count_task_instances`."""
        count: int = self._ask("count_task_instances", dag_id=dag_id, run_id=run_id, task_id=task_id)
        return count

    def task_instances(
        self,
        dag_id: str,
        run_id: str,
        task_id: str | None = None,
        *,
        now: int,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[TaskInstanceInfo]:
        """See `Backend.task_instances`."""
        del now
        found: list[TaskInstanceInfo] = self._ask(
            "task_instances", dag_id=dag_id, run_id=run_id, task_id=task_id, limit=limit, offset=offset
        )
        return found

    def grid(
        self,
        dag_id: str | None = None,
        *,
        now: int,
        pattern: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> list[GridRun]:
        """See `Backend.grid`."""
        del now
        return self._listed("grid", [], pattern, dag_id=dag_id, limit=limit, offset=offset)

    def keys(
        self, *, now: int, pattern: str | None = None, runs: int = 40, limit: int = 10_000
    ) -> list[KeyOfTask]:
        """See `Backend.keys`."""
        del now
        return self._listed("keys", [], pattern, runs=runs, limit=limit)

    def keys_of_assets(
        self, *, now: int, pattern: str | None = None, limit: int = 10_000
    ) -> list[KeyOfAsset]:
        """See `Backend.keys_of_assets`."""
        del now
        return self._listed("keys_of_assets", [], pattern, limit=limit)

    def assets(
        self, *, now: int, pattern: str | None = None, limit: int | None = None, offset: int = 0
    ) -> list[AssetInfo]:
        """See `Backend.assets`."""
        del now
        return self._listed("assets", [], pattern, limit=limit, offset=offset)

    def count_assets(self, *, pattern: str | None = None) -> int:
        """See `Backend.count_assets`."""
        return self._listed("count_assets", 0, pattern)

    def asset(self, which: AssetScope | int, *, now: int) -> AssetInfo | None:
        """See `Backend.asset`."""
        del now
        if isinstance(which, int) and not 0 <= which < _NO_ID:
            # more than a request can hold, and no asset has it
            return None
        found: AssetInfo | None = self._ask("asset", which=which)
        return found

    def delete_run(self, dag_id: str, run_id: str, *, now: int, session: Session | None = None) -> int:
        """See `Backend.delete_run`."""
        del now
        count: int = self._numbered(
            session, lambda session: self._ask("delete_run", dag_id=dag_id, run_id=run_id, session=session)
        )
        return count

    def delete_asset(self, scope: AssetScope, *, now: int, session: Session | None = None) -> bool:
        """See `Backend.delete_asset`."""
        del now
        there: bool = self._numbered(
            session, lambda session: self._ask("delete_asset", scope=scope, session=session)
        )
        return there

    # ------------------------------------------------------------------------------------------- upkeep

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
        """See `Backend.purge`: each batch is a request, and all are of the time at which the first one came."""
        del now
        began: int | None = None
        while True:
            reply = self._exchange(
                "purge",
                batch_size=batch_size,
                idle=idle,
                history=history,
                dry_run=dry_run,
                sessions=[*sessions, *self._sessions.ids()],
                as_of=began,
            )
            if reply.error is not None:
                raise reply.error
            report: CleanupReport | None = self._decoded("purge", reply)
            if report is None:
                return
            yield report
            if dry_run:
                return
            began = began if began is not None else reply.time

    def check_writable(self) -> None:
        """See `Backend.check_writable`."""
        self._ask("check_writable")

    def admission(self) -> Admission | None:
        """Return what the server takes the token for; ``None`` where it is too old to tell.

        Raises what a write would meet at the server's store, and ``AccessDeniedError`` where the token is not known.
        """
        reply = self._exchange("check_writable")
        if reply.error is not None:
            raise reply.error
        role, dags = reply.headers.get("keepstate-role"), reply.headers.get("keepstate-dags")
        return None if role is None else Admission(role, None if dags is None else unquote(dags))

    def close(self) -> None:
        """Close the connections to the server."""
        self._channel.close()

    # ----------------------------------------------------------------------------------------- plumbing

    def _listed(self, verb: str, nothing: T, pattern: str | None, **arguments: Any) -> T:
        """Ask for what fits a pattern; for ``nothing``, where it can fit nothing that there is."""
        ours = pattern if pattern is None else compacted(pattern)
        if ours is None and pattern is not None:
            return nothing
        found: T = self._ask(verb, pattern=ours, **arguments)
        return found

    def _numbered(self, given: Session | None, ask: Callable[[Session], T]) -> T:
        """Give a change a number of our own, unless it has one, as its answer could be lost on the way."""
        if given is not None:
            return ask(given)
        own = self._sessions.lend()
        try:
            return ask(own)
        finally:
            self._sessions.take_back(own)

    def _ask(self, verb: str, **arguments: Any) -> Any:
        reply = self._exchange(verb, **arguments)
        if reply.error is not None:
            raise reply.error
        return self._decoded(verb, reply)

    def _decoded(self, verb: str, reply: Reply) -> Any:
        try:
            return decode_answer(verb, reply.data)
        except InvalidInputError as exc:
            raise BackendError(
                f"the answer of {self.address} to {verb} can't be understood ({exc}); is its keepstate much older than this "
                "one?",
                address=self.address,
            ) from exc

    def _exchange(self, verb: str, **arguments: Any) -> Reply:
        return self._channel.ask(verb, encode_request(verb, arguments))

    def after_fork_in_child(self) -> None:
        """Take new session numbers: going on with the parent's, a child's writes would be taken for repetitions."""
        self._sessions = Sessions()
