"""The verbs on entries, asked of whoever keeps them: one request each, whatever carries it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from keepstate.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keepstate.backends.answers import Applied, ChangeNotice, Reading, StoredVersion
    from keepstate.backends.requests import Batch, Clear, EntryScope, Fence, HistoryPolicy, Session
    from keepstate.scope import Writer

T = TypeVar("T")


class Asking(ABC):
    """What a backend behind a channel does with entries. The times handed in stay here: the other end has its own clock."""

    address: str

    @abstractmethod
    def _ask(self, verb: str, **arguments: Any) -> Any:
        """Send a request, again where trouble may pass, and return the answer or raise the error that came back."""

    @abstractmethod
    def _numbered(self, given: Session | None, ask: Callable[[Session], T]) -> T:
        """Ask for a change under the number of a client session, by which it applies once however often it is sent."""

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
        """See `Backend.read`."""
        del now
        # who reads, and what is kept of what it removes, matters to an attempt that is registered by it
        beside: dict[str, Any] = (
            {} if fence is None else {"fence": fence, "writer": writer, "history": history}
        )
        if not texts:
            # an older server does not know it, and need not where it is not asked for
            beside["texts"] = False
        found: Reading = self._ask("read", scope=scope, keys=keys, limit=limit, offset=offset, **beside)
        if keys is not None and not {one.key for one in found.entries} <= set(keys):
            raise self._beside_the_question("read")
        return found

    def apply(self, batch: Batch) -> Applied:
        """See `Backend.apply`."""
        applied: Applied = self._numbered(
            batch.session, lambda session: self._ask("apply", batch=replace(batch, session=session))
        )
        return applied

    def clear(self, request: Clear) -> Applied:
        """See `Backend.clear`."""
        cleared: Applied = self._numbered(
            request.session, lambda session: self._ask("clear", request=replace(request, session=session))
        )
        return cleared

    def history(
        self, scope: EntryScope, key: str, *, now: int, limit: int | None = None
    ) -> list[StoredVersion]:
        """See `Backend.history`."""
        del now
        found: list[StoredVersion] = self._ask("history", scope=scope, key=key, limit=limit)
        if any(one.key != key for one in found):
            raise self._beside_the_question("history")
        return found

    def changes(self, scope: EntryScope, *, after: int, now: int) -> tuple[int, list[ChangeNotice]]:
        """See `Backend.changes`."""
        del now
        found: tuple[int, list[ChangeNotice]] = self._ask("changes", scope=scope, after=after)
        return found

    def _beside_the_question(self, verb: str) -> BackendError:
        return BackendError(
            f"the answer of {self.address} to {verb} is about another key than was asked for; is it a keepstate server?",
            address=self.address,
        )
